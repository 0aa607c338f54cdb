"""The verdict line of a study: what was decided, or that nothing was, and for which model."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from analysis.rules.verdicts import REFUTED
from analysis.stats.methods import format_clusters

SCREENED = "SCREENED"  # the verdict of a study with a contrast below 200 problems
REUSED = "RE-USED"  # the verdict of a study that decides on held-out problems that were opened before
UNWITNESSED = "UNWITNESSED"  # the qualifier of CONFIRMED without a verified witness that the lock came first
IN_BRACKETS = f" ({UNWITNESSED})"


def rule_verdict(judged: Mapping[str, Any]) -> str:
    """Return the verdict of the rule, even if the study only screens."""
    return str(judged.get("rule_says", judged["verdict"]))


def printed_rule_verdict(judged: Mapping[str, Any]) -> str | None:
    """Return `rule_verdict`; None for a screening, beside which no other verdict is printed."""
    is_screening = judged["verdict"] == SCREENED and not is_judged_as_shipped(judged)
    return None if is_screening else rule_verdict(judged)


def verdict_word(judged: Mapping[str, Any]) -> str:
    """Return the verdict as a word alone: CONFIRMED (UNWITNESSED) until a witness was verified (`witnessed`)."""
    has_witness = all(qualifier["word"] != UNWITNESSED for qualifier in judged.get("qualifiers", []))
    return str(judged["verdict"]) if has_witness else f"{judged['verdict']}{IN_BRACKETS}"


def sound_word(judged: Mapping[str, Any]) -> str:
    """Return the word of the sound method beside a published one, which needs a witness as that of a study does."""
    word = str(judged["sound"]["verdict"])
    is_unwitnessed = any(f"{word}{IN_BRACKETS}" in qualifier["word"] for qualifier in judged.get("qualifiers", []))
    return f"{word}{IN_BRACKETS}" if is_unwitnessed else word


def witnessed(judged: Mapping[str, Any]) -> dict[str, Any]:
    """Return the judgement as it reads where a witness was verified: without UNWITNESSED."""
    kept = [
        {key: text.replace(IN_BRACKETS, "") for key, text in qualifier.items()}
        for qualifier in judged.get("qualifiers", [])
        if qualifier["word"] != UNWITNESSED
    ]
    return {**judged, "qualifiers": kept} if "qualifiers" in judged else dict(judged)


def format_verdict(judged: Mapping[str, Any], letters: str = "") -> str:
    """Format the verdict of a study with its qualifiers, e.g. "CONFIRMED [REPRODUCTION]". letters: a finer
    result of the rule, after a space. RE-USED prints no other word of the rule.

    Verdicts from before the word SCREENED existed are printed as they were given.
    """
    verdict = str(judged["verdict"])
    in_word = (verdict, UNWITNESSED)
    words = "; ".join(
        qualifier["word"] for qualifier in judged.get("qualifiers", []) if qualifier["word"] not in in_word
    )
    qualified = f" [{words}]" if words else ""
    if verdict == REUSED:
        return f"{verdict}{qualified}"
    if verdict != SCREENED:
        return f"{verdict_word(judged)}{_format_refuting(judged)}{letters}{qualified}"
    size_text = smallest_contrast(judged["contrasts"])[1]
    if not is_judged_as_shipped(judged):
        return f"{verdict} ({size_text} decides nothing){qualified}"
    return f"{verdict} (the rule says {rule_verdict(judged)}{letters}; {size_text} decides nothing){qualified}"


def _format_refuting(judged: Mapping[str, Any]) -> str:
    """Return how many contrasts refute a REFUTED study, if there are several and each of these does for itself."""
    if judged["verdict"] != REFUTED or not judged.get("refuted_by") or len(judged["contrasts"]) == 1:
        return ""
    return f" by {judged['refuted_by']} of {len(judged['contrasts'])} contrasts"


def is_judged_as_shipped(judged: Mapping[str, Any]) -> bool:
    """Return whether a judgement is by the rules of the studies that ship with this project, which no qualifier
    and no population existed for.
    """
    return "qualifiers" not in judged


def list_remarks(judged: Mapping[str, Any]) -> list[str]:
    """Return the lines that follow the verdict line: the population, where looks ended, and why each qualifier holds.

    Studies that ship with this project were judged before either existed, and have none.
    """
    population = [f"population: {judged['population']}"] if "population" in judged else []
    looks = [f"looks: {describe_stop(judged['looks'])}"] if "looks" in judged else []
    return (
        population + looks + [f"{qualifier['word']}: {qualifier['text']}" for qualifier in judged.get("qualifiers", [])]
    )


def describe_stop(looks: Mapping[str, Any]) -> str:
    """Return where a study with registered looks ended, and why. looks: the field of its judgement."""
    registered, number = looks["problems"], looks["at"]
    seen = f"look {number} of {len(registered)}, with {registered[number - 1]} of {registered[-1]} problems per task"
    if "deviation" in looks:
        return f"judged at {seen}: {looks['deviation']}"
    return f"ended at {seen}" if number == len(registered) else f"stopped at {seen}, for {looks['reason']}"


def smallest_contrast(contrasts: Sequence[Mapping[str, Any]]) -> tuple[int, str]:
    """Return the smallest number of problems of a contrast, or of clusters if its task has some, and its
    text.

    Clusters of unequal sizes count as their effective number (`stats.methods.effective`).
    """
    return min((_contrast_size(contrast) for contrast in contrasts), key=itemgetter(0))


def _contrast_size(contrast: Mapping[str, Any]) -> tuple[int, str]:
    if "clusters" not in contrast:
        return contrast["n"], f"n = {contrast['n']}"
    clusters = contrast["clusters"]
    effective = contrast.get("effective_clusters", clusters)
    return effective, f"n = {format_clusters(clusters, effective)}"


def format_single_model(judged: Mapping[str, Any]) -> str:
    """Return "for MODEL alone" if one model ran; else ""."""
    models = {str(contrast["model"]) for contrast in judged.get("contrasts", [])}
    return f"for {models.pop()} alone" if len(models) == 1 else ""


def format_line(judged: Mapping[str, Any], fault: str = "", letters: str = "") -> str:
    """Format the verdict line: the verdict, its only model if there is one, and a `fault` of the gate."""
    text = f"{format_verdict(judged, letters)} {format_single_model(judged)}".rstrip()
    return f"{text}, {fault}" if fault else text
