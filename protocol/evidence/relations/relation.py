"""What an invariant is: a sentence about fields that agree with each other, and the check of it."""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from protocol.evidence.relations.planned_lanes import Plan
from protocol.evidence.relations.recorded_lanes import Lane, Phase, Unit

__all__ = ["Differences", "Measure", "Relation", "Scope"]

Scope = Literal["record", "trajectory", "problem", "batch", "study"]
# Each violation of an invariant: the lane (or file), and the field with both values.
Differences = Iterator[tuple[object, str]]


class Measure(NamedTuple):
    """What all lanes of a model share. heads: layers times KV heads. min_bytes, max_bytes: bounds of the
    bytes of one slot of one head; both are equal once a lane of the full cache determines them.
    """

    heads: int
    least: int
    most: int


class Relation(NamedTuple):
    """A relation between fields that must hold. fields: fields of a record, by path; those of its trajectory
    begin with "trajectory.".

    Exactly one of the three checks is set. check_lane returns what is wrong with a lane, and an empty string
    where the invariant holds; in the scope "trajectory" it is called for one lane of each group of equal
    lanes. check_unit and check_phase yield every violation. remedy: what a reader can do where an honest
    study may break the invariant; a violation is then undetermined.
    """

    name: str
    says: str
    binds: tuple[str, ...]
    scope: Scope
    of_lane: Callable[[Plan, Lane, Measure], str] | None = None
    of_unit: Callable[[Plan, Unit], Differences] | None = None
    of_phase: Callable[[Phase], Differences] | None = None
    doubt: str = ""
