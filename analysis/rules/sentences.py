"""Pieces of sentences that several rules say, and what differences from zero prove."""

from collections.abc import Iterable, Mapping
from typing import Any

from analysis.stats.methods import METHODS

__all__ = ["contrast", "listed", "short", "significant"]


def significant(judged: Mapping[str, Any]) -> list[str]:
    """Which contrasts differ from zero."""
    contrasts, subject = judged["contrasts"], judged["contrasts"][0]["subject"]
    how = f"{judged['method']}, level {short(judged['alpha'])}"
    how += ", simultaneous" if METHODS[judged["method"]].family else ", Bonferroni"
    facts = []
    for word, key in (("more", "better"), ("less", "worse")):
        named = [contrast(row) for row in contrasts if row[key]]
        if named:
            facts.append(
                f"{subject} was significantly {word} accurate in {len(named)} of {len(contrasts)} contrasts "
                f"({how}): {listed(named)}."
            )
    return facts


def contrast(row: Mapping[str, Any]) -> str:
    return f"{row['model']} {row['task']} at {row['budget']} against {row['against']}"


def listed(words: Iterable[str]) -> str:
    """The first four and how many more there are."""
    named = list(words)
    return "; ".join(named[:4]) + (f"; and {len(named) - 4} more" if len(named) > 4 else "")


def short(decimal: str) -> str:
    return decimal.rstrip("0").rstrip(".") if "." in decimal else decimal
