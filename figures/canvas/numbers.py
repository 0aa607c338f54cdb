"""How judged numbers are printed, alike in every table and drawing: differences in pp, p with four digits."""

from collections.abc import Mapping
from typing import Any

__all__ = ["interval", "level", "outcome", "p_value", "points", "verdict_line"]


WITNESS = "UNANCHORED"  # what every verdict line says until proofs of outside witnesses were verified


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


def outcome(judged: Mapping[str, Any]) -> str:
    """The verdict with both letters of the branch table, and its grade."""
    branch = judged["branch"]
    letters = f" (branch {branch['registered']}; symmetric {branch['symmetric']})" if branch else ""
    return f"{judged['verdict']}{letters}, {judged['label']}, {WITNESS}"


def verdict_line(judged: Mapping[str, Any]) -> str:
    """Rule, method and levels of a judgement."""
    family, subject = judged["family"], judged["contrasts"][0]["subject"]
    margin = points(judged.get("margin", "0"))[1:]
    rule = {
        "superior": f"{subject} better in at least {judged['at_least']} of {family} contrasts, worse in none",
        "branch": f"branch table over {family} contrasts of {subject}",
        "equivalent": f"{subject} within {margin} pp in all {family} contrasts",
        "non_inferior": f"{subject} worse by less than {margin} pp in all {family} contrasts",
    }[judged["rule"]]
    alpha = f"alpha {level(judged['alpha'])}"
    if judged["method"] != "max-t":
        alpha += f" (Bonferroni {level(judged['corrected_alpha'])})"
    return f"rule {judged['rule']}: {rule}; {judged['method']}, {alpha}"
