"""Derived results as output: aligned columns for people, plain values for canonical JSON."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis.output.printed import decimal

__all__ = ["columns", "paragraph", "plain", "points"]

WIDTH = 110


def plain(value: Any) -> Any:
    """Return JSON values: decimals as text, named tuples as objects, None for a NaN."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return decimal(value) if isinstance(value, float) else value


def points(value: float) -> str:
    """Format accuracy points as signed percentage points with one digit; zero has no sign."""
    text = f"{100 * value:+.1f}"
    return "0.0" if float(text) == 0 else text


def columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Format rows under a head, one line each, every column as wide as its widest cell."""
    cells = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


def paragraph(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH)
