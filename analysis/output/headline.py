"""The words of a verdict line: what was decided, or that nothing was, and for which model."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

__all__ = ["SCREENED", "alone", "fewest", "line", "says", "word"]

SCREENED = "SCREENED"  # the word of a study with a contrast below 200 problems


def says(judged: Mapping[str, Any]) -> str:
    """What the rule says, whatever the word of the study is."""
    return str(judged.get("rule_says", judged["verdict"]))


def word(judged: Mapping[str, Any], letters: str = "") -> str:
    """The verdict as it is printed. letters: what the rule tells finer, after a space.

    A verdict of before there was the word SCREENED is printed as it was given.
    """
    verdict = str(judged["verdict"])
    if verdict != SCREENED:
        return f"{verdict}{letters}"
    few = fewest(judged["contrasts"])[1]
    return f"{verdict} (the rule says {says(judged)}{letters}; {few} decides nothing)"


def fewest(contrasts: Sequence[Mapping[str, Any]]) -> tuple[int, str]:
    """The smallest number of problems of a contrast, or of clusters where its task has some; and in words.

    Clusters of unequal sizes count as so many of one size as weigh alike (`stats.methods.effective`).
    """
    return min((_size(one) for one in contrasts), key=itemgetter(0))


def _size(contrast: Mapping[str, Any]) -> tuple[int, str]:
    if "clusters" not in contrast:
        return contrast["n"], f"n = {contrast['n']}"
    there = contrast["clusters"]
    weigh = contrast.get("effective_clusters", there)
    return weigh, f"clusters = {there}" if weigh == there else f"clusters = {there}, as {weigh} of one size"


def alone(judged: Mapping[str, Any]) -> str:
    """ "for MODEL alone" where one model ran; else nothing."""
    models = {str(one["model"]) for one in judged.get("contrasts", [])}
    return f"for {models.pop()} alone" if len(models) == 1 else ""


def line(judged: Mapping[str, Any], fault: str = "", letters: str = "") -> str:
    """The verdict as it is printed: its word, the one model that it is about, and a `fault` of the gate."""
    said = f"{word(judged, letters)} {alone(judged)}".rstrip()
    return f"{said}, {fault}" if fault else said
