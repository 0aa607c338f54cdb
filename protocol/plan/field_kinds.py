"""Kinds of fields that only protocol.toml has, in addition to those of all documents."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from protocol.formats.canonical import MAX_INTEGER
from protocol.formats.fields import Choice, Fault, Integer, Kind, ListOf, Plain, Table, Text
from protocol.formats.value_faults import format_toml
from protocol.formats.vocabulary import BLANKS, RERUN_SUFFIX

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")  # of an arm
PLACEHOLDER = re.compile(r"\b(TODO|FIXME|TBD|XXX+)\b|\?{3}|\.{3}|…|_{3}|<.*>", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class VisibleText(Text):
    """Text that is NFC, visible and no placeholder."""

    def read(self, value: Any, at: str) -> str:
        if not isinstance(value, str) or not value.strip():
            raise Text().make_fault(value, at)
        if unicodedata.normalize("NFC", value) != value:
            raise Fault(
                f"{at}: text is not in Unicode normal form NFC; normalise it (otherwise one text has two digests)"
            )
        for character in value:
            is_invisible = unicodedata.category(character)[0] == "C" or character in BLANKS
            if is_invisible and character != "\n":
                raise Fault(f"{at}: contains the invisible character U+{ord(character):04X}; delete it")
        if PLACEHOLDER.search(value):
            raise Fault(f"{at}: the placeholder {value!r} is not filled in; write the value for which it stands")
        return str(super().read(value, at))


class VisibleLine(VisibleText):
    """The same in one line: what is printed beside a verdict has no line of its own."""

    def read(self, value: Any, at: str) -> str:
        text = super().read(value, at)
        if len(text.splitlines()) > 1 or text.endswith("\n"):
            raise Fault(f"{at}: contains a line break; write it in one line")
        return text


@dataclass(frozen=True)
class ArmName(VisibleText):
    """The name of an arm, or of the winner of a sweep."""

    expected: str = "a name of ASCII letters, digits and . _ + -"

    def read(self, value: Any, at: str) -> str:
        return check_arm_name(super().read(value, at), f"{at}: ")


class Number(Kind):
    """A decimal number in a range, stored as text in the lock."""

    def __init__(self, least: str, most: str):
        self.least, self.most = Decimal(least), Decimal(most)
        self.is_share = self.most <= 1

    @property
    def expected(self) -> str:
        return f"a number from {self.least:f} to {self.most:f}"

    def accepts(self, value: Any) -> bool:
        number = Decimal(value) if type(value) is int else value
        return isinstance(number, Decimal) and number.is_finite() and self.least <= number <= self.most

    def to_json(self, value: Decimal) -> str:
        return f"{value:f}"

    def read(self, value: Any, at: str) -> Decimal:
        return Decimal(super().read(value, at))


class Recency(Kind):
    """A number of most recent slots: an integer, or a share of the budget K (policies.Preserve)."""

    expected = 'a whole number of slots, "K/4" or "min(128, K/4)", where K is the budget'
    forms = (Integer(0, 2**24), Text(r"K/([1-9][0-9]{0,5})|min\(([0-9]{1,7}), ?K/([1-9][0-9]{0,5})\)"))

    def accepts(self, value: Any) -> bool:
        return any(form.accepts(value) for form in self.forms)


class CatalogueName(Choice):
    """One of the names in a catalogue. list_command: the command that prints them. open: other packages may
    add names, which the schema for editors cannot list. noun, corrections: as in `Choice`.
    """

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        list_command: str,
        *,
        open: bool = False,
        noun: str = "",
        corrections: Callable[[], Mapping[str, str]] = dict,
    ):
        self.names, self.list_command, self.open = names, list_command, open
        self.noun, self.corrections = noun, corrections

    @property
    def options(self) -> tuple[str, ...]:  # type: ignore[override]  # evaluated when a name is read
        return tuple(self.names())

    @property
    def expected(self) -> str:
        return f"a name that `{self.list_command}` lists"


@dataclass(frozen=True)
class DeferredKind(Kind):
    """A text that `checks` validates with `kind` after the rest of the document is read."""

    kind: Kind

    @property
    def expected(self) -> str:
        return self.kind.expected

    def accepts(self, value: Any) -> bool:
        return VisibleText().accepts(value)

    def read(self, value: Any, at: str) -> Any:
        return VisibleText().read(value, at)


@dataclass(frozen=True)
class PolicySettings(Kind):
    """Settings of a policy by path. `checks` validates them with the policy after the rest of the document is read."""

    expected: str = (
        "a table of settings by their paths; each value is a number, text, true or false, or a list of these"
    )

    def accepts(self, value: Any) -> bool:
        return isinstance(value, Mapping)

    def to_json(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {path: _to_json(setting) for path, setting in value.items()}

    def read(self, value: Any, at: str) -> dict[str, Any]:
        super().read(value, at)
        if not value:
            raise Fault(f"{at}: sets nothing; leave it out")
        return {path: _read_setting(setting, f"{at}.{_check_path(path, at)}") for path, setting in value.items()}


@dataclass(frozen=True)
class SettingGrids(Kind):
    """Lists of values for settings, by arm and by path."""

    expected: str = "a table with a table for each arm, which gives a list of values for each path of a setting"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, Mapping)

    def to_json(self, value: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        return {arm: PolicySettings().to_json(over) for arm, over in value.items()}

    def read(self, value: Any, at: str) -> dict[str, dict[str, Any]]:
        super().read(value, at)
        if not value:
            raise Fault(f"{at}: does not vary any arm; leave it out")
        return {check_arm_name(arm, f"{at}."): self._read_settings(over, f"{at}.{arm}") for arm, over in value.items()}

    def _read_settings(self, value: Any, at: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise Fault(
                f'{at}: write a table of settings with lists of values, "path" = [...], not {format_toml(value)}'
            )
        if not value:
            raise Fault(f"{at}: does not vary any setting; leave it out")
        return {path: self._read_values(values, f"{at}.{_check_path(path, at)}") for path, values in value.items()}

    def _read_values(self, value: Any, at: str) -> tuple[Any, ...]:
        if not isinstance(value, list) or not value:
            if isinstance(value, Mapping):
                _read_setting(value, at)
            raise Fault(f"{at}: write a list of values, not {format_toml(value)}")
        settings = tuple(_read_setting(item, f"{at}[{index}]") for index, item in enumerate(value))
        for index, item in enumerate(settings):
            if item in settings[:index]:
                raise Fault(f"{at}: {format_setting(item)} occurs twice; name each value once")
        return settings


def format_setting(value: Any) -> str:
    """Format a value for the name of an arm that a grid makes."""
    if isinstance(value, tuple):
        return "_".join(map(format_setting, value))
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _check_path(text: str, at: str) -> str:
    """Check the path of a setting, which must be one line, as messages are."""
    if not text.strip():
        raise Fault(f"{at}: has a path without a name; write one that `kv-prereg policies NAME` prints")
    if "\n" in text:
        raise Fault(f"{at}: has a path with a line break, {text!r}; write it on one line")
    return VisibleText().read(text, at)


def _read_setting(value: Any, at: str) -> Any:
    if isinstance(value, Mapping) and value:
        path, inner = at.rpartition(".")[2], value
        while isinstance(inner, Mapping) and inner:
            name, inner = next(iter(inner.items()))
            path = f"{path}.{name}"
        raise Fault(f'{at}: write the whole path in quotes, "{path}" = ...')
    if isinstance(value, list) and not any(isinstance(item, list) for item in value):
        return tuple(_read_setting(item, f"{at}[{index}]") for index, item in enumerate(value))
    if isinstance(value, str):
        return VisibleText().read(value, at)
    if not PLAIN_VALUE.accepts(value):
        raise PLAIN_VALUE.make_fault(value, at)
    return value


def _is_number(value: Any) -> bool:
    """Return whether a value is an integer of canonical JSON or a decimal of moderate size."""
    if type(value) is int:
        return abs(value) <= MAX_INTEGER
    small = isinstance(value, Decimal) and value.is_finite() and abs(value) <= MAX_INTEGER
    return small and (not value or value.adjusted() >= -30)


PLAIN_VALUE = Plain(
    lambda value: isinstance(value, bool) or _is_number(value),
    {},
    "a number (up to 2^53-1), text, true or false, or a list of these",
)


def _to_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    return f"{value:f}" if isinstance(value, Decimal) else value


class TableArray(ListOf):
    """An array of tables, each with a header in two brackets."""

    def missing_message(self, name: str, example: Any = None) -> str:
        return f"missing; add a table [[{name}]] with {self._required_fields()}"

    def read(self, value: Any, at: str) -> Any:
        if isinstance(value, Mapping):
            raise Fault(f"{at}: write [[{at}]], with two brackets, above each table, not [{at}]")
        return super().read(value, at)

    def _required_fields(self) -> str:
        return ", ".join(self.entry_kind.required) if isinstance(self.entry_kind, Table) else self.entry_kind.expected


@dataclass(frozen=True)
class TablesByName(Kind):
    """A table of tables, read as a tuple; the key becomes the `name`. what: the noun for one of them."""

    table: Table
    what: str

    @property
    def expected(self) -> str:
        return f"a table with a line for each {self.what}"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, Mapping)

    def missing_message(self, name: str, example: Any = None) -> str:
        needed = self.table.required or list(self.table.fields)[:1]  # of several of which one is needed
        return f"missing; add the table [{name}] with lines NAME = {{ {', '.join(needed)} }}"

    def to_json(self, value: Iterable[Any]) -> dict[str, Any]:
        return {entry.name: self.table.to_json(entry) for entry in value}

    def read(self, value: Any, at: str) -> Any:
        if isinstance(value, list):
            raise Fault(f"{at}: write [{at}], with one bracket, and a line for each {self.what} below it")
        if not isinstance(value, Mapping):
            raise Fault(f"{at}: write a table, not {format_toml(value)}")
        if not value:
            raise Fault(f"{at}: add at least one {self.what}")
        for name, entry in value.items():
            if not isinstance(entry, Mapping):
                first = next(iter(self.table.fields))
                fix = f"{{ {first} = {format_toml(entry) if isinstance(entry, str) else '...'} }}"
                message = f"{at}.{name}: write {name} = {fix}, not {name} = {format_toml(entry)}"
                raise Fault(message, unknown=name)
        table = replace(self.table, constructor=dict)
        return tuple(
            self.table.constructor(name=check_arm_name(name, f"{at}."), **table.read(entry, f"{at}.{name}"))
            for name, entry in value.items()
        )


def check_arm_name(value: str, prefix: str) -> str:
    if value.endswith(RERUN_SUFFIX):
        raise Fault(
            f"{prefix}{value}: names ending in {RERUN_SUFFIX!r} are reserved for a probe's second run; rename it"
        )
    if not NAME.fullmatch(value):
        raise Fault(
            f"{prefix}{value!r}: arm names are ASCII letters, digits and . _ + -, beginning with one of the "
            f"first two; rename it"
        )
    return value
