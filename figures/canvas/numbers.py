"""Formatting of judged numbers, equal in every table and drawing: differences in pp, p with four digits."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from analysis.output import headline
from analysis.rules import RULES, full_cache
from analysis.stats.methods import METHODS

__all__ = [
    "GRADES",
    "WITNESS",
    "charge",
    "correction",
    "grade",
    "interval",
    "letters",
    "level",
    "matched_by",
    "outcome",
    "p_value",
    "points",
    "scores",
    "size",
    "verdict_line",
    "word",
]


WITNESS = "UNANCHORED"  # in every verdict line until proofs of external witnesses are verified
# prefix of a verdict's label -> sample sizes: some contrast has fewer than 200 problems, or none has
GRADES: Mapping[str, str] = MappingProxyType(
    {"screening-grade": "n < 200", "confirmatory-grade": "n ≥ 200", "uninformative": "n ≥ 200"}
)


def size(contrast: Mapping[str, Any]) -> str:
    """Return the number of problems and, if they are clustered, of clusters: "120/24"."""
    return "/".join(str(contrast[name]) for name in ("n", "clusters") if name in contrast)


def scores(contrasts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return notes on contrasts with scores or clusters; none for right and wrong answers alone."""
    every, said = list(contrasts), []
    if any("scored" in one for one in every):
        said.append(
            "Accuracy is the mean score, from 0 to 1; gains and losses are answers that score higher, or "
            "lower."
        )
    if any("clusters" in one for one in every):
        said.append("n: problems/clusters. Intervals and p resample whole clusters.")
    if uneven := [one for one in every if "effective_clusters" in one]:
        least = min(one["effective_clusters"] for one in uneven)
        said.append(f"Clusters differ in size; the fewest weigh as {least} of one size.")
    return said


def matched_by(contrasts: Iterable[Mapping[str, Any]]) -> str:
    """Return the registered basis of memory matching: "slots", "bytes" or "total"; slots if none was
    registered.
    """
    told = ((one.get("memory") or {}).get("by") for one in contrasts)
    return str(next(filter(None, told), "slots"))


def points(decimal: str) -> str:
    """Format accuracy points as signed percentage points, one digit; zero has no sign."""
    text = f"{100 * float(decimal):+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


def charge(contrast: Mapping[str, Any]) -> str:
    """Return the points charged for a memory difference of the subject, gained (+) or lost (-); empty for
    none. "all" if the value of memory is unknown.
    """
    memory = contrast.get("memory")
    if memory is None or not contrast["matched"] or float(memory["excess"]) == 0:
        return ""
    return "all" if memory["charge"] is None else points(memory["charge"])


def interval(low: str, high: str) -> str:
    return f"[{points(low)}, {points(high)}]"


def p_value(decimal: str) -> str:
    return "<0.0001" if float(decimal) < 0.0001 else f"{float(decimal):.4f}"


def level(decimal: str) -> str:
    return f"{float(decimal):.5f}".rstrip("0")


def correction(method: str, family: Mapping[str, Any]) -> str:
    """Return how a judged family is corrected, and the level that its p values are compared with."""
    if METHODS[method].family:
        return f"{method} {level(family['alpha'])}"
    return f"Bonferroni {level(family['corrected_alpha'])}"


def letters(judged: Mapping[str, Any]) -> str:
    """Return details of the rule beyond its verdict, after a space; empty for most rules."""
    rule = RULES.get(judged.get("rule", ""))  # None for an index over unverified files
    told = () if rule is None else rule.words.letters(judged)
    return f" ({', '.join(told)})" if told else ""


def grade(label: str) -> str:
    """Return the sample sizes that the label of a verdict states; an unknown label unchanged."""
    return next((words for begins, words in GRADES.items() if label.startswith(begins)), label)


def word(judged: Mapping[str, Any]) -> str:
    """Return the verdict with its caveats: those of a screening, the single model that it covers, and a full
    cache that failed its gate. An old verdict without gates mentions none.
    """
    return headline.line(judged, full_cache.fault(judged).partition(":")[0], letters(judged))


def outcome(judged: Mapping[str, Any]) -> str:
    """Return the verdict, the size of its contrasts and its witness. judged: as from `page.read_judged`."""
    return f"{word(judged)}, {grade(judged['label'])}, {judged['witness']}"


def verdict_line(judged: Mapping[str, Any]) -> str:
    """Return rule, method and levels of a judgement."""
    method, alpha = judged["method"], f"alpha {level(judged['alpha'])}"
    if not METHODS[method].family:
        alpha += f" ({correction(method, judged)})"
    idle = ", which decides nothing here" if judged["verdict"] != headline.says(judged) else ""
    return f"rule {judged['rule']}{idle}: {RULES[judged['rule']].words.line(judged)}; {method}, {alpha}"
