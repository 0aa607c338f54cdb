"""What a relation is: a sentence about fields that hold together, and the check of it."""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from protocol.evidence.relations.planned_lanes import Plan
from protocol.evidence.relations.recorded_lanes import Lane, Phase, Unit

__all__ = ["Differences", "Measure", "Relation", "Scope"]

Scope = Literal["record", "trajectory", "problem", "batch", "study"]
# What breaks a relation: the lane (or what else), and the field with both values.
Differences = Iterator[tuple[object, str]]


class Measure(NamedTuple):
    """What all lanes of a model share. heads: layers times KV heads. least, most: bytes of one slot of one of
    them; both the same as soon as a lane of the full cache tells it.
    """

    heads: int
    least: int
    most: int


class Relation(NamedTuple):
    """binds: fields of a record, by path; those of its trajectory begin with "trajectory.".

    Its check is one of three. of_lane says what is wrong with a lane, and nothing where it holds; in the
    scope "trajectory" it is asked of one lane of each kind. of_unit and of_phase give all that is wrong.
    doubt: what a reader may do where it breaks and an honest study may break it: then it cannot be told.
    """

    name: str
    says: str
    binds: tuple[str, ...]
    scope: Scope
    of_lane: Callable[[Plan, Lane, Measure], str] | None = None
    of_unit: Callable[[Plan, Unit], Differences] | None = None
    of_phase: Callable[[Phase], Differences] | None = None
    doubt: str = ""
