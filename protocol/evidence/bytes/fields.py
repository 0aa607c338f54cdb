"""Declarations of document fields, from which both the strict reader and the JSON Schema follow.

A kind says what one value may be: as text, as a test and as a schema. A field is a kind with a description; a
table is fields by name. A class whose fields are `Annotated[type, Field(...)]` is a declaration too: see
`table_of` and `to_json`. A value of another kind is a `Fault`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from functools import cached_property
from typing import Any, NamedTuple, get_type_hints

from protocol.evidence.bytes.canonical import LARGEST
from protocol.evidence.bytes.typed import Fault as Fault
from protocol.evidence.bytes.typed import meant, typed, wrong
from protocol.evidence.refusals import NONE_MEANT, near, unknown

Schema = dict[str, Any]
MISTYPED = 0.6  # least similarity of an unknown field to a missing one


class Kind:
    """What a value may be. `expected` is text that follows "write" and "it must be"."""

    share = False  # whether it is a number up to 1, which people may write in percent

    @property
    def words(self) -> str:
        raise NotImplementedError

    def holds(self, value: Any) -> bool:
        raise NotImplementedError

    @cached_property
    def fits(self) -> Callable[[Any], bool]:
        """A function that says whether `read` takes a value and all inside it; built once for many values."""
        return self.holds

    def schema(self) -> Schema:
        raise NotImplementedError

    def read(self, value: Any, at: str) -> Any:
        """Return `value` as a Python value. Raises Fault. path: of the value, for messages."""
        if not self.holds(value):
            raise self.fault(value, at)
        return value

    def content(self, value: Any) -> Any:
        """Return a value that `read` returned, as canonical JSON has it."""
        return value

    def missing(self, name: str, example: Any = None) -> str:
        """Return the message for a missing field `name` of this kind."""
        given = "..." if example is None else typed(example)
        return f"missing; add {name} = {given}{self.words and f' ({self.words})'}"

    def fault(self, value: Any, at: str, words: str = "") -> Fault:
        """Return the fault of `value`. expected: overrides the text of the kind."""
        fix = meant(value, self.fits, share=self.share)
        return wrong(value, at, words or self.words, fix, text=self.schema().get("type") == "string")


@dataclass(frozen=True)
class Plain(Kind):
    """A value that the function `test` accepts. json: its schema."""

    test: Callable[[Any], bool]
    json: Schema
    words: str = "anything"

    def holds(self, value: Any) -> bool:
        return self.test(value)

    def schema(self) -> Schema:
        return self.json


ANYTHING = Plain(lambda value: True, {})  # checked by its reader
FLAG = Plain(lambda value: isinstance(value, bool), {"type": "boolean"}, "true or false")


@dataclass(frozen=True)
class Text(Kind):
    pattern: str = ""
    words: str = "text"

    def holds(self, value: Any) -> bool:
        return isinstance(value, str) and (not self.pattern or bool(re.fullmatch(self.pattern, value)))

    @cached_property
    def fits(self) -> Callable[[Any], bool]:
        matches = re.compile(self.pattern or "(?s:.*)").fullmatch
        return lambda value: isinstance(value, str) and matches(value) is not None

    def schema(self) -> Schema:
        return {"type": "string"} | ({"pattern": f"^({self.pattern})$"} if self.pattern else {})


DIGEST = Text("[0-9a-f]{64}", "a SHA-256 digest in lower-case hex")


@dataclass(frozen=True)
class Whole(Kind):
    least: int = 0
    most: int | None = None

    @property
    def words(self) -> str:
        most = "2^53-1" if self.most == LARGEST else self.most
        return f"a whole number from {self.least}" + ("" if most is None else f" to {most}")

    def holds(self, value: Any) -> bool:
        return type(value) is int and self.least <= value and (self.most is None or value <= self.most)

    def schema(self) -> Schema:
        most = {} if self.most is None else {"maximum": self.most}
        return {"type": "integer", "minimum": self.least, **most}


class Choice(Kind):
    """One of a few texts. noun: what they name, if not the field. corrections: as in `suggest`."""

    listing = ""  # the command that lists all options, where they are many

    def __init__(self, *options: str, of: str = "", meant: Mapping[str, str] = NONE_MEANT):
        self.options, self.of, self.meant = options, of, meant

    @property
    def words(self) -> str:
        return f"one of {', '.join(self.options)}"

    def holds(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.options

    def schema(self) -> Schema:
        return {"enum": list(self.options)}

    def fault(self, value: Any, at: str, words: str = "") -> Fault:
        if not isinstance(value, str):
            return super().fault(value, at)
        what = self.of or at.rpartition(".")[2]
        other = unknown(what, value, self.options, self.listing, self.meant)
        return Fault(f"{at}: {other}", super().fault(value, at).found)


@dataclass(frozen=True)
class OrNull(Kind):
    kind: Kind

    @property
    def words(self) -> str:
        return f"{self.kind.words}, or null"

    def holds(self, value: Any) -> bool:
        return value is None or self.kind.holds(value)

    @cached_property
    def fits(self) -> Callable[[Any], bool]:
        inner = self.kind.fits
        return lambda value: value is None or inner(value)

    def schema(self) -> Schema:
        return {"oneOf": [{"type": "null"}, self.kind.schema()]}

    def read(self, value: Any, at: str) -> Any:
        if value is not None and isinstance(self.kind, Table | ListOf | MapOf):
            return self.kind.read(value, at)
        return super().read(value, at)


@dataclass(frozen=True)
class ListOf(Kind):
    """A list, read as a tuple. expected: if set, it describes the list together with all its entries."""

    each: Kind
    least: int = 0
    most: int | None = None
    words: str = ""

    def holds(self, value: Any) -> bool:
        long = isinstance(value, list) and self.least <= len(value) <= (self.most or len(value))
        return long and (not self.words or all(map(self.each.holds, value)))

    @cached_property
    def fits(self) -> Callable[[Any], bool]:
        each, bounded = self.each.fits, replace(self, words="").holds
        return lambda value: bounded(value) and all(map(each, value))

    def schema(self) -> Schema:
        bounds = {"minItems": self.least or None, "maxItems": self.most}
        stated = {name: bound for name, bound in bounds.items() if bound is not None}
        return {"type": "array", "items": self.each.schema(), **stated}

    def read(self, value: Any, at: str) -> Any:
        if not self.holds(value):
            least = {0: "", 1: " with at least one entry"}.get(self.least, f" of {self.least} entries")
            raise self.fault(value, at, self.words or f"a list{least}")
        return tuple(self.each.read(entry, f"{at}[{place}]") for place, entry in enumerate(value))

    def content(self, value: Any) -> Any:
        return [self.each.content(one) for one in value]


def row(*kinds: Kind, words: str) -> Kind:
    """Return the kind of a list with a fixed kind for each position."""

    def test(value: Any) -> bool:
        long = isinstance(value, list) and len(value) == len(kinds)
        return long and all(kind.holds(one) for kind, one in zip(kinds, value, strict=True))

    ends = {"minItems": len(kinds), "maxItems": len(kinds)}
    return Plain(test, {"type": "array", "prefixItems": [kind.schema() for kind in kinds], **ends}, words)


@dataclass(frozen=True)
class MapOf(Kind):
    """An object with arbitrary keys, whose values are all of one kind."""

    each: Kind
    words: str = "an object"

    def holds(self, value: Any) -> bool:
        return isinstance(value, Mapping)

    @cached_property
    def fits(self) -> Callable[[Any], bool]:
        each = self.each.fits
        return lambda value: isinstance(value, Mapping) and all(map(each, value.values()))

    def schema(self) -> Schema:
        return {"type": "object", "additionalProperties": self.each.schema()}

    def read(self, value: Any, at: str) -> Any:
        super().read(value, at)
        return {key: self.each.read(entry, f"{at}.{key}") for key, entry in value.items()}


def _parts(made: Any) -> Mapping[str, Any]:
    parts: Mapping[str, Any] = made._asdict() if hasattr(made, "_asdict") else vars(made)
    return parts


class Field(NamedTuple):
    """A field of a table.

    if_absent: what a missing field means; None if the field is required. only_if: another field of the table
    and the values of it for which this field applies; for any other value the field is unknown.
    """

    kind: Kind
    meaning: str
    example: Any = None
    without: str | None = None
    when: tuple[str, tuple[str, ...]] | None = None

    def stands(self, values: Mapping[str, Any]) -> bool:
        return self.when is None or values.get(self.when[0]) in self.when[1]

    def schema(self) -> Schema:
        left_out = f" Left out: {self.without}." if self.without else ""
        return self.kind.schema() | {"description": f"{self.meaning}{left_out}", **self._stated()}

    def _stated(self) -> Schema:
        """Return the example, and the default where `if_absent` is a value of the kind."""
        value = int(self.without) if self.without and self.without.isdecimal() else self.without
        default = isinstance(self.kind, Whole | Choice) and self.kind.holds(value)
        example = {} if self.example is None else {"examples": [self.example]}
        return ({"default": value} if default else {}) | example


@dataclass(frozen=True)
class Table(Kind):
    """Fields by name.

    constructor: makes the value that reading returns. attributes: returns the fields of such a value.
    allow_extra: whether undeclared fields are accepted. corrections: as in `suggest`, for field names.
    """

    fields: Mapping[str, Field]
    made: Callable[..., Any] = dict
    parts: Callable[[Any], Mapping[str, Any]] = _parts
    others: bool = False
    words: str = "a table"
    meant: Mapping[str, str] = dataclass_field(default_factory=dict)

    @property
    def needed(self) -> tuple[str, ...]:
        """The required fields."""
        fields = self.fields.items()
        return tuple(name for name, field in fields if field.without is None and field.when is None)

    def holds(self, value: Any) -> bool:
        return isinstance(value, Mapping)

    @cached_property
    def fits(self) -> Callable[[Any], bool]:
        if any(field.when for field in self.fields.values()):
            return lambda value: _fault(self, value, "") is None
        known = {name: field.kind.fits for name, field in self.fields.items()}
        needed, others = set(self.needed), self.others
        return lambda value: (
            isinstance(value, Mapping)
            and needed <= value.keys()
            and all(known[name](one) if name in known else others for name, one in value.items())
        )

    def schema(self) -> Schema:
        return {
            "type": "object",
            "properties": {name: field.schema() for name, field in self.fields.items()},
            "required": list(self.needed),
            "additionalProperties": self.others,
        } | ({"allOf": conditions} if (conditions := self._conditions()) else {})

    def _conditions(self) -> list[Schema]:
        return [
            {
                "if": {"properties": {field.when[0]: {"enum": list(field.when[1])}}},
                "then": {"required": [name] if field.without is None else []},
                "else": {"properties": {name: False}},
            }
            for name, field in self.fields.items()
            if field.when is not None
        ]

    def missing(self, name: str, example: Any = None) -> str:
        return f"missing; add the table [{name}] with {', '.join(self.needed)}"

    def content(self, value: Any) -> dict[str, Any]:
        """Return the fields that were written, without those that were left out."""
        parts = self.parts(value)
        written = {name: parts[name] for name in self.fields if parts.get(name) not in (None, ())}
        return {name: self.fields[name].kind.content(part) for name, part in written.items()}

    def read(self, value: Any, at: str) -> Any:
        if not isinstance(value, Mapping):
            what = f"[{at}], with one bracket" if isinstance(value, list) and at.isidentifier() else "a table"
            raise Fault(f"{at}: write {what}, not {typed(value)}", f"{at}: must be an object")
        standing = {name: field for name, field in self.fields.items() if field.stands(value)}
        more = [name for name in value if name not in standing and not self.others]
        absent = [name for name, field in standing.items() if field.without is None and name not in value]
        wrong = sorted(map(str, (*absent, *more)))
        found = (f"{at}: " if at else "") + f"the fields {wrong} are missing or unknown"
        prefix = f"{at}." if at else ""
        read = {}
        for name, field in standing.items():
            if name in absent:
                if typo := self._mistyped(name, more):
                    raise Fault(f"{prefix}{name}: {typo}", found)
                fix = field.kind.missing(name, field.example)
                raise Fault(f"{prefix}{name}: {fix}", found, missing=name)
            if name in value:
                read[name] = field.kind.read(value[name], f"{prefix}{name}")
        if more:
            said = self._unknown(more[0], value)
            other = "" if "did you mean" in said or {more[0]} & {*self.meant, *self.fields} else more[0]
            raise Fault(f"{prefix}{more[0]}: {said}", found, unknown=other)
        return self.made(**read)

    def _mistyped(self, name: str, more: list[str]) -> str:
        """Return the message for a missing field that is probably one of the unknown ones; else ""."""
        for other in more:
            fix = self.meant.get(other, "")
            if fix == name or near(other, [name], MISTYPED) or near(name, [other]):
                return f"missing; {other!r} is unknown and was probably meant; rename it"
            if fix.startswith(f"write {name}:"):
                return f"missing; {other!r} is unknown; {fix}"
        return ""

    def _unknown(self, name: str, value: Mapping[str, Any]) -> str:
        if (field := self.fields.get(name)) and field.when:
            other = field.when[0]
            return f"unknown field {name!r} where {other} is {value.get(other)!r}; leave it out"
        fields = [name for name, field in self.fields.items() if field.stands(value)]
        return unknown("field", name, fields, meant=self.meant)


def declared(of: type, **more: Field) -> Table:
    """Return the table of a class's annotated fields and `extra_fields`; reading returns an instance."""
    hints = get_type_hints(of, include_extras=True)
    own = {
        name: field
        for name, hint in hints.items()
        for field in getattr(hint, "__metadata__", ())
        if isinstance(field, Field)
    }
    return Table(own | more, made=of)


def fault(kind: Kind, value: Any, at: str = "") -> str | None:
    """Return the audit message if `value` is not of `kind`, beginning with its path; else None."""
    return None if kind.fits(value) else _fault(kind, value, at)


def _fault(kind: Kind, value: Any, at: str) -> str | None:
    try:
        kind.read(value, at)
    except Fault as found:
        return found.found
    return None
