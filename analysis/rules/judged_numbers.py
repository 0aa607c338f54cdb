"""Formatting of judged numbers: differences in percentage points, p with four digits."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any


def format_points(decimal: str) -> str:
    """Format accuracy points as signed percentage points, one digit; zero has no sign."""
    text = f"{100 * float(decimal):+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


def format_share(share: Fraction | float) -> str:
    """Format a share as per cent, with at most one digit after the point."""
    return f"{100 * float(share):.1f}".removesuffix(".0") + " %"


def format_whole_percent(share: str) -> str:
    return f"{100 * float(share):.0f} %"


def format_interval(low: str, high: str) -> str:
    return f"[{format_points(low)}, {format_points(high)}]"


def has_decisive_numbers(contrast: Mapping[str, Any]) -> bool:
    """Return whether a judged contrast says which p decides. Tables then print that p and the simultaneous interval;
    of studies that ship with this project they print the p and the interval of the contrast alone.
    """
    return "p_decisive" in contrast


def decisive_p(contrast: Mapping[str, Any]) -> str:
    return str(contrast["p_decisive" if has_decisive_numbers(contrast) else "p"])


def decisive_ends(contrast: Mapping[str, Any]) -> tuple[float, float]:
    low, high = _decisive_limits(contrast)
    return float(low), float(high)


def format_decisive_interval(contrast: Mapping[str, Any]) -> str:
    return format_interval(*_decisive_limits(contrast))


def _decisive_limits(contrast: Mapping[str, Any]) -> tuple[str, str]:
    suffix = "_simultaneous" if has_decisive_numbers(contrast) else ""
    return contrast[f"low{suffix}"], contrast[f"high{suffix}"]


def format_p(decimal: str) -> str:
    return "<0.0001" if float(decimal) < 0.0001 else f"{float(decimal):.4f}"


def format_level(decimal: str) -> str:
    return f"{float(decimal):.5f}".rstrip("0")
