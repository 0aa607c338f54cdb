"""What an invariant is: a sentence about fields that agree with each other, and the check of it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

MAX_REPORTED = 3  # invariants that a failure names
MAX_CHARACTERS = 200  # characters of a message: the fields of a record may have any length
# Each violation of an invariant: the lane, line or file, and the field with both values.
Violations: TypeAlias = Iterator[tuple[object, str]]


class Invariant(NamedTuple):
    """A relation between fields that holds in every honest study. fields: fields of a record, by path; those of
    its trajectory begin with "trajectory.".

    scope: of which subjects it is checked. check: takes the arguments of such a subject; it returns what is wrong
    with it, and an empty string where the invariant holds, or yields every violation. remedy: what a reader can do
    where an honest study may break the invariant; a violation is then undetermined.
    """

    name: str
    sentence: str
    fields: tuple[str, ...]
    scope: str
    check: Callable[..., str | Violations]
    remedy: str = ""


def declare_invariant(
    name: str, scope: str, *fields: str, remedy: str = ""
) -> Callable[[Callable[..., str | Violations]], Invariant]:
    """Return a decorator that makes an invariant of its check, whose docstring is the sentence."""
    return lambda check: Invariant(name, " ".join((check.__doc__ or "").split()), fields, scope, check, remedy)


def list_declared(*modules: ModuleType) -> tuple[Invariant, ...]:
    """Return the invariants of modules, in the order in which they are defined."""
    return tuple(value for module in modules for value in vars(module).values() if isinstance(value, Invariant))


class Subject(NamedTuple):
    """What invariants of a scope are checked on. places: the lanes or lines that a message is about."""

    scope: str
    places: Sequence[object]
    arguments: tuple[Any, ...]


class Violation(NamedTuple):
    """A violated invariant: in how many places, the first place, and the message about it."""

    invariant: Invariant
    places: int
    place: str
    message: str

    def __str__(self) -> str:
        more = f" ({self.places} such)" if self.places > 1 else ""
        return ": ".join(part for part in (self.invariant.name, self.place, self.message) if part) + more


def find_violations(invariants: Sequence[Invariant], subjects: Iterable[Subject]) -> list[Violation]:
    """Return the invariants that the subjects violate, in their order."""
    by_scope: dict[str, list[Invariant]] = defaultdict(list)
    for invariant in invariants:
        by_scope[invariant.scope].append(invariant)
    violations: dict[str, Violation] = {}
    for subject in subjects:
        for invariant in by_scope[subject.scope]:
            if (result := invariant.check(*subject.arguments)) == "":
                continue
            messages = [(place, result) for place in subject.places] if isinstance(result, str) else result
            for place, message in messages:
                first = violations.get(invariant.name) or Violation(invariant, 0, str(place), message[:MAX_CHARACTERS])
                violations[invariant.name] = first._replace(places=first.places + 1)
    return [violations[invariant.name] for invariant in invariants if invariant.name in violations]


def describe_violations(violations: Sequence[Violation]) -> str:
    """Return the first violations as one text, with the number of the others; "" without any."""
    more = f"; {len(violations) - MAX_REPORTED} more relations" if len(violations) > MAX_REPORTED else ""
    return "; ".join(map(str, violations[:MAX_REPORTED])) + more


def describe_order(recorded: Sequence[str], expected: Sequence[str], noun: str) -> str:
    """Return what is wrong with the order of a journal's lines, each described by a text; "" if nothing is."""
    for number, (line, expected_line) in enumerate(zip(recorded, expected, strict=False), start=1):
        if line != expected_line:
            return f"line {number} is {line}, but {expected_line} is expected there"
    return f"{len(recorded)} {noun}, but {len(expected)} are registered" if len(recorded) > len(expected) else ""


def ordered_attempts(
    list_bodies: Callable[[Any], Sequence[Mapping[str, Any]]], describe: Callable[[Mapping[str, Any]], str]
) -> Invariant:
    """Return the invariant that attempts never decrease in a file. list_bodies: context -> its lines."""

    def find_late_attempt(context: Any) -> str:
        for previous, current in pairwise(list_bodies(context)):
            if current["attempt"] < previous["attempt"]:
                number = previous["attempt"]
                return f"{describe(current)}: attempt {current['attempt']} follows a line of attempt {number}"
        return ""

    sentence = "The attempt of a line is never before that of the line before."
    return Invariant("attempts", sentence, (), "file", find_late_attempt)
