"""The verdict line of a study: what was decided, or that nothing was, and for which model."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

__all__ = ["SCREENED", "alone", "fewest", "line", "says", "word"]

SCREENED = "SCREENED"  # the verdict of a study with a contrast below 200 problems


def says(judged: Mapping[str, Any]) -> str:
    """Return the verdict of the rule, even if the study only screens."""
    return str(judged.get("rule_says", judged["verdict"]))


def word(judged: Mapping[str, Any], letters: str = "") -> str:
    """Format the verdict of a study. letters: a finer result of the rule, after a space.

    Verdicts from before the word SCREENED existed are printed as they were given.
    """
    verdict = str(judged["verdict"])
    if verdict != SCREENED:
        return f"{verdict}{letters}"
    few = fewest(judged["contrasts"])[1]
    return f"{verdict} (the rule says {says(judged)}{letters}; {few} decides nothing)"


def fewest(contrasts: Sequence[Mapping[str, Any]]) -> tuple[int, str]:
    """Return the smallest number of problems of a contrast, or of clusters if its task has some, and its
    text.

    Clusters of unequal sizes count as their effective number (`stats.methods.effective`).
    """
    return min((_size(one) for one in contrasts), key=itemgetter(0))


def _size(contrast: Mapping[str, Any]) -> tuple[int, str]:
    if "clusters" not in contrast:
        return contrast["n"], f"n = {contrast['n']}"
    there = contrast["clusters"]
    weigh = contrast.get("effective_clusters", there)
    return weigh, f"clusters = {there}" if weigh == there else f"clusters = {there}, as {weigh} of one size"


def alone(judged: Mapping[str, Any]) -> str:
    """Return "for MODEL alone" if one model ran; else ""."""
    models = {str(one["model"]) for one in judged.get("contrasts", [])}
    return f"for {models.pop()} alone" if len(models) == 1 else ""


def line(judged: Mapping[str, Any], fault: str = "", letters: str = "") -> str:
    """Format the verdict line: the verdict, its only model if there is one, and a `fault` of the gate."""
    said = f"{word(judged, letters)} {alone(judged)}".rstrip()
    return f"{said}, {fault}" if fault else said
