"""Differences, value by value, between a lock and what is derived again from its sources."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from protocol.formats.refusals import Tampered
from protocol.lock import lock

MOST_NAMED = 3  # differences named in a refusal
MOST_CHARACTERS = 60  # characters of a printed value
MOST_ENTRIES = 8  # entries of a printed list


def diff_values(locked: Any, expected: Any, path: str = "") -> list[str]:
    """Return one line for each path whose locked value differs from the expected one, with both values.

    Mappings are compared by key, lists of equal length by index; for lists of unequal length only the lengths
    are reported. path: where both values are.
    """
    if isinstance(locked, Mapping) and isinstance(expected, Mapping):
        lines = []
        for name in sorted(locked.keys() | expected.keys(), key=str):
            key = f"{path}.{_format_key(name)}" if path else _format_key(name)
            if name not in locked:
                lines.append(f"{key}: missing; it must be {format_value(expected[name])}")
            elif name not in expected:
                lines.append(f"{key}: {format_value(locked[name])}, but this entry must be absent")
            else:
                lines += diff_values(locked[name], expected[name], key)
        return lines
    if _is_list(locked) and _is_list(expected):
        if len(locked) != len(expected):
            return [f"{path}: {len(locked)} entries, but there must be {len(expected)}{_first_extra(locked, expected)}"]
        pairs = enumerate(zip(locked, expected, strict=True))
        return [line for key, (left, right) in pairs for line in diff_values(left, right, f"{path}[{key}]")]
    same = type(locked) is type(expected) and locked == expected  # 1 is not true
    return [] if same else [f"{path}: {format_value(locked)}, but must be {format_value(expected)}"]


def refuse_differences(lines: Sequence[str], fix: str = "") -> None:
    """Raise Tampered with the first differences and their number, if there are any."""
    if lines:
        more = f" (and {len(lines) - MOST_NAMED} more)" if len(lines) > MOST_NAMED else ""
        raise Tampered(f"{lock.NAME}: {'; '.join(lines[:MOST_NAMED])}{more}{fix}")


def format_value(value: Any) -> str:
    """Return a value in a few printable characters."""
    if isinstance(value, Mapping):
        return f"a table of {len(value)}"
    if _is_list(value) and len(value) > MOST_ENTRIES:
        return f"a list of {len(value)}"
    text = "null" if value is None else ascii(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


def _first_extra(locked: Sequence[Any], expected: Sequence[Any]) -> str:
    """Describe the first value that only one of two lists has."""
    for some, others, preposition in ((expected, locked, "without"), (locked, expected, "with")):
        if (extra := _first_missing(some, others)) is not None:
            return f"; it is {preposition} {format_value(extra)}"
    return ""


def _first_missing(some: Iterable[Any], others: Sequence[Any]) -> Any:
    known = set(map(repr, others))
    return next((value for value in some if repr(value) not in known), None)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _format_key(name: Any) -> str:
    text = str(name)
    return text if text.isascii() and text.isprintable() else ascii(text)
