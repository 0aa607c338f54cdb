"""The terms that commands, reports and documents print, each defined once.

docs/glossary.md, the ends of `--help` and sentences of a report are written from this file.
"""

from collections.abc import Mapping
from types import MappingProxyType

from protocol.formats.terminal import line_width, wrap_text

WIDTH = 100

# heading -> term -> what it means
GROUPS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "Memory": {
            "slot": "One stored pair of a key and a value, of one KV head in one layer. Evicting frees it.",
            "budget": (
                "The slots that each KV head of each layer may keep: a number, a share of the prompt or of "
                "the full cache's use, or a number of bytes."
            ),
            "event": ("One compression of the cache to its budget: at the end of the prompt, or while decoding."),
            "interval": "Tokens between two events while decoding.",
            "isocache": (
                "At equal memory: both arms held the same amount, measured after every step, whatever their "
                "budgets were."
            ),
            "matched": (
                "In a contrast the subject held no more memory than its comparator, on average over problems "
                "and within the registered tolerance. In the studies that ship with kv-prereg neither arm "
                "held more, also compared problem by problem. An unmatched contrast is neither won nor lost."
            ),
            "charged": (
                "A difference of memory within the tolerance counts against the arm that held more: to win, "
                "its advantage must exceed the accuracy that the extra slots may have bought, up to the "
                'comparator\'s next measured budget. "none: at 132 too" means that nothing is charged, and '
                "the subject must also win against the comparator at budget 132."
            ),
            "cache": "In a table: measured memory of the subject divided by that of the comparator.",
        },
        "An experiment": {
            "policy": "A method that chooses which slots stay.",
            "arm": "A policy with its settings, under a name in one experiment.",
            "full cache": "The arm that never evicts. It shows what the model can do without eviction.",
            "subject": "The arm that the question of the study is about.",
            "comparator": "An arm with which the subject is compared.",
            "problem": "One question with its context and its answer.",
            "seed": "Number that determines the random draws of sampling: every problem is decoded once for each seed.",
            "cell": "One combination of model, task, budget, arm and seed.",
            "lane": "One answer being decoded: one cell and one problem.",
            "contrast": "The comparison of the subject with one comparator, for one model, task and budget.",
            "family": "All contrasts that the rule decides on together.",
            "development split": "Problems that may be looked at as often as you like. No claim rests on them.",
            "held-out split": (
                "The problems that decide, also called the confirmation split. They are opened once, after the lock."
            ),
            "probe": "A run on the development split.",
            "A/A": (
                "The same arm run twice. Any difference between the two runs is noise, since the policy is the same."
            ),
            "gate": (
                "The accuracy that the full cache must reach on a task, as registered. A model that cannot "
                "do the task with its whole cache shows nothing about eviction."
            ),
            "uninformative": (
                "The gate is not passed, or the arms of a contrast do no better than guessing: nothing can "
                "be said about eviction."
            ),
        },
        "A registration": {
            "protocol": "The experiment as its author writes it before it is run: protocol.toml.",
            "registration": "The folder of one study. It counts as registered once it is locked.",
            "lock": ("The frozen study: digests of protocol, code, weights, splits and environment, and the rule."),
            "claim": "The right to run a lock on its held-out problems. It can be taken only once.",
            "opened before": (
                "An earlier registration in this repository has run these held-out problems, so the answers "
                "to them may have been known: the verdict is RE-USED. Fresh problems are drawn by "
                "[randomness]."
            ),
            "attempt": "One start of confirm. All attempts except the sealing one were aborted; they stay on record.",
            "records": "One line for each lane: its answer, its grade and its memory.",
            "seal": "Count and digest of all records, written when the last lane has ended.",
            "verdict": "What the locked rule concludes from the sealed records.",
            "ledger": "The list of what was done to a registration. Each line cites the line before it.",
            "head": "Digest of the last line of the ledger. Whoever writes it down can later show that lines were "
            "removed.",
            "drifted": "Today's bytes differ from the locked ones, so confirm refuses to run.",
            "amendment": ("A changed protocol in a new folder that cites the lock it changes. The old folder stays."),
            "reproduction": "A confirmed study run again in its own folder, with the same problems and seeds.",
            "replication": "The same protocol run on fresh problems with fresh seeds, in its own folder.",
            "ANCHORED": "An outside witness has proven when a document existed, and the proof is valid.",
            "UNWITNESSED": (
                "No valid proof shows that the lock existed before the claim, so the author could have "
                "chosen among several studies, or made the lock afterwards."
            ),
            "UNANCHORED": (
                "No outside witness says when this was written: whoever has the folder could have rewritten it."
            ),
        },
        "Where a study stands": {
            "written": "There is a protocol but no lock. That does not count as registered.",
            "locking was interrupted": "There was a crash between lock and ledger, which register repairs.",
            "locked": "Frozen and not yet claimed: it has opened no held-out problem.",
            "claimed": "Running, or killed half-way: held-out problems may have been opened.",
            "unfinished": (
                "Claimed but not judged, which is not an error. confirm continues where it stopped; an audit "
                "checks what exists so far."
            ),
            "sealed": "All lanes have ended, but the rule has not been applied. confirm judges it.",
            "judged": "There is a verdict.",
            "withdrawn": "Closed for good without a verdict, with a reason.",
            "amended": "Closed for good in favour of an amendment.",
            "INVALID": "The files contradict each other. Whatever they say, there is no verdict.",
            "cannot tell": (
                "The check is impossible on this machine or with this copy of the files. The output says what is "
                "needed."
            ),
        },
        "Verdicts": {
            "rule": "The procedure that turns contrasts into a verdict. It is locked, and was tested on simulated "
            "studies.",
            "CONFIRMED": "The registered rule was met.",
            "REFUTED": "The registered rule says that the claim is false, or can no longer be met.",
            "INCONCLUSIVE": (
                "The registered rule was neither met nor refuted. That is not evidence that the arms are equal."
            ),
            "SCREENED": (
                "At least one contrast has fewer than 200 problems (or clusters), so nothing is decided, "
                "whatever the rule says."
            ),
            "DEVIATED": (
                "The study amends one that had been claimed, or departed from its registered looks. Whatever "
                "its rule says, it confirms nothing."
            ),
            "RE-USED": (
                "An earlier registration had opened some of the held-out problems, so the outcome could have "
                "been known beforehand. Whatever the rule says, it confirms nothing."
            ),
            "OWN POLICY": (
                "An arm ran a policy from the author's own package, whose digest is named: the kv-prereg "
                "project has not reviewed its code."
            ),
            "AGREEMENT": (
                "The study compares agreement: an arm is fed the full cache's text, and agreement is the "
                "share of positions at which it would have produced the same token. It does not show that "
                "more answers are correct."
            ),
            "OUTPUTS OF OTHERS": (
                "Another harness decoded and graded: kv-prereg produced no output, replayed none, and "
                "measured no memory."
            ),
            "for MODEL alone": "Only one model ran: nothing is said about other models.",
            "n < 200": (
                "At least one contrast has fewer than 200 problems; effects seen in such small samples often "
                "shrink or change sign."
            ),
            "n ≥ 200": "Every contrast has at least 200 problems.",
            "branch": "One of the three outcomes, A, B or C, of the rule of set-conditioned diversity.",
            "lossless": "Shown to lose less accuracy against the full cache than a registered margin.",
        },
        "Statistics": {
            "n": "Problems of a contrast; with clusters, problems/clusters.",
            "pp": "Percentage points of accuracy: subject minus comparator, on the same problems.",
            "gains, losses": (
                "Gains are answers that only the subject got right, losses those that only the comparator got right."
            ),
            "p": "How often chance alone gives a difference at least as large, if the arms do not differ.",
            "alpha": "The largest allowed probability that any test of the family finds a difference where there is "
            "none.",
            "Bonferroni": "Each of m contrasts is tested at alpha / m, so that the error rate of the family is at most "
            "alpha.",
            "95 % interval": "The differences that are compatible with the answers of one contrast, taken alone.",
            "simultaneous interval": "The same for all contrasts of the family at once, and therefore wider.",
            "better, worse": "Significantly better or worse at the family's level, with matched memory.",
            "cluster": "Problems that share something, such as a document, and so are not independent.",
            "cluster bootstrap": "A bootstrap that resamples whole clusters in place of single problems.",
            "type-I error": (
                "How often a test finds a difference where there is none. The nominal rate is what the test "
                "promises; a method whose real rate exceeds 1.2 x nominal is refused."
            ),
            "detectable difference": (
                "The smallest difference that a study of this size detects with probability 80 %."
            ),
        },
        "Answers": {
            "accuracy": "The share of lanes with a correct answer.",
            "truncated": "Stopped by max_new_tokens before the model ended its answer.",
            "no answer": "The lane ended, or was stopped, without an answer that the grader could find.",
            "failed lane": "A lane that stopped with an error and has no grade.",
            "excluded": "A problem that the protocol excludes, such as one that is too long.",
            "peak": "The largest number of slots that a lane held per KV head and layer.",
        },
        "An audit": {
            "held": "The check was made and passed.",
            "failed": "The check was made and did not pass. The verdict is INVALID.",
            "not run": "The check was not requested, or there is nothing to check.",
        },
    }
)

TERMS: Mapping[str, str] = MappingProxyType(
    {term: meaning for group in GROUPS.values() for term, meaning in group.items()}
)


def format_terms(*terms: str) -> str:
    """Format the terms and their meanings in two columns, for the end of a help text."""
    margin = 2 + max(map(len, terms))
    lines = []
    for term in terms:
        meaning = wrap_text(TERMS[term], min(WIDTH, line_width()) - margin)
        lines += [
            f"  {label:<{margin}}{line}" for label, line in zip([term, *[""] * len(meaning)], meaning, strict=False)
        ]
    return "\n".join(["words:", *lines])
