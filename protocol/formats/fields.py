"""Declarations of document fields, from which the strict reader follows, and the JSON Schemas in docs/.

A kind says what one value may be: as text and as a test. A field is a kind with a description; a
table is fields by name. A class that is a `declaration` of fields is a table too: see `table_of` and `to_json`. A
value of another kind is a `Fault`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from dataclasses import fields as dataclass_fields
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from protocol.formats.canonical import MAX_INTEGER, encode
from protocol.formats.suggestions import nearest_names, unknown_message
from protocol.formats.value_faults import Fault as Fault
from protocol.formats.value_faults import format_toml, suggest_value, value_fault

Declared = TypeVar("Declared")
_CANONICAL_TEXT = rb'"[^"\\\x00-\x1f]*+(?:\\(?:["\\bfnrt]|u00(?:0[0-7be-f]|1[0-9a-f]))[^"\\\x00-\x1f]*+)*+"'
# A regular expression of characters that JSON never escapes.
_PLAIN_PATTERN = re.compile(r"([0-9A-Za-z #:+*?|(){},]|\\\.|\[([0-9]-[0-9]|[a-z]-[a-z]|[0-9A-Za-z])+\])*")
TYPO_SIMILARITY = 0.6  # least similarity of an unknown field to a missing one


class Kind:
    """What a value may be. `expected` is text that follows "write" and "it must be"."""

    is_share = False  # whether it is a number up to 1, which people may write in percent
    is_text = False

    @property
    def expected(self) -> str:
        raise NotImplementedError

    def accepts(self, value: Any) -> bool:
        raise NotImplementedError

    @cached_property
    def validator(self) -> Callable[[Any], bool]:
        """A function that says whether `read` takes a value and all inside it; built once for many values."""
        return self.accepts

    @property
    def canonical_pattern(self) -> bytes:
        """A regular expression that matches canonical JSON of values that the validator takes, of all or of some, and
        nothing else. One pass of it is a quarter of parsing, encoding and validating.
        """
        return rb"(?!)"

    def read(self, value: Any, path: str) -> Any:
        """Return `value` as a Python value. Raises Fault. path: of the value, for messages."""
        if not self.accepts(value):
            raise self.make_fault(value, path)
        return value

    def to_json(self, value: Any) -> Any:
        """Return a value that `read` returned, as canonical JSON has it."""
        return value

    def missing_message(self, name: str, example: Any = None) -> str:
        """Return the message for a missing field `name` of this kind."""
        value_text = "..." if example is None else format_toml(example)
        return f"missing; add {name} = {value_text}{self.expected and f' ({self.expected})'}"

    def make_fault(self, value: Any, path: str, expected: str = "") -> Fault:
        """Return the fault of `value`. expected: overrides the text of the kind."""
        fix = suggest_value(value, self.validator, is_share=self.is_share)
        return value_fault(value, path, expected or self.expected, fix, is_text=self.is_text)


@dataclass(frozen=True)
class Plain(Kind):
    """A value that the function `test` accepts. json: its JSON Schema."""

    test: Callable[[Any], bool]
    json: dict[str, Any]
    expected: str = "anything"

    def accepts(self, value: Any) -> bool:
        return self.test(value)


ANYTHING = Plain(lambda value: True, {})  # checked by its reader
FLAG = Plain(lambda value: isinstance(value, bool), {"type": "boolean"}, "true or false")


@dataclass(frozen=True)
class Text(Kind):
    is_text = True

    pattern: str = ""
    expected: str = "text"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, str) and (not self.pattern or bool(re.fullmatch(self.pattern, value)))

    @cached_property
    def validator(self) -> Callable[[Any], bool]:
        matches = re.compile(self.pattern or "(?s:.*)").fullmatch
        return lambda value: isinstance(value, str) and matches(value) is not None

    @property
    def canonical_pattern(self) -> bytes:
        if not self.pattern:
            return _CANONICAL_TEXT
        is_plain = _PLAIN_PATTERN.fullmatch(self.pattern)
        return b'"(?:%b)"' % self.pattern.encode() if is_plain else super().canonical_pattern


TIME = Text(r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}\+00:00", "a time like 2026-11-22T09:30:00+00:00")
DIGEST = Text("[0-9a-f]{64}", "a SHA-256 digest in lower-case hex")


@dataclass(frozen=True)
class Integer(Kind):
    minimum: int = 0
    maximum: int | None = None

    @property
    def expected(self) -> str:
        upper_text = "2^53-1" if self.maximum == MAX_INTEGER else self.maximum
        return f"a whole number from {self.minimum}" + ("" if upper_text is None else f" to {upper_text}")

    def accepts(self, value: Any) -> bool:
        return type(value) is int and self.minimum <= value and (self.maximum is None or value <= self.maximum)

    @property
    def canonical_pattern(self) -> bytes:
        if self.maximum is not None or self.minimum not in (0, 1):
            return super().canonical_pattern
        positive = rb"[1-9][0-9]{0,14}+"  # below MAX_INTEGER
        return positive if self.minimum else b"(?:0|%b)" % positive


class Choice(Kind):
    """One of a few texts. noun: what they name, if not the field. corrections: returns those of `suggest`."""

    list_command = ""  # the command that lists all options, where they are many

    def __init__(self, *options: str, noun: str = "", corrections: Callable[[], Mapping[str, str]] = dict):
        self.options, self.noun, self.corrections = options, noun, corrections

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.options)}"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.options

    @property
    def canonical_pattern(self) -> bytes:
        return b"(?:%b)" % b"|".join(re.escape(encode(option)) for option in self.options)

    def make_fault(self, value: Any, path: str, expected: str = "") -> Fault:
        if not isinstance(value, str):
            return super().make_fault(value, path)
        noun = self.noun or path.rpartition(".")[2]
        message = unknown_message(noun, value, self.options, self.list_command, self.corrections())
        return Fault(f"{path}: {message}", super().make_fault(value, path).audit_message)


@dataclass(frozen=True)
class OrNull(Kind):
    kind: Kind

    @property
    def expected(self) -> str:
        return f"{self.kind.expected}, or null"

    def accepts(self, value: Any) -> bool:
        return value is None or self.kind.accepts(value)

    @cached_property
    def validator(self) -> Callable[[Any], bool]:
        inner = self.kind.validator
        return lambda value: value is None or inner(value)

    @property
    def canonical_pattern(self) -> bytes:
        return b"(?:null|%b)" % self.kind.canonical_pattern

    def read(self, value: Any, path: str) -> Any:
        if value is not None and isinstance(self.kind, Table | ListOf | MapOf):
            return self.kind.read(value, path)
        return super().read(value, path)


@dataclass(frozen=True)
class ListOf(Kind):
    """A list, read as a tuple. expected: if set, it describes the list together with all its entries."""

    entry_kind: Kind
    min_length: int = 0
    max_length: int | None = None
    expected: str = ""

    def accepts(self, value: Any) -> bool:
        has_length = isinstance(value, list) and self.min_length <= len(value) <= (self.max_length or len(value))
        return has_length and (not self.expected or all(map(self.entry_kind.accepts, value)))

    @cached_property
    def validator(self) -> Callable[[Any], bool]:
        accepts_item, accepts_length = self.entry_kind.validator, replace(self, expected="").accepts
        return lambda value: accepts_length(value) and all(map(accepts_item, value))

    @property
    def canonical_pattern(self) -> bytes:
        entry, most = self.entry_kind.canonical_pattern, "" if self.max_length is None else self.max_length - 1
        further = f"{{{max(0, self.min_length - 1)},{most}}}+".encode()
        return rb"\[(?:%b(?:,%b)%b)%b\]" % (entry, entry, further, b"" if self.min_length else b"?+")

    def read(self, value: Any, path: str) -> Any:
        if not self.accepts(value):
            length_text = {0: "", 1: " with at least one entry"}.get(
                self.min_length, f" of at least {self.min_length} entries"
            )
            raise self.make_fault(value, path, self.expected or f"a list{length_text}")
        return tuple(self.entry_kind.read(entry, f"{path}[{index}]") for index, entry in enumerate(value))

    def to_json(self, value: Any) -> Any:
        return [self.entry_kind.to_json(item) for item in value]


@dataclass(frozen=True)
class TupleOf(Kind):
    """A list with a fixed kind for each position."""

    kinds: tuple[Kind, ...]
    expected: str = "a list"

    def accepts(self, value: Any) -> bool:
        has_length = isinstance(value, list) and len(value) == len(self.kinds)
        return has_length and all(kind.accepts(item) for kind, item in zip(self.kinds, value, strict=True))


@dataclass(frozen=True)
class MapOf(Kind):
    """An object with arbitrary keys, at least `min_length`, whose values are all of one kind."""

    entry_kind: Kind
    min_length: int = 0
    expected: str = "an object"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, Mapping) and len(value) >= self.min_length

    @cached_property
    def validator(self) -> Callable[[Any], bool]:
        accepts_value = self.entry_kind.validator
        return lambda value: self.accepts(value) and all(map(accepts_value, value.values()))

    def read(self, value: Any, path: str) -> Any:
        super().read(value, path)
        return {key: self.entry_kind.read(entry, f"{path}.{key}") for key, entry in value.items()}


def _attributes(instance: Any) -> Mapping[str, Any]:
    attributes: Mapping[str, Any] = instance._asdict() if hasattr(instance, "_asdict") else vars(instance)
    return attributes


class Field(NamedTuple):
    """A field of a table.

    if_absent: what a missing field means; None if the field is required. only_if: another field of the table
    and the values of it for which this field applies; for any other value the field is unknown.
    """

    kind: Kind
    description: str
    example: Any = None
    if_absent: str | None = None
    only_if: tuple[str, tuple[str, ...]] | None = None

    def applies(self, values: Mapping[str, Any]) -> bool:
        return self.only_if is None or values.get(self.only_if[0]) in self.only_if[1]


@dataclass(frozen=True)
class Table(Kind):
    """Fields by name.

    constructor: makes the value that reading returns. attributes: returns the fields of such a value.
    allow_extra: whether undeclared fields are accepted. corrections: returns those of `suggest` for names.
    """

    fields: Mapping[str, Field]
    constructor: Callable[..., Any] = dict
    attributes: Callable[[Any], Mapping[str, Any]] = _attributes
    allow_extra: bool = False
    expected: str = "a table"
    corrections: Callable[[], Mapping[str, str]] = dict

    @property
    def all_fields(self) -> Mapping[str, Field]:
        """The fields that some value may have."""
        return self.fields

    def fields_of(self, values: Mapping[str, Any]) -> Mapping[str, Field]:
        """Return the fields that a table with these values may have."""
        return {name: field for name, field in self.fields.items() if field.applies(values)}

    @property
    def required(self) -> tuple[str, ...]:
        """The required fields."""
        fields = self.fields.items()
        return tuple(name for name, field in fields if field.if_absent is None and field.only_if is None)

    def accepts(self, value: Any) -> bool:
        return isinstance(value, Mapping)

    @cached_property
    def validator(self) -> Callable[[Any], bool]:
        if any(field.only_if for field in self.fields.values()):
            return lambda value: _find_fault(self, value, "") is None
        validators = {name: field.kind.validator for name, field in self.fields.items()}
        required, allow_extra = set(self.required), self.allow_extra
        return lambda value: (
            isinstance(value, Mapping)
            and required <= value.keys()
            and all(validators[name](item) if name in validators else allow_extra for name, item in value.items())
        )

    @property
    def canonical_pattern(self) -> bytes:
        """Of a table with a required field, none of whose fields depends on another."""
        depends = any(field.only_if for field in self.fields.values())
        if type(self) is not Table or self.allow_extra or depends or not self.required:
            return super().canonical_pattern
        first, parts = min(self.required), list[bytes]()
        for name, field in sorted(self.fields.items()):
            before, after = b"," * (name > first), b"," * (name < first)
            part = b"%b%b:%b%b" % (before, encode(name), field.kind.canonical_pattern, after)
            parts.append(part if field.if_absent is None else b"(?:%b)?+" % part)
        return rb"\{%b\}" % b"".join(parts)

    def missing_message(self, name: str, example: Any = None) -> str:
        return f"missing; add the table [{name}] with {', '.join(self.required)}"

    def to_json(self, value: Any) -> dict[str, Any]:
        """Return the fields that were written, without those that were left out."""
        attributes = self.attributes(value)
        fields = self.fields_of(attributes).items()
        present = {name: field for name, field in fields if attributes.get(name) not in (None, ())}
        return {name: field.kind.to_json(attributes[name]) for name, field in present.items()}

    def read(self, value: Any, path: str) -> Any:
        if not isinstance(value, Mapping):
            table_text = f"a table with {', '.join(self.required)}" if self.required else "a table"
            if isinstance(value, list) and path.isidentifier():
                table_text = f"[{path}], with one bracket"
            raise Fault(
                f"{path}: write {table_text}, not {format_toml(value)}", f"{path}: must be an object with fields"
            )
        applicable = self.fields_of(value)
        extra = [name for name in value if name not in applicable and not self.allow_extra]
        missing = [name for name, field in applicable.items() if field.if_absent is None and name not in value]
        wrong_names = sorted(map(str, (*missing, *extra)))
        audit_message = (f"{path}: " if path else "") + f"the fields {wrong_names} are missing or unknown"
        prefix = f"{path}." if path else ""
        values = {}
        for name, field in applicable.items():
            if name in missing:
                if typo := self._typo_message(name, extra):
                    raise Fault(f"{prefix}{name}: {typo}", audit_message)
                fix = field.kind.missing_message(name, field.example)
                raise Fault(f"{prefix}{name}: {fix}", audit_message, missing=name)
            if name in value:
                values[name] = field.kind.read(value[name], f"{prefix}{name}")
        if extra:
            message = self._unknown_message(extra[0], value)
            unknown_name = (
                "" if "did you mean" in message or {extra[0]} & {*self.corrections(), *self.all_fields} else extra[0]
            )
            raise Fault(f"{prefix}{extra[0]}: {message}", audit_message, unknown=unknown_name)
        return self.constructor(**values)

    def _typo_message(self, name: str, extra: list[str]) -> str:
        """Return the message for a missing field that is probably one of the unknown ones; else ""."""
        for extra_name in extra:
            fix = self.corrections().get(extra_name, "")
            if fix == name or nearest_names(extra_name, [name], TYPO_SIMILARITY) or nearest_names(name, [extra_name]):
                return f"missing; {extra_name!r} is unknown and was probably meant; rename it"
            if fix.startswith(f"write {name}:"):
                return f"missing; {extra_name!r} is unknown; {fix}"
        return ""

    def _unknown_message(self, name: str, value: Mapping[str, Any]) -> str:
        if (field := self.all_fields.get(name)) and field.only_if:
            condition = field.only_if[0]
            return f"field {name!r} is unknown where {condition} is {value.get(condition)!r}; leave it out"
        fields = [name for name, field in self.all_fields.items() if field.applies(value)]
        return unknown_message("field", name, fields, corrections=self.corrections())


@dataclass(frozen=True)
class ExtendedTable(Table):
    """A table with further fields, which are loaded for a value that has them.

    further_of: the further fields of a table with some values. all_further: those of all tables.
    """

    further_of: Callable[[Mapping[str, Any]], Mapping[str, Field]] = lambda values: {}
    all_further: Callable[[], Mapping[str, Field]] = dict

    @property
    def all_fields(self) -> Mapping[str, Field]:
        return {**self.fields, **self.all_further()}

    def fields_of(self, values: Mapping[str, Any]) -> Mapping[str, Field]:
        return {**super().fields_of(values), **self.further_of(values)}

    @cached_property
    def validator(self) -> Callable[[Any], bool]:
        return lambda value: _find_fault(self, value, "") is None


def declare(kind: Kind, description: str, example: Any = None, if_absent: str | None = None) -> Any:
    """Return an attribute of a `declaration`, without a default, that is a field of its table: a required one, unless
    the table itself completes it.
    """
    return dataclass_field(metadata={"field": Field(kind, description, example, if_absent)})


def optional(
    kind: Kind,
    description: str,
    example: Any = None,
    if_absent: str | None = None,
    *,
    only_if: tuple[str, tuple[str, ...]] | None = None,
    default: Any = None,
) -> Any:
    """Return an attribute that is an optional field of the table. default: its value where the field is left out."""
    field = Field(kind, description, example, if_absent, only_if)
    return dataclass_field(default=default, metadata={"field": field})


# A type checker takes any other call than one of these as a default, so that it knows which attributes are required.
@dataclass_transform(frozen_default=True, field_specifiers=(declare, dataclass_field))
def declaration(*, kw_only: bool = False) -> Callable[[type[Declared]], type[Declared]]:
    """Return a decorator for a class whose attributes are fields of a table: a frozen dataclass."""
    return dataclass(frozen=True, kw_only=kw_only)


def table_of(declared: type) -> Table:
    """Return the table of the fields that a `declaration` declares; reading returns an instance."""
    attributes = dataclass_fields(declared)
    declared_fields = {
        attribute.name: attribute.metadata["field"] for attribute in attributes if "field" in attribute.metadata
    }
    return Table(declared_fields, constructor=declared)


def find_fault(kind: Kind, value: Any, path: str = "") -> str | None:
    """Return the audit message if `value` is not of `kind`, beginning with its path; else None."""
    return None if kind.validator(value) else _find_fault(kind, value, path)


def _find_fault(kind: Kind, value: Any, path: str) -> str | None:
    try:
        kind.read(value, path)
    except Fault as error:
        return error.audit_message
    return None
