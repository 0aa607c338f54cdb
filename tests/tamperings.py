"""Tamperings of a document, generated from the declaration of its fields.

Each is one step away from the honest content: a field is removed, an optional or an undeclared field is added, a value
becomes another one of its kind or one of another kind, two neighbours exchange their values, an entry is repeated.
"""

import copy
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from protocol.formats.fields import ANYTHING, Choice, Kind, ListOf, MapOf, OrNull, Table

Path = tuple[str | int, ...]
ADDED = "approved_by"


class Tampering(NamedTuple):
    """how: what is done to the value at `path`. value: what stands there afterwards; ... means nothing."""

    how: str
    path: Path
    value: Any

    def __str__(self) -> str:
        return f"{format_path(self.path)} {self.how}"

    @property
    def breaks_form(self) -> bool:
        """Whether a field is gone, is unknown or has a value of another kind."""
        is_gone = self.how == "removed" and isinstance(self.path[-1], str)
        return is_gone or self.path[-1] == ADDED or self.how == "of another kind"

    def apply(self, content: Any) -> None:
        """Edit `content` in place."""
        *way, last = self.path
        for step in way:
            content = content[step]
        if self.value is ...:
            del content[last]
        else:
            content[last] = copy.deepcopy(self.value)

    def applied(self, content: Any) -> Any:
        """Return an edited copy; the containers outside the path are those of `content`."""
        edited = copy.copy(content)
        level = edited
        for step in self.path[:-1]:
            level[step] = copy.copy(level[step])
            level = level[step]
        Tampering(self.how, self.path[-1:], self.value).apply(level)
        return edited


def format_path(path: Path) -> str:
    return ".".join(map(str, path))


def generate(kind: Kind, content: Any, path: Path = ()) -> Iterator[Tampering]:
    """Yield every tampering of `content`, which is of `kind`. Of a list the first, middle and last entries change."""
    if isinstance(kind, OrNull) and content is not None:
        kind = kind.kind
    if isinstance(content, Mapping):
        yield Tampering("added", (*path, ADDED), next(iter(content.values()), "a committee"))
        for name in kind.all_fields.keys() - content.keys() if isinstance(kind, Table) else ():
            for value in other_values(kind.all_fields[name].kind, None)[:1]:
                yield Tampering("added", (*path, name), value)
        for name in content:
            yield Tampering("removed", (*path, name), ...)
        yield from _swaps(path, list(content), content)
        for name, value in content.items():
            yield from _inside(_entry_kind(kind, name), value, (*path, name))
    elif isinstance(content, list) and content:
        places = sorted({0, len(content) // 2, len(content) - 1})
        for place in {0, len(content) - 1}:
            yield Tampering("removed", (*path, place), ...)
        if path:
            yield Tampering("repeated", path, [*content, content[-1]])
        yield from _swaps(path, places, content)
        for place in places:
            yield from _inside(_entry_kind(kind, place), content[place], (*path, place))


def _inside(kind: Kind, value: Any, path: Path) -> Iterator[Tampering]:
    yield Tampering("of another kind", path, other_kind(value))
    if isinstance(value, Mapping | list) and value:
        yield from generate(kind, value, path)
    else:
        for number, other in enumerate(other_values(kind, value)):
            yield Tampering(f"changed{f' ({number + 1})' if number else ''}", path, other)


def _swaps(path: Path, names: list[Any], content: Any) -> Iterator[Tampering]:
    """Yield the exchange of every two neighbours that differ and are of one type."""
    for one, other in pairwise(names):
        if type(content[one]) is type(content[other]) and content[one] != content[other] and path:
            swapped = copy.copy(content)
            swapped[one], swapped[other] = content[other], content[one]
            yield Tampering(f"{one} and {other} swapped", path, swapped)


def _entry_kind(kind: Kind, name: str | int) -> Kind:
    match kind:
        case Table() if name in kind.all_fields:
            return kind.all_fields[str(name)].kind
        case MapOf() | ListOf():
            return kind.entry_kind
    return ANYTHING


def other_values(kind: Kind, value: Any) -> list[Any]:
    """Return other values of the same kind; a choice has one for each other option."""
    if isinstance(kind, OrNull):
        return [*([] if value is None else [None]), *other_values(kind.kind, value)]
    if isinstance(kind, Choice):
        return [option for option in kind.options if option != value]
    match value:
        case bool():
            candidates: list[Any] = [not value]
        case int():
            candidates = [value + 1]
        case str():
            turned = value.translate(str.maketrans("0123456789abcdef", "123456789abcdef0"))
            candidates = [turned, f"{value}8", f"{value} and more"]
        case None:
            candidates = [8, "8", "0" * 64, "0.500000", [8], {}]
        case _:
            candidates = [["8"]] if isinstance(value, list) else [{ADDED: "8"}]
    return [candidate for candidate in candidates if candidate != value and kind.accepts(candidate)][:1]


def other_kind(value: Any) -> Any:
    """Return a value that no field takes which takes `value`."""
    return [value] if isinstance(value, str | int | None) else str(value)


def replacements(whole: Any, values: list[Any], path: Path = ()) -> Iterator[Any]:
    """Yield `whole` with one field of a table in it, at most four deep, replaced by each of `values`, removed or added.

    Of a large table the first forty fields.
    """
    inside = whole
    for step in path:
        inside = inside[step]
    for name in (*list(inside)[:40], "other"):
        for value in (*values, *([...] if name in inside else [])):
            yield Tampering("replaced", (*path, name), value).applied(whole)
        if isinstance(inside.get(name), dict) and len(path) < 3:
            yield from replacements(whole, values, (*path, name))
