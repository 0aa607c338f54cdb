"""Locations of faults in protocol.toml: line numbers, and fields that are in the wrong table."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from protocol.formats.fields import Fault, ListOf, Table
from protocol.plan.field_kinds import TablesByName

MOST_LINES = 1000  # of a file to search for a line; a protocol has about forty
TOP = "the top of the file, above all tables"
Keys = tuple["str | int", ...]


def find_line(text: str, fault: str) -> int | None:
    """Return the line of the field with which `fault` begins or, if it is absent, of the table that should
    have it. None if that is not certain.

    tomllib parses ever longer prefixes of the file: a field is on the line with which it first appears.
    """
    lines, document = text.split("\n"), tomllib.loads(text)
    keys = _existing_keys(document, fault.partition(": ")[0])
    if not keys or len(lines) > MOST_LINES:
        return None
    first = 1
    for number in range(1, len(lines) + 1):
        try:
            part = tomllib.loads("\n".join(lines[:number]))
        except tomllib.TOMLDecodeError:  # the prefix ends inside a value
            continue
        if _has_keys(part, keys):
            return first
        first = number + 1
    return None


def suggest_table(fault: Fault, document: Mapping[str, Any], design: Table) -> str | None:
    """Return the fix for a field that is missing or unknown because it is in the wrong table; else None."""
    if fault.unknown:
        tables = _declaring_tables(design, fault.unknown)
        at = fault.author_message.partition(": ")[0]
        destination = TOP if TOP in tables else " or ".join(tables)
        return f"{at}: {fault.unknown} belongs {_format_location(destination)}; move it there" if tables else None
    wanted = fault.missing
    if not wanted:
        return None
    field = design.all_fields.get(wanted)
    if field is not None and isinstance(field.kind, Table):
        inner = field.kind.required[0]
        header = next(_containing_tables(document, inner), None)
        if header is not None and header not in _declaring_tables(design, inner):
            return f"{wanted}: missing; {inner} is in {header}: write [{wanted}] on the line above {inner}"
    current = _format_header(fault.author_message.partition(": ")[0].rpartition(".")[0])
    for header in _containing_tables(document, wanted):
        if header != current and header not in _declaring_tables(design, wanted):
            return f"{fault.author_message.partition(': ')[0]}: is {_format_location(header)}; move it to {current}"
    return None


def explain_syntax_error(text: str, error: tomllib.TOMLDecodeError) -> str:
    """Explain a line that invalid TOML, and how to fix it."""
    message = str(error)
    if text.lstrip().startswith("{"):
        return "is JSON, but a protocol is TOML; write name = value, one on each line"
    at = re.search(r"line ([0-9]+)", message)
    lines = text.split("\n")
    number = int(at[1]) if at else len(lines)
    wrong = lines[number - 1].strip() if number <= len(lines) else ""
    excerpt = wrong if len(wrong) <= 60 else f"{wrong[:57]}..."
    fix = next((fix for pattern, fix in SLIPS if pattern.search(f"{message}\n{wrong}")), message)
    return f"line {number}: invalid TOML: {excerpt or 'the end of the file'}; {fix}"


# Patterns in the message of tomllib followed by the line, and the fix for each.
SLIPS = (
    (re.compile(r"Cannot (overwrite|declare|mutate)|already"), "it occurs twice; keep one of them"),
    (re.compile(r"\n[^=]*= *(True|False)\b"), "write true or false, in small letters"),
    (re.compile(r"\n[^=]*= *(None|null|nil)\b"), "leave the field out"),
    (re.compile(r"\n[^=]*= *-?[0-9]+,[0-9]"), "write decimals with a point: 0.05"),
    (re.compile(r"\n[^=]*= *-?\.[0-9]"), "write a zero before the point: 0.05"),
    (re.compile(r"\n[^=]*= *[0-9.]+ *%"), "write a share without a percent sign: 0.05"),
    (re.compile(r"\n[^=]*= *$"), "write a value after the ="),
    (re.compile(r"\n[^=\"']*: "), "write name = value, with = instead of the colon"),
    (re.compile(r"\n[^\"]*\"[^\"]*$"), "close the quotes"),
    (re.compile(r"\n[^=]*= *[A-Za-z]"), "put the text in quotes"),
    (re.compile(r"Expected newline.*\n[^=]*= *[-+0-9.]"), "write one number after the =, with at most one point"),
    (re.compile(r"Expected newline"), "write one value after the =, and the next field on a new line"),
    (
        re.compile(r"Illegal character|Unclosed array|Unclosed inline|end of document"),
        "close the bracket or the quotes",
    ),
    (re.compile(r"Expected '=' after a key"), "write name = value; put a text of several words in quotes"),
)


def _existing_keys(document: Any, path: str) -> Keys:
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


def _has_keys(document: Any, keys: Keys) -> bool:
    for key in keys:
        inside = range(len(document)) if isinstance(document, list) else document
        if not isinstance(document, list | dict) or key not in inside:
            return False
        document = document[key]  # type: ignore[index]  # the check above matches key and container
    return True


def _declaring_tables(design: Table, name: str) -> list[str]:
    """Return the headers of the tables that declare a field of this name."""
    headers = [TOP] if name in design.all_fields else []
    for header, field in design.all_fields.items():
        kind = field.kind
        is_array = isinstance(kind, ListOf)
        table = kind.entry_kind if isinstance(kind, ListOf) else kind
        if isinstance(table, Table) and name in table.all_fields:
            headers.append(f"[[{header}]]" if is_array else f"[{header}]")
        if isinstance(kind, TablesByName) and name in kind.table.fields:
            headers.append(f"[{header}]")
    return headers


def _containing_tables(document: Any, name: str, header: str = "") -> Iterator[str]:
    """Yield the headers of the tables of a document that contain this name. header: of the table `document`."""
    for key, value in document.items():
        if key == name:
            yield _format_header(header)
        if not header and isinstance(value, dict):
            yield from _containing_tables(value, name, key)
        elif not header and isinstance(value, list) and value and isinstance(value[-1], dict):
            yield from _containing_tables(value[-1], name, f"{key}[0]")


def _format_location(header: str) -> str:
    return f"at {header}" if header.startswith(TOP) else f"in {header}"


def _format_header(path: str) -> str:
    """Return the header of a table as it is written."""
    if not path:
        return TOP
    name = path.partition("[")[0].partition(".")[0]
    return f"[[{name}]]" if "[" in path else f"[{name}]"
