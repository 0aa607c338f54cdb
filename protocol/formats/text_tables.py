"""Derived results as output: aligned columns for people, plain values for canonical JSON."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from protocol.formats.json_text import format_decimal

__all__ = ["format_columns", "format_points", "to_plain", "wrap_paragraph"]

WIDTH = 110


def to_plain(value: Any) -> Any:
    """Return JSON values: decimals as text, named tuples as objects, None for a NaN."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {name: to_plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return format_decimal(value) if isinstance(value, float) else value


def format_points(value: float) -> str:
    """Format accuracy points as signed percentage points with one digit; zero has no sign."""
    text = f"{100 * value:+.1f}"
    return "0.0" if float(text) == 0 else text


def format_columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Format rows under a head, one line each, every column as wide as its widest cell."""
    cells = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


def wrap_paragraph(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH)
