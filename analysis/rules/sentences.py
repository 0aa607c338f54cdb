"""Parts of sentences that several rules use, and sentences about significant differences."""

from collections.abc import Iterable, Mapping
from typing import Any

from analysis.stats.methods import METHODS

__all__ = ["accuracy_clause", "contrast_name", "list_first", "significance_sentences", "strip_zeros"]


def significance_sentences(judged: Mapping[str, Any]) -> list[str]:
    """Return sentences that list the contrasts that differ significantly from zero."""
    contrasts, subject = judged["contrasts"], judged["contrasts"][0]["subject"]
    how = f"{judged['method']}, level {strip_zeros(judged['alpha'])}"
    how += ", simultaneous" if METHODS[judged["method"]].family else ", Bonferroni"
    facts = []
    for phrases, key in (
        (("more accurate", "scored significantly higher"), "better"),
        (("less accurate", "scored significantly lower"), "worse"),
    ):
        for phrase, scored in ((f"was significantly {phrases[0]}", False), (phrases[1], True)):
            named = [contrast_name(row) for row in contrasts if row[key] and ("scored" in row) == scored]
            if named:
                where = f"{len(named)} of {len(contrasts)} contrasts ({how}): {list_first(named)}"
                facts.append(f"{subject} {phrase} in {where}.")
    return facts


def contrast_name(row: Mapping[str, Any]) -> str:
    return f"{row['model']} {row['task']} at {row['budget']} against {row['against']}"


def list_first(items: Iterable[str]) -> str:
    """Join the first four items and say how many more there are."""
    named = list(items)
    return "; ".join(named[:4]) + (f"; and {len(named) - 4} more" if len(named) > 4 else "")


def strip_zeros(decimal: str) -> str:
    return decimal.rstrip("0").rstrip(".") if "." in decimal else decimal


def accuracy_clause(decision: Mapping[str, Any], checks: Mapping[str, Any]) -> str:
    """Return the clause that the subject is more accurate than its comparators. checks: of the lock, which
    lists the tasks whose answers have scores.
    """
    others = ", ".join(decision["against"])
    if checks.get("scored"):
        return f"has a higher mean score on the held-out problems than {others}"
    return f"answers more of the held-out problems correctly than {others}"
