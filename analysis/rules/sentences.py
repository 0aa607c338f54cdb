"""Parts of sentences that several rules use, and sentences about significant differences."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from analysis.rules.judged_numbers import decisive_p, format_decisive_interval, format_interval, format_p, format_points
from analysis.stats.methods import METHODS
from protocol.formats.vocabulary import BYTES_OF

Row: TypeAlias = Mapping[str, Any]  # a judgement, or a row of it
AGREED = "agreed with the full cache, on its text, significantly"
PART_PHRASES = {"model": "on {}", "task": "on {}", "budget": "at budget {}", "against": "against {}"}


def significance_sentences(judged: Mapping[str, Any]) -> list[str]:
    """Return sentences that list the contrasts that differ significantly from zero."""
    contrasts, subject = judged["contrasts"], judged["contrasts"][0]["subject"]
    how = f"{judged['method']}, level {strip_zeros(judged['alpha'])}"
    how += ", simultaneous" if METHODS[judged["method"]].family else ", Bonferroni"
    facts = []
    for phrases, key in (
        (("was significantly more accurate", "scored significantly higher", f"{AGREED} more"), "better"),
        (("was significantly less accurate", "scored significantly lower", f"{AGREED} less"), "worse"),
    ):
        for phrase, scored in zip(phrases, (False, True, "agreement"), strict=True):
            named = [contrast_name(row) for row in contrasts if row[key] and row.get("scored", False) == scored]
            if named:
                where = f"{len(named)} of {len(contrasts)} contrasts ({how}): {list_first(named)}"
                facts.append(f"{subject} {phrase} in {where}.")
    return facts


def uninformative_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the contrasts of a judgement that are below the floor, so that they decide nothing."""
    return [row for row in rows if row.get("floor", {}).get("uninformative")]


def evidence_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the contrasts of a judgement that say anything about the policies."""
    return [row for row in rows if row["matched"] and not uninformative_rows([row])]


def describe_uninformative(contrasts: Sequence[Row]) -> str:
    """Return how many contrasts decide nothing and why the first does not; empty if all are informative."""
    if not (rows := uninformative_rows(contrasts)):
        return ""
    first = f"{contrast_name(rows[0])}, {rows[0]['floor']['uninformative']}"
    return f"{len(rows)} of {count_contrasts(contrasts)} {'says' if len(rows) == 1 else 'say'} nothing: {first}"


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
    lists the tasks whose answers have scores; with `outcome`, if one is registered.
    """
    others = ", ".join(decision["against"])
    if checks.get("outcome"):
        return f"agrees more with the full cache, on its text, than {others}"
    if checks.get("scored"):
        return f"has a higher mean score on the held-out problems than {others}"
    return f"answers more of the held-out problems correctly than {others}"


def difference_of(contrast: Row) -> float:
    return float(contrast["difference"])


def format_estimate(contrast: Row) -> str:
    return f"{format_points(contrast['difference'])} points {format_decisive_interval(contrast)}"


def format_contrast(judged: Row, contrast: Row, stated_part: str = "") -> str:
    """Format a contrast. stated_part: a part of its name that the text already stated."""
    location = format_location(judged, contrast, stated_part)
    return f"{format_estimate(contrast)}, {format_p_value(decisive_p(contrast))}{location}"


def format_limits(judged: Row, contrast: Row, stated_part: str = "") -> str:
    """Format a contrast with the limits that are compared with the margin."""
    limits = format_interval(contrast["low_margin"], contrast["high_margin"])
    location = format_location(judged, contrast, stated_part)
    return f"{format_points(contrast['difference'])} points, limits {limits}{location}"


def format_location(judged: Row, contrast: Row, stated_part: str = "") -> str:
    """Return what distinguishes this contrast from the others of the family."""
    names = [name for name in PART_PHRASES if len({row[name] for row in judged["contrasts"]}) > 1]
    phrases = [_format_part(name, contrast[name]) for name in names if name != stated_part]
    return f" ({' '.join(phrases)})" if phrases else ""


def _format_part(part: str, name: str) -> str:
    if part == "budget" and name.startswith(BYTES_OF):
        return f"at the {name} slots"
    return PART_PHRASES[part].format(name)


def format_comparator(judged: Row, word: str = "than") -> str:
    """Name the comparator, if there is only one."""
    against = {contrast["against"] for contrast in judged["contrasts"]}
    return f" {word} {against.pop()}" if len(against) == 1 else ""


def count_contrasts(contrasts: Sequence[Row]) -> str:
    return "1 contrast" if len(contrasts) == 1 else f"{len(contrasts)} contrasts"


def format_p_value(decimal: str) -> str:
    text = format_p(decimal)
    return f"p {text[0]} {text[1:]}" if text.startswith("<") else f"p = {text}"
