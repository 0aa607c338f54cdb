"""Locations of faults in protocol.toml: line numbers, and fields that are in the wrong table."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from protocol.evidence.bytes.fields import Fault, ListOf, Table
from protocol.plan.kinds import ByName

__all__ = ["elsewhere", "line", "no_toml"]

MOST_LINES = 1000  # of a file to search for a line; a protocol has about forty
TOP = "the top of the file, above all tables"
Keys = tuple["str | int", ...]


def line(text: str, fault: str) -> int | None:
    """Return the line of the field with which `fault` begins or, if it is absent, of the table that should
    have it. None if that is not certain.

    tomllib parses ever longer prefixes of the file: a field is on the line with which it first appears.
    """
    lines, document = text.split("\n"), tomllib.loads(text)
    keys = _keys(document, fault.partition(": ")[0])
    if not keys or len(lines) > MOST_LINES:
        return None
    first = 1
    for number in range(1, len(lines) + 1):
        try:
            part = tomllib.loads("\n".join(lines[:number]))
        except tomllib.TOMLDecodeError:  # the prefix ends inside a value
            continue
        if _has(part, keys):
            return first
        first = number + 1
    return None


def elsewhere(fault: Fault, document: Mapping[str, Any], design: Table) -> str | None:
    """Return the fix for a field that is missing or unknown because it is in the wrong table; else None."""
    if fault.unknown:
        own = _places(design, fault.unknown)
        at = fault.written.partition(": ")[0]
        place = TOP if TOP in own else " or ".join(own)
        return f"{at}: {fault.unknown} belongs {_in(place)}; move it there" if own else None
    wanted = fault.missing
    if not wanted:
        return None
    field = design.fields.get(wanted)
    if field is not None and isinstance(field.kind, Table) and _found(document, field.kind.needed[0], ""):
        inner = field.kind.needed[0]
        header = _found(document, inner, "")[0]
        if header not in _places(design, inner):
            return (
                f"{wanted}: missing; {inner} stands in {header}: write [{wanted}] on the line above {inner}"
            )
    here = _header(fault.written.partition(": ")[0].rpartition(".")[0])
    for header in _found(document, wanted, ""):
        if header != here and header not in _places(design, wanted):
            return f"{fault.written.partition(': ')[0]}: stands {_in(header)}; move it to {here}"
    return None


def no_toml(text: str, error: tomllib.TOMLDecodeError) -> str:
    """Explain a line that is no TOML, and how to fix it."""
    said = str(error)
    if text.lstrip().startswith("{"):
        return "is JSON, and a protocol is TOML; write name = value, one a line"
    at = re.search(r"line ([0-9]+)", said)
    lines = text.split("\n")
    number = int(at[1]) if at else len(lines)
    wrong = lines[number - 1].strip() if number <= len(lines) else ""
    shown = wrong if len(wrong) <= 60 else f"{wrong[:57]}..."
    fix = next((fix for pattern, fix in SLIPS if pattern.search(f"{said}\n{wrong}")), said)
    return f"line {number}: is no TOML: {shown or 'the end of the file'}; {fix}"


# Patterns in the message of tomllib followed by the line, and the fix for each.
SLIPS = (
    (re.compile(r"Cannot (overwrite|declare|mutate)|already"), "it stands twice; keep one of them"),
    (re.compile(r"\n[^=]*= *(True|False)\b"), "write true or false, in small letters"),
    (re.compile(r"\n[^=]*= *(None|null|nil)\b"), "leave the field out"),
    (re.compile(r"\n[^=]*= *-?[0-9]+,[0-9]"), "write a decimal with a point: 0.05"),
    (re.compile(r"\n[^=]*= *-?\.[0-9]"), "write a zero before the point: 0.05"),
    (re.compile(r"\n[^=]*= *[0-9.]+ *%"), "write a share without a percent sign: 0.05"),
    (re.compile(r"\n[^=]*= *$"), "write a value behind the ="),
    (re.compile(r"\n[^=\"']*: "), "write name = value, with = in the place of the colon"),
    (re.compile(r"\n[^\"]*\"[^\"]*$"), "close the quotes"),
    (re.compile(r"\n[^=]*= *[A-Za-z]"), "put text in quotes"),
    (
        re.compile(r"Illegal character|Unclosed array|Unclosed inline|end of document"),
        "close the bracket or the quotes",
    ),
    (re.compile(r"Expected '=' after a key"), "write name = value; a text of several words stands in quotes"),
)


def _keys(document: Any, path: str) -> Keys:
    """Return the longest prefix of a path such as tasks[0].name that exists, as keys."""
    keys: list[str | int] = []
    while path:
        if isinstance(document, list):
            index = re.match(r"\[([0-9]+)\]\.?", path)
            if index is None or int(index[1]) >= len(document):
                break
            keys.append(int(index[1]))
            document, path = document[int(index[1])], path[index.end() :]
            continue
        if not isinstance(document, dict):
            break
        inside = [key for key in document if path == key or path.startswith((f"{key}.", f"{key}["))]
        if not inside:
            break
        key = max(inside, key=len)
        keys.append(key)
        document, path = document[key], path[len(key) :].removeprefix(".")
    return tuple(keys)


def _has(document: Any, keys: Keys) -> bool:
    for key in keys:
        inside = range(len(document)) if isinstance(document, list) else document
        if not isinstance(document, list | dict) or key not in inside:
            return False
        document = document[key]  # type: ignore[index]  # the check above matches key and container
    return True


def _places(design: Table, name: str) -> list[str]:
    """Return the headers of the tables that declare a field of this name."""
    found = [TOP] if name in design.fields else []
    for header, field in design.fields.items():
        kind = field.kind
        many = isinstance(kind, ListOf)
        table = kind.each if isinstance(kind, ListOf) else kind
        if isinstance(table, Table) and name in table.fields:
            found.append(f"[[{header}]]" if many else f"[{header}]")
        if isinstance(kind, ByName) and name in kind.table.fields:
            found.append(f"[{header}]")
    return found


def _found(document: Any, name: str, header: str) -> list[str]:
    """Return the headers of the tables of a document that contain this name."""
    return list(_tables(document, name, header))


def _tables(document: Any, name: str, header: str) -> Iterator[str]:
    for key, value in document.items():
        if key == name:
            yield _header(header)
        if not header and isinstance(value, dict):
            yield from _tables(value, name, key)
        elif not header and isinstance(value, list) and value and isinstance(value[-1], dict):
            yield from _tables(value[-1], name, f"{key}[0]")


def _in(header: str) -> str:
    return f"at {header}" if header.startswith(TOP) else f"in {header}"


def _header(path: str) -> str:
    """Return the header of a table as it is written."""
    if not path:
        return TOP
    name = path.partition("[")[0].partition(".")[0]
    return f"[[{name}]]" if "[" in path else f"[{name}]"
