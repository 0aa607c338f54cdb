"""How judged numbers are printed, alike in every table and drawing: differences in pp, p with four digits."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from analysis.rules import RULES
from analysis.stats.methods import METHODS

__all__ = [
    "GRADES",
    "WITNESS",
    "correction",
    "interval",
    "letters",
    "level",
    "outcome",
    "p_value",
    "points",
    "verdict_line",
]


WITNESS = "UNANCHORED"  # what every verdict line says until proofs of outside witnesses were verified
# label of a verdict -> problems of its contrasts: some have fewer than 200, or none has
GRADES: Mapping[str, str] = MappingProxyType({"screening-grade": "n < 200", "confirmatory-grade": "n ≥ 200"})


def points(decimal: str) -> str:
    """Accuracy points as signed percentage points, one digit; zero has no sign."""
    text = f"{100 * float(decimal):+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


def interval(low: str, high: str) -> str:
    return f"[{points(low)}, {points(high)}]"


def p_value(decimal: str) -> str:
    return "<0.0001" if float(decimal) < 0.0001 else f"{float(decimal):.4f}"


def level(decimal: str) -> str:
    return f"{float(decimal):.5f}".rstrip("0")


def correction(method: str, family: Mapping[str, Any]) -> str:
    """How a judged family is corrected, and the level that its p are compared with."""
    if METHODS[method].family:
        return f"{method} {level(family['alpha'])}"
    return f"Bonferroni {level(family['corrected_alpha'])}"


def letters(judged: Mapping[str, Any]) -> str:
    """What the rule tells finer than its verdict, after a space; of most rules nothing."""
    told = RULES[judged["rule"]].words.letters(judged)
    return f" ({', '.join(told)})" if told else ""


def outcome(judged: Mapping[str, Any]) -> str:
    """The verdict, the size of its contrasts and its witness. judged: as `page.judged` gives it."""
    grade = GRADES.get(judged["label"], judged["label"])
    return f"{judged['verdict']}{letters(judged)}, {grade}, {judged['witness']}"


def verdict_line(judged: Mapping[str, Any]) -> str:
    """Rule, method and levels of a judgement."""
    method, alpha = judged["method"], f"alpha {level(judged['alpha'])}"
    if not METHODS[method].family:
        alpha += f" ({correction(method, judged)})"
    return f"rule {judged['rule']}: {RULES[judged['rule']].words.line(judged)}; {method}, {alpha}"
