"""Differences, value by value, between a lock and what is derived again from its sources."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from protocol.evidence.lock import lock
from protocol.evidence.refusals import Tampered

__all__ = ["between", "refuse", "shown"]

MOST = 3  # differences named in a refusal
LONG = 60  # characters of a printed value
FEW = 8  # entries of a printed list


def between(locked: Any, due: Any, at: str = "") -> list[str]:
    """Return one line for each path whose locked value differs from the expected one, with both values.

    Mappings are compared by key, lists of equal length by index; for lists of unequal length only the lengths
    are reported. path: where both values are.
    """
    if isinstance(locked, Mapping) and isinstance(due, Mapping):
        lines = []
        for name in sorted(locked.keys() | due.keys(), key=str):
            place = f"{at}.{_name(name)}" if at else _name(name)
            if name not in locked:
                lines.append(f"{place}: missing, it has to be {shown(due[name])}")
            elif name not in due:
                lines.append(f"{place}: {shown(locked[name])}, where nothing belongs")
            else:
                lines += between(locked[name], due[name], place)
        return lines
    if _listed(locked) and _listed(due):
        if len(locked) != len(due):
            return [f"{at}: {len(locked)} entries, there have to be {len(due)}{_first(locked, due)}"]
        pairs = enumerate(zip(locked, due, strict=True))
        return [line for place, (one, other) in pairs for line in between(one, other, f"{at}[{place}]")]
    same = type(locked) is type(due) and locked == due  # 1 is not true
    return [] if same else [f"{at}: {shown(locked)}, it has to be {shown(due)}"]


def refuse(lines: Sequence[str], fix: str = "") -> None:
    """Raise Tampered with the first differences and their number, if there are any."""
    if lines:
        more = f" (and {len(lines) - MOST} more)" if len(lines) > MOST else ""
        raise Tampered(f"{lock.NAME}: {'; '.join(lines[:MOST])}{more}{fix}")


def shown(value: Any) -> str:
    """Return a value in a few printable characters."""
    if isinstance(value, Mapping):
        return f"a table of {len(value)}"
    if _listed(value) and len(value) > FEW:
        return f"a list of {len(value)}"
    text = "null" if value is None else ascii(value)
    return text if len(text) <= LONG else f"{text[: LONG - 3]}..."


def _first(locked: Sequence[Any], due: Sequence[Any]) -> str:
    """Describe the first value that only one of two lists has."""
    for some, others, words in ((due, locked, "without"), (locked, due, "with")):
        if (extra := _without(some, others)) is not None:
            return f"; it is {words} {shown(extra)}"
    return ""


def _without(some: Iterable[Any], others: Sequence[Any]) -> Any:
    known = set(map(repr, others))
    return next((one for one in some if repr(one) not in known), None)


def _listed(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _name(name: Any) -> str:
    text = str(name)
    return text if text.isascii() and text.isprintable() else ascii(text)
