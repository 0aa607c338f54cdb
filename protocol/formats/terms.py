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
                "what the full cache uses, or a number of bytes."
            ),
            "event": ("One compression of the cache to its budget: at the end of the prompt, or while decoding."),
            "interval": "Tokens between two events while decoding.",
            "isocache": (
                "At equal memory: both arms held the same, as it was measured after every step, whatever "
                "their budgets promised."
            ),
            "matched": (
                "The subject of a contrast held no more memory than its comparator, within the registered tolerance, "
                "in the mean over problems; in the studies that ship neither arm did, on average problem by problem "
                "too. An unmatched contrast is neither won nor lost."
            ),
            "charged": (
                "A difference of memory within the tolerance is held against the arm that held more: a win "
                "has to exceed what the extra slots may have bought, up to the comparator's next measured budget. "
                '"none: at 132 too": nothing is charged; the test has to hold against the comparator at 132 as well.'
            ),
            "cache": "In a table: memory of the subject over that of the comparator, as it was measured.",
        },
        "An experiment": {
            "policy": "A method that chooses which slots stay.",
            "arm": "A policy with its settings, under a name in one experiment.",
            "full cache": "The arm that never evicts. It shows what the model can do at all.",
            "subject": "The arm that the question is about.",
            "comparator": "An arm that the subject is compared with.",
            "problem": "One question with its context and its answer.",
            "seed": "Number from which sampling starts: each seed decodes every problem once more.",
            "cell": "One combination of model, task, budget, arm and seed.",
            "lane": "One answer being decoded: one cell and one problem.",
            "contrast": "Subject against one comparator, for one model, task and budget.",
            "family": "All contrasts that the rule decides on together.",
            "development split": "Problems to look at as often as one likes. No claim rests on them.",
            "held-out split": (
                "Also confirmation split: the problems that decide. They are opened once, after the lock."
            ),
            "probe": "A run on the development split.",
            "A/A": ("The same arm run twice. What differs between the two is noise, since no policy differs."),
            "gate": (
                "What the full cache has to reach on a task, as registered. A model that cannot do the task "
                "with its whole cache shows nothing about eviction."
            ),
            "uninformative": (
                "The gate is not passed, or the arms of a contrast do no better than a guess: nothing is said of "
                "eviction."
            ),
        },
        "A registration": {
            "protocol": "The experiment as a person writes it, before it is run: protocol.toml.",
            "registration": "The folder of one study. It counts once it is locked.",
            "lock": ("What was frozen: digests of protocol, code, weights, splits and environment, and the rule."),
            "claim": "The one right to run a lock on its held-out problems. It is taken once.",
            "opened before": (
                "An earlier registration in this repository has run these held-out problems, so that its "
                "readers know how they are answered: the verdict is RE-USED. Fresh problems are drawn by [randomness]."
            ),
            "attempt": "One start of confirm. All but the one that seals were aborted, and are kept.",
            "records": "One line for every lane: its answer, its grade, the memory that it held.",
            "seal": "Count and digest of all records, written when the last lane has ended.",
            "verdict": "What the locked rule says of the sealed records.",
            "ledger": "The list of what was done to a registration. Each line cites the line before it.",
            "head": "Digest of the last line of the ledger. Who notes it can tell later that lines are gone.",
            "drifted": "Bytes of today are not the locked ones, so that confirm refuses to run.",
            "amendment": ("A changed protocol in a new folder that cites the lock it changes. The old one stays."),
            "reproduction": "A confirmed study run again in a folder of its own, with its problems and seeds.",
            "replication": "The same protocol run on fresh problems with fresh seeds, in a folder of its own.",
            "ANCHORED": "An outside witness has proven when a document was there, and the proof holds.",
            "UNWITNESSED": (
                "No outside witness that existed before the claim was verified, so that the author could have chosen "
                "among studies, or made the lock afterwards."
            ),
            "UNANCHORED": (
                "No outside witness says when this was written: whoever holds the folder could have written it anew."
            ),
        },
        "Where a study stands": {
            "written": "There is a protocol and no lock. That is not counted as registered.",
            "locking was cut off": "A crash came between lock and ledger: register completes it.",
            "locked": "Frozen and not yet claimed: it has opened no held-out problem.",
            "claimed": "Running, or killed half-way: held-out problems may have been opened.",
            "unfinished": (
                "Claimed and not judged: no fault. confirm goes on where it stopped; an audit says whether "
                "what is there holds."
            ),
            "sealed": "All lanes have ended, and the rule has not spoken. confirm judges it.",
            "judged": "There is a verdict.",
            "withdrawn": "Closed for good without a verdict, with a reason.",
            "amended": "Closed for good in favour of an amendment.",
            "INVALID": "The files contradict each other. Whatever they say is no verdict.",
            "cannot tell": "This machine, or this copy of the files, does not show it. The remedy is named.",
        },
        "Verdicts": {
            "rule": "What turns contrasts into a verdict. It is locked, and was tried on simulated studies.",
            "CONFIRMED": "The registered rule was met.",
            "REFUTED": "The registered rule says that the claim is false, or can no longer be met.",
            "INCONCLUSIVE": ("The registered rule was neither met nor refuted. That is not evidence of equality."),
            "SCREENED": (
                "Some contrast has fewer than 200 problems (or clusters), so that nothing is decided, "
                "whatever the rule says."
            ),
            "DEVIATED": (
                "The study amends one that had been claimed, or did not keep to its looks, so that whatever its rule "
                "says confirms nothing."
            ),
            "RE-USED": (
                "Held-out problems had been opened by an earlier registration, so that whatever the rule says "
                "could be known beforehand and confirms nothing."
            ),
            "OWN POLICY": (
                "An arm ran a policy of its author's own distribution, whose digest is named: nobody here has read it."
            ),
            "AGREEMENT": (
                "What is compared is agreement: the share of positions of the full cache's text at which an arm that "
                "is fed it would have said the same token. More right answers are not shown."
            ),
            "OUTPUTS OF OTHERS": (
                "Another harness decoded and graded: this project made and replayed no output and measured no memory."
            ),
            "for MODEL alone": "One model ran: nothing is said of any other.",
            "n < 200": ("Some contrast has fewer than 200 problems; effects found there often shrink or flip."),
            "n ≥ 200": "Every contrast has at least 200 problems.",
            "branch": "One of the three outcomes, A, B or C, of the rule of set-conditioned diversity.",
            "lossless": "Shown to lose less accuracy against the full cache than a registered margin.",
        },
        "Statistics": {
            "n": "Problems of a contrast; with clusters, problems/clusters.",
            "pp": "Percentage points of accuracy: subject minus comparator, on the same problems.",
            "gains, losses": "Answers that the subject alone got right, or the comparator alone.",
            "p": "How often chance alone brings a difference at least as large, if the arms do not differ.",
            "alpha": "How often, at most, the whole family may find a difference where there is none.",
            "Bonferroni": "Each of m contrasts is tested at alpha / m, so that the family errs at alpha.",
            "95 % interval": "Differences that the answers of one contrast, taken alone, do not rule out.",
            "simultaneous interval": "The same for all contrasts of the family at once: wider.",
            "better, worse": "Significant at the level of the family, with matched memory.",
            "cluster": "Problems that share something, such as a document, and so are not independent.",
            "cluster bootstrap": "Whole clusters are resampled, in place of single problems.",
            "type-I error": (
                "How often a test finds a difference where there is none. Nominal is what it promises; a "
                "method that errs at more than 1.2 x nominal is refused."
            ),
            "detectable difference": ("The smallest difference that a study of this size finds in four of five cases."),
        },
        "Answers": {
            "accuracy": "Share of the lanes that are correct.",
            "truncated": "Stopped by max_new_tokens before the model ended its answer.",
            "no answer": "Ended, or was stopped, without an answer that the grader could find.",
            "failed lane": "It broke off with an error, and has no grade.",
            "excluded": "A problem that the protocol says not to run, such as one that is too long.",
            "peak": "The most slots that a lane held per KV head and layer.",
        },
        "An audit": {
            "held": "The check was made and passed.",
            "failed": "The check was made and did not pass. The verdict is INVALID.",
            "not run": "It was not asked for, or there is nothing of it to check.",
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
