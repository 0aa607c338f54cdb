"""Reads a file of published numbers and claims, strictly; docs/claims.md documents the format."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from analysis.claims.levels import Level
from analysis.claims.quantity import Quantity
from analysis.claims.rounding import Range, counts, rounding_range
from protocol.formats.suggestions import explain_os_error, suggest

KINDS = ("answers", "differences", "scores", "counts", "measures")
SAMPLED = ("answers", "differences", "scores")
UNITS = {"share": 1, "percent": 100}
UNKNOWN = "unknown"


class ClaimError(ValueError):
    """A file of claims that cannot be read. The message names the file, the key and the fix."""


@dataclass(frozen=True, slots=True)
class Table:
    """The printed cells of one kind. answers: means of right-or-wrong answers; differences: of two such means; scores:
    means of anything in [0, 1]; counts: exact counts and settings; measures: seconds, bytes, ratios.

    values: the text of each cell. n: problems of each cell, None if unknown or without a meaning. draws: answers to
    each problem, None if unknown.
    """

    id: str
    title: str
    kind: str
    unit: str
    draws: int | None
    values: Mapping[str, str]
    n: Mapping[str, int | None]
    note: str

    def printed_range(self, name: str) -> Range | None:
        """Return the range of a cell in the printed unit; None for a word."""
        text = self.values[name]
        try:
            ends = rounding_range(text)
        except ValueError:
            return None
        if self.kind == "counts":
            middle = (ends.low + ends.high) / 2
            return Range(middle, middle)
        return ends


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of the paper. holds: its checkable form. carried: the test or interval that says whether the numbers
    support it at this n, "" if nothing is inferred beyond them. cannot: why no table decides it, or "".
    """

    id: str
    where: str
    sentence: str
    holds: str
    carried: str
    cannot: str
    note: str


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation of the paper. printed: its text there. form: a lambda that claims call by the id."""

    id: str
    where: str
    printed: str
    form: str


@dataclass(frozen=True, slots=True)
class Paper:
    path: Path  # of its file, for messages
    key: str
    title: str
    authors: str
    link: str
    note: str
    summary: str
    tables: Mapping[str, Table]
    names: Mapping[str, str | tuple[str, ...]]
    equations: tuple[Equation, ...]
    claims: tuple[Claim, ...]

    def cell(self, table: str, name: str) -> Quantity | str | None:
        """Return a printed cell, None if there is none. Raises ClaimError for a table that the file does not have."""
        if table not in self.tables:
            raise ClaimError(f"the file has no table {table!r}")
        source = self.tables[table]
        if name not in source.values:
            return None
        ends = source.printed_range(name)
        return source.values[name] if ends is None else _to_quantity(source, name, ends)


def read_paper(path: Path) -> Paper:
    """Read a file. Raises ClaimError if it is missing, invalid TOML, or departs from the format in any key."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        is_ours = path.parent.parts[-2:] == ("analysis", "published")
        whose = "; only a clone of this project contains these papers, not an installed package" if is_ours else ""
        raise ClaimError(f"{explain_os_error(error)}{whose}") from error
    except UnicodeDecodeError as error:
        raise ClaimError(f"{path}: byte {error.start} is not valid UTF-8; name a TOML file") from error
    except tomllib.TOMLDecodeError as error:
        raise ClaimError(f"{path}: invalid TOML ({error}); each key may occur once, and text needs quotes") from error
    file = _Keys(path, "", content)
    file.reject_unknown("format", "source", "names", "table", "equation", "claim")
    if file.take("format", int) != 1:
        raise ClaimError(f"{path}: format: {content['format']} is unknown; write 1")
    source = _Keys(path, "source", file.take("source", dict))
    source.reject_unknown("key", "title", "authors", "link", "note", "summary")
    names = {name: _parse_name(path, name, value) for name, value in file.take("names", dict, default={}).items()}
    tables = [_parse_table(path, i, entry) for i, entry in enumerate(file.take("table", list))]
    claims = [_parse_claim(path, i, entry) for i, entry in enumerate(file.take("claim", list, default=[]))]
    equations = [_parse_equation(path, i, entry) for i, entry in enumerate(file.take("equation", list, default=[]))]
    form_names = [*names, *(equation.id for equation in equations)]
    for kind, ids in (("table", [t.id for t in tables]), ("equation", form_names), ("claim", [c.id for c in claims])):
        duplicates = sorted({identifier for identifier in ids if ids.count(identifier) > 1})
        if duplicates:
            raise ClaimError(f"{path}: {kind}.id: {duplicates[0]!r} occurs twice; give each entry its own id")
    return Paper(
        path,
        source.take("key", str),
        source.take("title", str),
        source.take("authors", str),
        source.take("link", str),
        source.take("note", str, default=""),
        source.take("summary", str, default=""),
        {table.id: table for table in tables},
        names | {equation.id: equation.form for equation in equations},
        tuple(equations),
        tuple(claims),
    )


@dataclass(frozen=True, slots=True)
class _Keys:
    """One TOML table, with the path of its keys for messages."""

    path: Path
    prefix: str
    content: Mapping[str, Any]

    def reject_unknown(self, *known: str) -> None:
        for key in self.content:
            if key not in known:
                raise ClaimError(f"{self.location(key)}: unknown key; {suggest(key, known)}")

    def take(self, key: str, kind: type, *, default: Any = None) -> Any:
        if key not in self.content and default is not None:
            return default
        if key not in self.content:
            raise ClaimError(f"{self.location(key)}: is missing; add it")
        value = self.content[key]
        if type(value) is not kind or (default is None and value == ""):
            wanted = {"str": "text, in quotes", "dict": f"one table, [{key}]", "list": f"[[{key}]], with two brackets"}
            shown = {"dict": "a table", "list": "a list"}.get(type(value).__name__, repr(value))
            raise ClaimError(f"{self.location(key)}: write {wanted.get(kind.__name__, 'a whole number')}, not {shown}")
        return value

    def take_size(self, key: str) -> int | None:
        """Return a positive integer, or None for "unknown"."""
        if key not in self.content:
            raise ClaimError(f'{self.location(key)}: is missing; write a positive integer or "{UNKNOWN}"')
        value = self.content[key]
        if value == UNKNOWN:
            return None
        if type(value) is not int or value < 1:
            raise ClaimError(f'{self.location(key)}: {value!r}; write a positive integer or "{UNKNOWN}"')
        return value

    def location(self, key: str) -> str:
        return f"{self.path}: {self.prefix + '.' if self.prefix else ''}{key}"


def _parse_name(path: Path, name: str, value: Any) -> str | tuple[str, ...]:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return tuple(value)
    raise ClaimError(f"{path}: names.{name}: {value!r}; write a form or a list of words")


def _parse_table(path: Path, index: int, content: Any) -> Table:
    keys = _Keys(path, f"table[{index}]", content)
    keys.reject_unknown("id", "title", "of", "unit", "n", "draws", "values", "note")
    kind = keys.take("of", str)
    if kind not in KINDS:
        raise ClaimError(f"{keys.location('of')}: {kind!r} is unknown; write one of {', '.join(KINDS)}")
    unit = keys.take("unit", str)
    if kind in SAMPLED and unit not in UNITS:
        raise ClaimError(f"{keys.location('unit')}: {unit!r}; {kind} are printed as share or percent")
    for key, needed in (("n", SAMPLED), ("draws", ("answers", "differences"))):
        if kind not in needed and key in content:
            raise ClaimError(f"{keys.location(key)}: a table of {kind} does not have this key; remove it")
    common = keys.take_size("n") if kind in SAMPLED else None
    draws = keys.take_size("draws") if kind in ("answers", "differences") else None
    values, n = {}, {}
    for name, printed in keys.take("values", dict).items():
        values[name], n[name] = _parse_cell(_Keys(path, f"table[{index}].values", {name: printed}), name, kind, common)
    if not values:
        raise ClaimError(f"{keys.location('values')}: is empty; transcribe at least one cell")
    table = Table(
        keys.take("id", str), keys.take("title", str), kind, unit, draws, values, n,
        keys.take("note", str, default=""),
    )  # fmt: skip
    for name in values:
        ends = table.printed_range(name)
        if kind != "measures" and ends is None:
            raise ClaimError(f"{path}: table[{index}].values.{name}: {values[name]!r} is not a printed decimal")
        if (
            kind in SAMPLED
            and ends
            and (ends.low > UNITS[unit] or ends.high < (-UNITS[unit] if kind == "differences" else 0))
        ):
            raise ClaimError(f"{path}: table[{index}].values.{name}: {values[name]!r} is not a {unit}; check the unit")
    return table


def _parse_cell(keys: _Keys, name: str, kind: str, n: int | None) -> tuple[str, int | None]:
    """Return the text and n of a cell, which is a text or {value = text, n = its own number of problems}."""
    printed = keys.content[name]
    if isinstance(printed, str):
        return keys.take(name, str), n
    if not isinstance(printed, dict) or kind not in SAMPLED:
        raise ClaimError(f'{keys.location(name)}: {printed!r}; write the digits as printed, in quotes: "0.750"')
    cell_keys = _Keys(keys.path, keys.location(name).removeprefix(f"{keys.path}: "), printed)
    cell_keys.reject_unknown("value", "n")
    return cell_keys.take("value", str), cell_keys.take_size("n")


def _parse_equation(path: Path, index: int, content: Any) -> Equation:
    keys = _Keys(path, f"equation[{index}]", content)
    keys.reject_unknown("id", "where", "printed", "form")
    return Equation(*(keys.take(key, str) for key in ("id", "where", "printed", "form")))


def _parse_claim(path: Path, index: int, content: Any) -> Claim:
    keys = _Keys(path, f"claim[{index}]", content)
    keys.reject_unknown("id", "where", "sentence", "holds", "carried", "cannot", "note")
    optional = [keys.take(key, str, default="") for key in ("carried", "cannot", "note")]
    if optional[0] and optional[1]:
        raise ClaimError(f"{keys.location('cannot')}: a claim may not have both this and carried; keep one of them")
    return Claim(*(keys.take(key, str) for key in ("id", "where", "sentence", "holds")), *optional)


def _to_quantity(table: Table, name: str, printed: Range) -> Quantity:
    text = table.values[name]
    scale = UNITS.get(table.unit, 1)
    n = table.n[name]
    if table.kind not in ("answers", "differences") or n is None or table.draws is None:
        return Quantity(printed, printed, text, scale=scale, level=Level.TRANSCRIBED)
    total = n * table.draws
    right = counts(Range(printed.low / scale, printed.high / scale), total)
    if not right:
        impossible = f"no count of {total} {'answers' if table.draws > 1 else 'problems'} gives {text} ({name})"
        return Quantity(printed, printed, text, scale=scale, level=Level.TRANSCRIBED, impossible=impossible)
    counted = Range(Fraction(right[0] * scale, total), Fraction(right[-1] * scale, total))
    answers = (right[0], total) if len(right) == 1 and table.kind == "answers" else None
    return Quantity(printed, counted, text, answers, table.draws == 1, scale, Level.TRANSCRIBED)
