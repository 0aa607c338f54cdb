"""What an invariant is: a sentence about fields that agree with each other, and the check of it."""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from protocol.evidence.invariants.planned_lanes import Plan
from protocol.evidence.invariants.recorded_lanes import Lane, Phase, Unit

__all__ = ["Invariant", "Scope", "SlotBounds", "Violations"]

Scope = Literal["record", "trajectory", "problem", "batch", "study"]
# Each violation of an invariant: the lane (or file), and the field with both values.
Violations = Iterator[tuple[object, str]]


class SlotBounds(NamedTuple):
    """What all lanes of a model share. heads: layers times KV heads. min_bytes, max_bytes: bounds of the
    bytes of one slot of one head; both are equal once a lane of the full cache determines them.
    """

    heads: int
    min_bytes: int
    max_bytes: int


class Invariant(NamedTuple):
    """A relation between fields that must hold. fields: fields of a record, by path; those of its trajectory
    begin with "trajectory.".

    Exactly one of the three checks is set. check_lane returns what is wrong with a lane, and an empty string
    where the invariant holds; in the scope "trajectory" it is called for one lane of each group of equal
    lanes. check_unit and check_phase yield every violation. remedy: what a reader can do where an honest
    study may break the invariant; a violation is then undetermined.
    """

    name: str
    sentence: str
    fields: tuple[str, ...]
    scope: Scope
    check_lane: Callable[[Plan, Lane, SlotBounds], str] | None = None
    check_unit: Callable[[Plan, Unit], Violations] | None = None
    check_phase: Callable[[Phase], Violations] | None = None
    remedy: str = ""
