"""Derived results as output: aligned columns for people, plain values for canonical JSON."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from protocol.formats.json_text import format_decimal
from protocol.formats.terminal import line_width, shrink_columns, wrap_text


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


def format_count(number: int, noun: str = "time") -> str:
    """Return a count with its noun: `1 attempt`, `2 attempts`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Format rows under a head. Cells wrap between words where a row is wider than the terminal."""
    cells = [tuple(head), *(tuple(row) for row in rows)]
    widths = shrink_columns(cells, line_width())
    lines = []
    for row in cells:
        wrapped = [wrap_text(cell, max(1, width)) or [""] for cell, width in zip(row, widths, strict=True)]
        for parts in zip_longest(*wrapped, fillvalue=""):
            lines.append("  ".join(map(str.ljust, parts, widths)).rstrip())
    return lines


def wrap_paragraph(text: str) -> list[str]:
    return wrap_text(text)
