"""Sentences about what a judgement proves and does not prove, computed from the judgement and the lock."""

import itertools
from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from analysis import rules
from analysis.judgement import arm_text, memory_statements, policy_namesakes, previously_opened, same_retained_slots
from analysis.judgement.judging_rules import read_judging
from analysis.judgement.qualifiers import REPRODUCTION
from analysis.judgement.study_table import NOT_RUN
from analysis.rules import full_cache_gate, verdict_line
from analysis.rules.rule import arm_pairs, is_against_full, measures_memory
from analysis.rules.sentences import contrast_name, describe_uninformative, list_first, strip_zeros
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from protocol.formats import runners

# What seeds and problems are drawn from, by its name in a protocol.
SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "nonce": "the lock and the nonce of an auditor",
        "beacon": "the lock and a public beacon",
        "anchor": "the lock and the Bitcoin block that anchors the lock",
        "local": "the lock and a number that the author's machine drew after the lock, which nobody else saw drawn",
        "cited": "the lock and the claim of the study whose records it cites, which came after both locks",
    }
)

MEASURED_MEMORY = "memory is compared on the problems of which every lane was measured"


def proves(judged: Mapping[str, Any]) -> list[str]:
    """Return what the judgement proves; nothing unless the rule confirmed or refuted. A reproduction proves that
    its parent's run can be repeated, as its qualifier says, and nothing that the parent does not.
    """
    is_reproduction = any(entry["word"] == REPRODUCTION for entry in judged.get("qualifiers", []))
    if judged["verdict"] not in (CONFIRMED, REFUTED) or is_reproduction:
        return []
    return rules.RULES[judged["rule"]].text.proves(judged)


def does_not_prove(
    judged: Mapping[str, Any], lock: Mapping[str, Any], idle: Container[tuple[str, ...]] = ()
) -> list[str]:
    """Return the limits of this study, the most important first. idle: (model, task, budget, arm) of every
    arm with a budget that evicted nothing in any lane.
    """
    opened_sentences = [f"Fresh problems: {sentence}" for sentence in previously_opened.describe_opened(lock)]
    opened_sentences += [
        f"Clusters without development problems: {sentence}"
        for sentence in previously_opened.describe_shared_clusters(lock)
    ]
    same_slot_sentences = [f"Two separate findings: {sentence}." for sentence in _same_slot_sentences(lock)]
    idle_sentences = _idle_sentences(
        judged["contrasts"], idle, arm_text.press_arms(lock["protocol"]["content"]), arm_text.altered_arms(lock)
    )
    return [
        *_limitations(judged, lock),
        *idle_sentences,
        *opened_sentences,
        *same_slot_sentences,
        *_choice_sentences(judged, lock),
        *(_outside_sentences(lock) if runners.TABLE in lock["protocol"]["content"] else _scope_sentences(lock)),
        _seed_sentence(lock["protocol"]["content"]),
        "Order in time: this judgement rests on no outside witness; anchors, where there are any, stand "
        "beside it (python -m protocol.audit).",
    ]


def _outside_sentences(lock: Mapping[str, Any]) -> list[str]:
    from analysis.judgement.outside_runs import list_limits

    return list_limits(lock)


def _idle_sentences(
    contrasts: Sequence[Mapping[str, Any]],
    idle: Container[tuple[str, ...]],
    presses: frozenset[str],
    altered: frozenset[str],
) -> list[str]:
    """Return sentences about contrasts with an arm that never evicted. Such an arm is the full cache, except
    a press, which may mask in place, and an arm with another slot storage or an extra prompt.
    """
    sentences = []
    for kind, what in (
        ("", "an arm evicted nothing in any lane, so that its answers are the full cache's"),
        ("press", "a press kept every slot in every lane, although it may mask some"),
        # The verdict of reads-programs has this sentence, and an audit compares it to the letter.
        ("unlike", "no lane of an arm evicted anything, and it stores its slots or was asked otherwise"),
    ):
        contrast_count, named = 0, dict[str, None]()
        for contrast in contrasts:
            idle_arms = [
                arm
                for arm in (contrast["subject"], contrast["against"])
                if (contrast["model"], contrast["task"], contrast["budget"], arm) in idle
                and ("press" if arm in presses else "unlike" if arm in altered else "") == kind
            ]
            contrast_count += bool(idle_arms)
            named |= {
                f"{arm} at {contrast['budget']} ({contrast['model']} {contrast['task']})": None for arm in idle_arms
            }
        if contrast_count:
            about = {"press": "their registered budget", "unlike": "what is evicted"}.get(kind, "the policies")
            where = f"{contrast_count} of {len(contrasts)} contrasts, where {what}"
            sentences.append(f"Anything about {about} in {where}: {list_first(named)}.")
    return sentences


def _same_slot_sentences(lock: Mapping[str, Any]) -> list[str]:
    """Return sentences about compared arms that retained the same slots when the study was locked."""
    content = lock["protocol"]["content"]
    decision = content["decision"]
    compared = [*itertools.chain(*arm_pairs(decision)), *decision.get("beside", [])]
    if (sweep := content.get("sweep")) and sweep["name"] in compared:
        compared += sweep["candidates"]
    return same_retained_slots.describe_pairs(lock.get("checks", {}).get("same_kept"), compared)


def _limitations(judged: Mapping[str, Any], lock: Mapping[str, Any]) -> list[str]:
    contrasts, missing, content = judged["contrasts"], judged["missing"], lock["protocol"]["content"]
    decision = content["decision"]
    decisive = _count_decisive(missing)
    chosen = judged["selected"]["arm"] if "selected" in judged else None
    prompt_sentences = [
        f"A difference that the cache alone makes: {sentence}."
        for sentence in arm_text.differing_prompt_sentences(lock, chosen)
    ]
    sentences = [*_deviation_sentences(judged, lock), *_gate_sentences(judged), *prompt_sentences]
    rule_verdict = verdict_line.rule_verdict(judged)
    if decisive:
        what = "have no grade" if missing["rule"] == "inconclusive" else "were never run"
        sentences.append(
            f"The registered question: {decisive} of {missing['registered']} lanes {what}, "
            "and the registered rule then answers INCONCLUSIVE."
        )
        if read_judging(lock) > 2 and measures_memory(decision):
            sentences.append(f"The memory of all problems: {MEASURED_MEMORY}.")
    elif rule_verdict == INCONCLUSIVE:
        is_other_word = judged["verdict"] != INCONCLUSIVE and not verdict_line.is_judged_as_shipped(judged)
        sentences.append(
            f"Equality: {'this' if is_other_word else 'INCONCLUSIVE says that this'} study could not tell."
        )
    if rule_verdict == CONFIRMED:
        sentences += rules.RULES[judged["rule"]].text.limits(judged)
    if wrong := missing["lanes"] - decisive:
        sentences.append(
            f"The answers of {wrong} of {missing['registered']} lanes: they ended without a grade and "
            f"count as not correct, as registered; {MEASURED_MEMORY}."
        )
    if judged["gate"] is None and measures_memory(decision):
        sentences.append("That the full cache can do the task: this study registers no gate.")
    if missing.get("owed") and not verdict_line.is_judged_as_shipped(judged):
        sentences.append(
            f"The registered question: its answer depends on the grades of {missing['lanes']} lanes that "
            "ended without one, so that it stays open."
        )
    elif missing.get("owed"):
        sentences.append(
            "The registered question: its answer depends on counting the lanes of a comparator without a "
            "grade as not correct. If they count as correct, the rule does not confirm, so that the "
            "question stays open."
        )
    sentences += _uneven_sentences(missing)
    if uninformative := describe_uninformative(contrasts):
        sentences.append(f"Anything about the policies where {uninformative}.")
    few = [contrast_name(row) for row in contrasts if row["difference"] is None]
    if few:
        sentences.append(
            f"Anything in {len(few)} of {len(contrasts)} contrasts, where fewer than two problems could be "
            f"compared: {list_first(few)}."
        )
    unmatched = [contrast_name(row) for row in contrasts if not row["matched"] and row["difference"] is not None]
    if is_against_full(decision):
        sentences += _unsaved_limits(lock, unmatched, len(contrasts))
        sentences.append(
            "Anything at equal memory: the comparator is the full cache, and no other policy at the memory of "
            f"{decision['subject']} is in the rule."
        )
        sentences += memory_statements.unsaved_memory(contrasts)
    elif measures_memory(decision):
        tolerance = strip_zeros(decision["cache_tolerance"])
        against_full = [row for row in contrasts if "saves" in row]
        others = [row for row in contrasts if "saves" not in row]
        unsaved = [name for name in map(contrast_name, against_full) if name in unmatched]
        sentences += _unsaved_limits(lock, unsaved, len(contrasts))
        sentences += memory_statements.unsaved_memory(against_full)
        unbounded = set(map(contrast_name, memory_statements.unbounded_within(others, float(tolerance))))
        if unmatched := [name for name in unmatched if name not in {*unbounded, *unsaved}]:
            sentences.append(
                f"Anything at equal memory in {len(unmatched)} of {len(contrasts)} contrasts, whose caches "
                f"were not matched within {tolerance}: {list_first(unmatched)}."
            )
        sentences += memory_statements.unequal_memory(others, float(tolerance))
    if "outcome" in content:
        sentences.append(
            "That more answers are right, or that any arm answers as the full cache does: every arm was fed the full "
            "cache's text, also after a token that it would have said otherwise, and agreement with it is compared."
        )
    elif scored := sorted({row["task"] for row in contrasts if "scored" in row}):
        sentences.append(
            f"That more answers are right: {list_first(scored)} has scores from 0 to 1, and their means are compared."
        )
    if judged["verdict"] == verdict_line.REUSED:
        sentences.append(
            "A confirmation or a refutation: whoever registers a question about problems that were already "
            "opened can know its answer, and alpha is valid only for questions that were asked first."
        )
    if judged["label"] == "screening-grade":
        size = verdict_line.smallest_contrast(contrasts)[1]
        sentences.append(f"A confirmation or a refutation: {size}; effects below 200 problems often shrink or flip.")
    return sentences


def _unsaved_limits(lock: Mapping[str, Any], unsaved: Sequence[str], contrasts: int) -> list[str]:
    """Return a limit against the full cache. unsaved: contrasts whose subject saves no memory. One that stores or reads
    its slots otherwise than computed may lose all the same.
    """
    if not unsaved:
        return []
    decision = lock["protocol"]["content"]["decision"]
    is_altered = read_judging(lock) > 2 and decision["subject"] in arm_text.altered_arms(lock)
    reason = "" if is_altered else ": an arm that evicts nothing loses nothing"
    return [
        f"Anything about eviction in {len(unsaved)} of {contrasts} contrasts, where the full cache held "
        f"at most {100 * float(decision['cache_tolerance']):g} % more{reason} ({list_first(unsaved)})."
    ]


def _gate_sentences(judged: Mapping[str, Any]) -> list[str]:
    if judged["gate"] is None or judged["gate"]["passed"]:
        return []
    return [f"Anything about the policies, since the study is {full_cache_gate.describe_gate(judged)}."]


def _uneven_sentences(missing: Mapping[str, Any]) -> list[str]:
    """Return a sentence about lanes missing not at random: problems that one arm lost and another answered."""
    rows = missing["uneven"]
    if not rows:
        return []
    named = list_first(
        f"{row['arm']} in {row['problems']} of {row['of']} problems ({row['model']} {row['task']} at {row['budget']})"
        for row in rows
    )
    return [
        (
            "That lanes are missing at random: some ended without a grade where another arm of the same model, "
            f"task and budget has one: {named}."
        )
    ]


def _deviation_sentences(judged: Mapping[str, Any], lock: Mapping[str, Any]) -> list[str]:
    if deviation := lock.get("deviation"):
        return [
            f"The registered question: the study did not keep to its looks; {deviation}. The rule alone says "
            f"{judged['rule_says']}."
        ]
    amends = lock.get("amends")
    if amends is None or not amends["after_claim"]:
        return []
    return [
        f"The registered question: this lock amends {amends['name']} ({amends['lock'][:12]}) after its "
        f"claim, when held-out answers could be known. The rule alone says {judged['rule_says']}."
    ]


def _count_decisive(missing: Mapping[str, Any]) -> int:
    """Return how many lanes without a grade make the verdict INCONCLUSIVE."""
    if missing["rule"] == "inconclusive":
        return int(missing["lanes"])
    return sum(cell["lanes"] for cell in missing["cells"] if cell["ended"] == NOT_RUN)


def _choice_sentences(judged: Mapping[str, Any], lock: Mapping[str, Any]) -> list[str]:
    content = lock["protocol"]["content"]
    sentences = []
    excluded = [row for row in judged.get("excluded", []) if row["problems"]]
    if excluded:
        counts = list_first(
            f"{row['problems']} of {row['of']} problems of {row['task']} on {row['model']}" for row in excluded
        )
        longest = content["exclude"]["prompt_tokens_above"]
        sentences.append(f"Prompts above {longest} tokens: the registered exclusion left out {counts}.")
    if "selected" in judged:
        others = [name for name in content["sweep"]["candidates"] if name != judged["selected"]["arm"]]
        sentences.append(
            f"Anything about {list_first(others)}: {judged['selected']['arm']} alone was confirmed, chosen on "
            "the development problems."
        )
    if "beside" in judged:
        named = list_first(content["decision"]["beside"])
        sentences.append(f"Anything registered about {named}: these contrasts are outside the rule.")
    return sentences


def _code_source(lock: Mapping[str, Any]) -> str:
    """Say whose implementation the arms ran."""
    content = lock["protocol"]["content"]
    if read_judging(lock) >= 3:
        from analysis.judgement.own_policies import own_arms

        if own := list(own_arms(lock)):
            return (
                f"{list_first(own)} ran a policy of its author's own, and the others implementations of this "
                "project or of kvpress"
            )
    presses = [name for name, arm in content["arms"].items() if "press" in arm]
    if not presses:
        return "these are this project's implementations"
    ours = "" if len(presses) == len(content["arms"]) else ", the others this project's implementations"
    return f"{list_first(presses)} ran kvpress' code on the prompt{ours}"


def _scope_sentences(lock: Mapping[str, Any]) -> list[str]:
    content = lock["protocol"]["content"]
    generation = content["generation"]
    greedy = float(generation["temperature"]) == 0
    sampling = "greedy" if greedy else f"temperature {generation['temperature']}"
    if "top_p" in generation:
        sampling += f", top-p {generation['top_p']}"
    generated = "" if lock["data"] else ", and its problems are generated text"
    tasks = [task["name"] for task in content["tasks"]]
    return [
        f"Other models or sizes: only {list_first(content['models'])} ran.",
        f"Other tasks: only {list_first(tasks)} ran{generated}.",
        f"Other budgets or decoding: only {list_first(content['budgets'])}, {sampling}, {generation['dtype']}.",
        "Lower peak memory: every arm holds its whole prompt until its event; slots count from then on.",
        f"The policies as their authors published them: {_code_source(lock)}.",
        *(f"Other policies of the same name: {sentence}." for sentence in policy_namesakes.describe_namesakes(lock)),
    ]


def _seed_sentence(content: Mapping[str, Any]) -> str:
    if "randomness" in content:
        return (
            "Freedom from the author's choices: seeds and generated problems derive from "
            f"{SOURCES[content['randomness']['source']]}, as the claim records; all else is author-chosen."
        )
    seeds = list_first(str(seed) for seed in content["seeds"])
    return f"Freedom from the author's choices: the seeds ({seeds}) are author-chosen."
