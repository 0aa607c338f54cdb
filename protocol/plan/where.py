"""Where in protocol.toml something is wrong: its line, and a field that stands in a table of others."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from protocol.evidence.bytes.fields import Fault, ListOf, Table
from protocol.plan.kinds import ByName

__all__ = ["elsewhere", "line", "no_toml"]

MOST_LINES = 1000  # of a file of which a line is looked for: a protocol has some forty
TOP = "the top of the file, above all tables"
Keys = tuple["str | int", ...]


def line(text: str, fault: str) -> int | None:
    """The line on which the field that `fault` begins with stands or, where there is none, the table that it
    would stand in. None where that cannot be told exactly.

    Whole lines are given to tomllib, one more each time: a field stands where it is first there.
    """
    lines, document = text.split("\n"), tomllib.loads(text)
    keys = _keys(document, fault.partition(": ")[0])
    if not keys or len(lines) > MOST_LINES:
        return None
    first = 1
    for number in range(1, len(lines) + 1):
        try:
            part = tomllib.loads("\n".join(lines[:number]))
        except tomllib.TOMLDecodeError:  # in the middle of a value
            continue
        if _has(part, keys):
            return first
        first = number + 1
    return None


def elsewhere(fault: Fault, document: Mapping[str, Any], design: Table) -> str | None:
    """What to do about a field that is missing, or unknown, because it stands in another table; else None."""
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
    """What is wrong with a line that is no TOML, and what to type."""
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


# What stands after "=" in a line, behind what tomllib says of it.
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
    """The longest beginning of a path such as tasks[0].name that is there, as keys."""
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
        document = document[key]  # type: ignore[index]  # a key of its kind, as was asked
    return True


def _places(design: Table, name: str) -> list[str]:
    """The tables in which a field of this name is declared."""
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
    """The tables of a document in which this name stands."""
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
    """As it is written above a table."""
    if not path:
        return TOP
    name = path.partition("[")[0].partition(".")[0]
    return f"[[{name}]]" if "[" in path else f"[{name}]"
