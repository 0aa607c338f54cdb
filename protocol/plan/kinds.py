"""Kinds of fields that only protocol.toml has, in addition to those of all documents."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from protocol.evidence.bytes.canonical import LARGEST
from protocol.evidence.bytes.fields import Choice, Fault, Kind, ListOf, Plain, Schema, Table, Text, Whole
from protocol.evidence.bytes.typed import typed

AGAIN = " (again)"  # suffix of the name of an arm that a probe runs a second time
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")  # of an arm
# Characters that print nothing: Hangul fillers, Khmer vowels, a joiner, blank Braille.
BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
PLACEHOLDER = re.compile(r"\b(TODO|FIXME|TBD|XXX+)\b|\?{3}|\.{3}|…|_{3}|<.*>", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Written(Text):
    """Text that is NFC, visible and no placeholder."""

    def read(self, value: Any, at: str) -> str:
        if not isinstance(value, str) or not value.strip():
            raise Text().fault(value, at)
        if unicodedata.normalize("NFC", value) != value:
            raise Fault.of(
                f"{at}: text is not NFC; normalise it (two spellings of one text hash differently)"
            )
        for character in value:
            unseen = unicodedata.category(character)[0] == "C" or character in BLANK
            if unseen and character != "\n":
                raise Fault.of(f"{at}: has U+{ord(character):04X}, which cannot be seen; delete it")
        if PLACEHOLDER.search(value):
            raise Fault.of(f"{at}: placeholder left unfilled: {value!r}; write what it stands for")
        return str(super().read(value, at))


@dataclass(frozen=True)
class ArmName(Written):
    """The name of an arm, or of the winner of a sweep."""

    words: str = "a name of ASCII letters, digits and . _ + -"

    def read(self, value: Any, at: str) -> str:
        return arm_name(super().read(value, at), f"{at}: ")


class Number(Kind):
    """A decimal number in a range, stored as text in the lock."""

    def __init__(self, least: str, most: str):
        self.least, self.most = Decimal(least), Decimal(most)
        self.share = self.most <= 1

    @property
    def words(self) -> str:
        return f"a number from {self.least:f} to {self.most:f}"

    def holds(self, value: Any) -> bool:
        number = Decimal(value) if type(value) is int else value
        return isinstance(number, Decimal) and number.is_finite() and self.least <= number <= self.most

    def schema(self) -> Schema:
        return {"type": "number", "minimum": float(self.least), "maximum": float(self.most)}

    def content(self, value: Decimal) -> str:
        return f"{value:f}"

    def read(self, value: Any, at: str) -> Decimal:
        return Decimal(super().read(value, at))


class Recency(Kind):
    """A number of most recent slots: an integer, or a share of the budget K (policies.Preserve)."""

    words = 'a whole number of slots, "K/4" or "min(128, K/4)", where K is the budget'
    pattern = r"K/([1-9][0-9]{0,5})|min\(([0-9]{1,7}), ?K/([1-9][0-9]{0,5})\)"

    def holds(self, value: Any) -> bool:
        return Whole(0, 2**24).holds(value) or Text(self.pattern).holds(value)

    def schema(self) -> Schema:
        return {"anyOf": [Whole(0, 2**24).schema(), Text(self.pattern).schema()]}


class Named(Choice):
    """One of the names in a catalogue. list_command: the command that prints them. open: other packages may
    add names, which the schema for editors cannot list. noun, aliases: as noun and corrections of `Choice`.
    """

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        listing: str,
        *,
        open: bool = False,
        of: str = "",
        known_as: Callable[[], Mapping[str, str]] = dict,
    ):
        self.names, self.listing, self.open, self.of, self.known_as = names, listing, open, of, known_as

    @property
    def options(self) -> tuple[str, ...]:  # type: ignore[override]  # evaluated when a name is read
        return tuple(self.names())

    @property
    def meant(self) -> Mapping[str, str]:  # type: ignore[override]  # as these
        return self.known_as()

    @property
    def words(self) -> str:
        return f"a name that `{self.listing}` lists"

    def schema(self) -> Schema:
        return {"anyOf": [super().schema(), {"type": "string"}]} if self.open else super().schema()


@dataclass(frozen=True)
class Later(Kind):
    """A text that `checks` validates with `kind` after the rest of the document is read."""

    kind: Kind

    @property
    def words(self) -> str:
        return self.kind.words

    def holds(self, value: Any) -> bool:
        return Written().holds(value)

    def schema(self) -> Schema:
        return self.kind.schema()

    def read(self, value: Any, at: str) -> Any:
        return Written().read(value, at)


@dataclass(frozen=True)
class Settings(Kind):
    """Settings of a policy by path. `checks` validates them with the policy after the rest of the document is
    read.
    """

    words: str = "a table of settings by their paths, each a number, text, true or false, or a list of these"

    def holds(self, value: Any) -> bool:
        return isinstance(value, Mapping)

    def schema(self) -> Schema:
        plain: list[Schema] = [{"type": kind} for kind in ("number", "string", "boolean")]
        one = {"anyOf": [*plain, {"type": "array", "items": {"anyOf": plain}}]}
        return {"type": "object", "minProperties": 1, "additionalProperties": one}

    def content(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {path: _locked(given) for path, given in value.items()}

    def read(self, value: Any, at: str) -> dict[str, Any]:
        super().read(value, at)
        if not value:
            raise Fault.of(f"{at}: sets nothing; leave it out")
        return {path: _setting(given, f"{at}.{_path(path, at)}") for path, given in value.items()}


@dataclass(frozen=True)
class Grids(Kind):
    """Lists of values for settings, by arm and by path."""

    words: str = "a table of tables: by arm, the paths of settings, each with a list of values"

    def holds(self, value: Any) -> bool:
        return isinstance(value, Mapping)

    def schema(self) -> Schema:
        values = {"type": "array", "minItems": 1}
        over = {"type": "object", "minProperties": 1, "additionalProperties": values}
        return {"type": "object", "minProperties": 1, "additionalProperties": over}

    def content(self, value: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        return {arm: Settings().content(over) for arm, over in value.items()}

    def read(self, value: Any, at: str) -> dict[str, dict[str, Any]]:
        super().read(value, at)
        if not value:
            raise Fault.of(f"{at}: varies no arm; leave it out")
        return {arm_name(arm, f"{at}."): self._over(over, f"{at}.{arm}") for arm, over in value.items()}

    def _over(self, value: Any, at: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise Fault.of(
                f'{at}: write a table of settings with lists of values, "path" = [...], not {typed(value)}'
            )
        if not value:
            raise Fault.of(f"{at}: varies nothing; leave it out")
        return {path: self._values(values, f"{at}.{_path(path, at)}") for path, values in value.items()}

    def _values(self, value: Any, at: str) -> tuple[Any, ...]:
        if not isinstance(value, list) or not value:
            if isinstance(value, Mapping):
                _setting(value, at)
            raise Fault.of(f"{at}: write a list of values, not {typed(value)}")
        read = tuple(_setting(one, f"{at}[{place}]") for place, one in enumerate(value))
        for place, one in enumerate(read):
            if one in read[:place]:
                raise Fault.of(f"{at}: {setting_text(one)} stands twice; name each value once")
        return read


def setting_text(value: Any) -> str:
    """Format a value for the name of an arm that a grid makes."""
    if isinstance(value, tuple):
        return "_".join(map(setting_text, value))
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _path(text: str, at: str) -> str:
    """Check the path of a setting, which must be one line, as messages are."""
    if not text.strip():
        raise Fault.of(f"{at}: has a path without a name; write one that `kv-prereg policies NAME` prints")
    if "\n" in text:
        raise Fault.of(f"{at}: has a path with a line end, {text!r}; write it on one line")
    return Written().read(text, at)


def _setting(value: Any, at: str) -> Any:
    if isinstance(value, Mapping) and value:
        path, inner = at.rpartition(".")[2], value
        while isinstance(inner, Mapping) and inner:
            name, inner = next(iter(inner.items()))
            path = f"{path}.{name}"
        raise Fault.of(f'{at}: write the whole path in quotes, "{path}" = ...')
    if isinstance(value, list) and not any(isinstance(one, list) for one in value):
        return tuple(_setting(one, f"{at}[{place}]") for place, one in enumerate(value))
    if isinstance(value, str):
        return Written().read(value, at)
    if not ONE.holds(value):
        raise ONE.fault(value, at)
    return value


def _number(value: Any) -> bool:
    """Return whether a value is an integer of canonical JSON or a decimal of moderate size."""
    if type(value) is int:
        return abs(value) <= LARGEST
    small = isinstance(value, Decimal) and value.is_finite() and abs(value) <= LARGEST
    return small and (not value or value.adjusted() >= -30)


ONE = Plain(
    lambda value: isinstance(value, bool) or _number(value),
    {},
    "a number (up to 2^53-1), text, true or false, or a list of these",
)


def _locked(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_locked(one) for one in value]
    return f"{value:f}" if isinstance(value, Decimal) else value


class Tables(ListOf):
    """An array of tables, each with a header in two brackets."""

    def missing(self, name: str, example: Any = None) -> str:
        return f"missing; add a table [[{name}]] with {self._asked()}"

    def read(self, value: Any, at: str) -> Any:
        if isinstance(value, Mapping):
            raise Fault.of(f"{at}: write [[{at}]], with two brackets, above each table, not [{at}]")
        return super().read(value, at)

    def _asked(self) -> str:
        return ", ".join(self.each.needed) if isinstance(self.each, Table) else self.each.words


@dataclass(frozen=True)
class ByName(Kind):
    """A table of tables, read as a tuple; the key becomes the `name`. what: the noun for one of them."""

    table: Table
    what: str

    @property
    def words(self) -> str:
        return f"a table with a line for each {self.what}"

    def holds(self, value: Any) -> bool:
        return isinstance(value, Mapping)

    def schema(self) -> Schema:
        names = {"propertyNames": {"pattern": f"^({NAME.pattern})$"}, "minProperties": 1}
        return {"type": "object", "additionalProperties": self.table.schema(), **names}

    def missing(self, name: str, example: Any = None) -> str:
        needed = self.table.needed or list(self.table.fields)[:1]  # of several of which one is needed
        return f"missing; add the table [{name}], and in it NAME = {{ {', '.join(needed)} }}"

    def content(self, value: Iterable[Any]) -> dict[str, Any]:
        return {one.name: self.table.content(one) for one in value}

    def read(self, value: Any, at: str) -> Any:
        if isinstance(value, list):
            raise Fault.of(f"{at}: write [{at}], with one bracket, and a line for each {self.what} below it")
        if not isinstance(value, Mapping):
            raise Fault.of(f"{at}: write a table, not {typed(value)}")
        if not value:
            raise Fault.of(f"{at}: define at least one {self.what}")
        for name, entry in value.items():
            if not isinstance(entry, Mapping):
                first = next(iter(self.table.fields))
                fix = f"{{ {first} = {typed(entry) if isinstance(entry, str) else '...'} }}"
                refused = f"{at}.{name}: write {name} = {fix}, not {name} = {typed(entry)}"
                raise Fault(refused, refused, unknown=name)
        own = replace(self.table, made=dict)
        return tuple(
            self.table.made(name=arm_name(name, f"{at}."), **own.read(entry, f"{at}.{name}"))
            for name, entry in value.items()
        )


def arm_name(value: str, prefix: str) -> str:
    if value.endswith(AGAIN):
        raise Fault.of(f"{prefix}{value}: a name ending in {AGAIN!r} is a probe's second run; rename it")
    if not NAME.fullmatch(value):
        raise Fault.of(
            f"{prefix}{value!r}: arm names are ASCII letters, digits and . _ + -, beginning with one of the "
            f"first two; rename it"
        )
    return value
