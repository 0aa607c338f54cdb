"""Sentences about what a judgement proves and does not prove, computed from the judgement and the lock."""

import itertools
from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from analysis import rules
from analysis.output import headline
from analysis.rules import full_cache
from analysis.rules.rule import against_full, sides
from analysis.rules.sentences import contrast, listed, short
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.studies import arms, memory_sentences, namesakes, opened, same_kept
from analysis.studies.study_files import NOT_RUN

__all__ = ["does_not_prove", "proves"]

# Descriptions of late randomness, by its name in a protocol.
SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "nonce": "an auditor's nonce",
        "beacon": "a public beacon",
        "anchor": "the Bitcoin block that anchors the lock",
    }
)


def proves(judged: Mapping[str, Any]) -> list[str]:
    """Return what the judgement proves; nothing unless the rule confirmed or refuted."""
    if judged["verdict"] not in (CONFIRMED, REFUTED):
        return []
    return rules.RULES[judged["rule"]].words.proves(judged)


def does_not_prove(
    judged: Mapping[str, Any], lock: Mapping[str, Any], idle: Container[tuple[str, ...]] = ()
) -> list[str]:
    """Return the limits of this study, the most important first. idle: (model, task, budget, arm) of every
    arm with a budget that evicted nothing in any lane.
    """
    fresh = [f"Fresh problems: {said}" for said in opened.words(lock)]
    fresh += [f"Clusters that nobody developed on: {said}" for said in opened.developed(lock)]
    alike = [f"Two separate findings: {said}." for said in _same_kept(lock)]
    kept = _idle(judged["contrasts"], idle, arms.presses(lock["protocol"]["content"]), arms.unlike(lock))
    return [*_shortfalls(judged, lock), *kept, *fresh, *alike, *_choices(judged, lock), *_scope(lock)]


def _idle(
    contrasts: Sequence[Mapping[str, Any]],
    idle: Container[tuple[str, ...]],
    presses: frozenset[str],
    unlike: frozenset[str],
) -> list[str]:
    """Return sentences about contrasts with an arm that never evicted. Such an arm is the full cache, except
    a press, which may mask in place, and an arm with another slot storage or an extra prompt.
    """
    sentences = []
    for kind, what in (
        ("", "no lane of an arm evicted anything and its answers are the full cache's"),
        ("press", "a press held every slot in every lane, whether or not it masks some"),
        ("unlike", "no lane of an arm evicted anything, and it stores its slots or was asked otherwise"),
    ):
        found, named = 0, dict[str, None]()
        for one in contrasts:
            held = [
                arm
                for arm in (one["subject"], one["against"])
                if (one["model"], one["task"], one["budget"], arm) in idle
                and ("press" if arm in presses else "unlike" if arm in unlike else "") == kind
            ]
            found += bool(held)
            named |= {f"{arm} at {one['budget']} ({one['model']} {one['task']})": None for arm in held}
        if found:
            about = {"press": "their registered budget", "unlike": "what is evicted"}.get(
                kind, "the policies"
            )
            where = f"{found} of {len(contrasts)} contrasts, where {what}"
            sentences.append(f"Anything about {about} in {where}: {listed(named)}.")
    return sentences


def _same_kept(lock: Mapping[str, Any]) -> list[str]:
    """Return sentences about compared arms that retained the same slots when the study was locked."""
    content = lock["protocol"]["content"]
    decision = content["decision"]
    compared = [*itertools.chain(*sides(decision)), *decision.get("beside", [])]
    if (sweep := content.get("sweep")) and sweep["name"] in compared:
        compared += sweep["candidates"]
    return same_kept.words(lock.get("checks", {}).get("same_kept"), compared)


def _shortfalls(judged: Mapping[str, Any], lock: Mapping[str, Any]) -> list[str]:
    contrasts, missing = judged["contrasts"], judged["missing"]
    decisive = _decisive(missing)
    chosen = judged["selected"]["arm"] if "selected" in judged else None
    apart = [f"A difference that the cache alone makes: {said}." for said in arms.apart(lock, chosen)]
    sentences, says = [*_deviation(judged, lock), *_gate(judged), *apart], headline.says(judged)
    if decisive:
        what = "have no grade" if missing["rule"] == "inconclusive" else "were never run"
        sentences.append(
            f"The registered question: {decisive} of {missing['registered']} lanes {what}, "
            "and the registered rule then answers INCONCLUSIVE."
        )
    elif says == INCONCLUSIVE:
        sentences.append("Equality: INCONCLUSIVE says that this study could not tell.")
    if says == CONFIRMED:
        sentences += rules.RULES[judged["rule"]].words.limits(judged)
    if wrong := missing["lanes"] - decisive:
        sentences.append(
            f"What {wrong} of {missing['registered']} lanes would have answered: they ended without a grade "
            "and count as not correct, as registered; caches are compared on the problems whose every lane "
            "was measured."
        )
    if judged["gate"] is None:
        sentences.append("That the full cache can do the task: this study registers no gate.")
    if missing.get("owed"):
        sentences.append(
            "The registered question: it is answered only if the lanes that a comparator ended without a "
            "grade are not correct. With them correct the rule does not confirm, so that it is left open."
        )
    sentences += _uneven(missing)
    few = [contrast(one) for one in contrasts if one["difference"] is None]
    if few:
        sentences.append(
            f"Anything in {len(few)} of {len(contrasts)} contrasts, where fewer than two problems could be "
            f"compared: {listed(few)}."
        )
    decision = lock["protocol"]["content"]["decision"]
    unmatched = [contrast(one) for one in contrasts if not one["matched"] and one["difference"] is not None]
    if against_full(decision):
        sentences += _beside_full(decision, unmatched, len(contrasts))
        sentences += memory_sentences.unsaved(contrasts)
    else:
        if unmatched:
            tolerance = short(decision["cache_tolerance"])
            sentences.append(
                f"Anything at equal memory in {len(unmatched)} of {len(contrasts)} contrasts, whose caches "
                f"were not matched within {tolerance}: {listed(unmatched)}."
            )
        sentences += memory_sentences.unequal(contrasts)
    if scored := sorted({one["task"] for one in contrasts if "scored" in one}):
        sentences.append(
            f"That more answers are right: those of {listed(scored)} have scores from 0 to 1, and their "
            "means are compared."
        )
    if judged["label"] == "screening-grade":
        size = headline.fewest(contrasts)[1]
        sentences.append(
            f"A confirmation or a refutation: {size}; effects below 200 problems often shrink or flip."
        )
    return sentences


def _beside_full(decision: Mapping[str, Any], unsaved: Sequence[str], contrasts: int) -> list[str]:
    """Return limits against the full cache. unsaved: contrasts whose subject saves no memory."""
    sentences = []
    if unsaved:
        sentences.append(
            f"Anything about eviction in {len(unsaved)} of {contrasts} contrasts, where the full cache held "
            f"at most {100 * float(decision['cache_tolerance']):g} % more: what evicts nothing loses nothing "
            f"({listed(unsaved)})."
        )
    return [
        *sentences,
        "Anything at equal memory: the comparator is the full cache, and no other policy at the memory of "
        f"{decision['subject']} is in the rule.",
    ]


def _gate(judged: Mapping[str, Any]) -> list[str]:
    if judged["gate"] is None or judged["gate"]["passed"]:
        return []
    return [f"Anything about the policies, since the study is {full_cache.word(judged)}."]


def _uneven(missing: Mapping[str, Any]) -> list[str]:
    """Return a sentence about lanes missing not at random: problems that one arm lost and another answered.
    """
    rows = missing["uneven"]
    if not rows:
        return []
    named = listed(
        f"{one['arm']} in {one['problems']} of {one['of']} problems ({one['model']} {one['task']} at "
        f"{one['budget']})"
        for one in rows
    )
    return [
        "That lanes are missing by chance: some ended without a grade where another arm of the same model, "
        f"task and budget has one: {named}."
    ]


def _deviation(judged: Mapping[str, Any], lock: Mapping[str, Any]) -> list[str]:
    amends = lock.get("amends")
    if amends is None or not amends["after_claim"]:
        return []
    return [
        f"The registered question: this lock amends {amends['name']} ({amends['lock'][:12]}) after its "
        f"claim, when held-out answers could be known. The rule alone says {judged['rule_says']}."
    ]


def _decisive(missing: Mapping[str, Any]) -> int:
    """Return how many lanes without a grade make the verdict INCONCLUSIVE."""
    if missing["rule"] == "inconclusive":
        return int(missing["lanes"])
    return sum(one["lanes"] for one in missing["cells"] if one["ended"] == NOT_RUN)


def _choices(judged: Mapping[str, Any], lock: Mapping[str, Any]) -> list[str]:
    content = lock["protocol"]["content"]
    sentences = []
    out = [one for one in judged.get("excluded", []) if one["problems"]]
    if out:
        counts = listed(
            f"{one['problems']} of {one['of']} problems of {one['task']} on {one['model']}" for one in out
        )
        longest = content["exclude"]["prompt_tokens_above"]
        sentences.append(f"Prompts above {longest} tokens: the registered exclusion left out {counts}.")
    if "selected" in judged:
        others = [name for name in content["sweep"]["candidates"] if name != judged["selected"]["arm"]]
        sentences.append(
            f"Anything about {listed(others)}: {judged['selected']['arm']} alone was confirmed, chosen on "
            "the development problems."
        )
    if "beside" in judged:
        named = listed(content["decision"]["beside"])
        sentences.append(f"Anything registered about {named}: these contrasts are outside the rule.")
    return sentences


def _whose(content: Mapping[str, Any]) -> str:
    """Say whose implementation the arms ran."""
    presses = [name for name, arm in content["arms"].items() if "press" in arm]
    if not presses:
        return "these are this project's implementations"
    ours = "" if len(presses) == len(content["arms"]) else ", the others this project's implementations"
    return f"{listed(presses)} ran kvpress' code on the prompt{ours}"


def _scope(lock: Mapping[str, Any]) -> list[str]:
    content = lock["protocol"]["content"]
    generation = content["generation"]
    greedy = float(generation["temperature"]) == 0
    sampling = "greedy" if greedy else f"temperature {generation['temperature']}"
    if "top_p" in generation:
        sampling += f", top-p {generation['top_p']}"
    generated = "" if lock["data"] else ", and its problems are generated text"
    tasks = [task["name"] for task in content["tasks"]]
    return [
        f"Other models or sizes: only {listed(content['models'])} ran.",
        f"Other tasks: only {listed(tasks)} ran{generated}.",
        f"Other budgets or decoding: only {listed(content['budgets'])}, {sampling}, {generation['dtype']}.",
        "Lower peak memory: every arm holds its whole prompt until its event; slots count from then on.",
        f"The policies as their authors published them: {_whose(content)}.",
        *(f"Other policies of the same name: {said}." for said in namesakes.words(lock)),
        _seeds(content),
        "Order in time: this judgement rests on no outside witness; anchors, where there are any, stand "
        "beside it (python -m protocol.audit).",
    ]


def _seeds(content: Mapping[str, Any]) -> str:
    if "randomness" in content:
        source = SOURCES[content["randomness"]["source"]]
        return (
            "Freedom from the author's choices: seeds and generated problems derive from the lock and "
            f"{source}, as the claim records; all else is author-chosen."
        )
    seeds = listed(str(seed) for seed in content["seeds"])
    return f"Freedom from the author's choices: the seeds ({seeds}) are author-chosen."
