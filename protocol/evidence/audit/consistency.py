"""Check the consistency of a study's records: all invariants between their fields, over both phases."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from protocol.evidence import registration
from protocol.evidence.invariants import planned_lanes, recorded_lanes, vocabulary
from protocol.evidence.invariants.invariant import Invariant, SlotBounds, Violations
from protocol.evidence.invariants.memory_invariants import narrow_slot_bounds
from protocol.evidence.invariants.planned_lanes import Plan
from protocol.evidence.invariants.recorded_lanes import Phase
from protocol.evidence.invariants.registry import INVARIANTS
from protocol.evidence.records import Record
from protocol.evidence.registration import Registration
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.refusals import Refusal, Tampered

__all__ = ["Violation", "check", "find_violations"]

MAX_REPORTED = 3  # invariants that a failure names
MAX_CHARACTERS = 200  # characters of a message: the fields of a record may have any length
UNKNOWN_MEASURE = SlotBounds(0, 1, 1)  # for a model of which no lane ran


class Violation(NamedTuple):
    """A violated invariant: in how many lanes, the first lane, and the message about it."""

    relation: Invariant
    lanes: int
    lane: str
    message: str

    def __str__(self) -> str:
        more = f" ({self.lanes} such)" if self.lanes > 1 else ""
        return f"{self.relation.name}: {self.lane}: {self.message}{more}"


def check(study: Registration) -> str:
    """Return how many invariants hold in how many records.

    Raises Tampered with the first violations, CannotTell where an honest study could have caused all of them,
    NotRun before anything is recorded.
    """
    violations: dict[str, Violation] = {}
    measures: dict[str, SlotBounds] = {}
    bundle_vocabulary = vocabulary.read_vocabularies(study.bundle, study.lock.content)
    count = 0
    for phase in (
        "confirm",
        "probe",
    ):  # the probe of a sweep lacks the full cache, from which the size of a slot follows
        if shards := _shards(study, phase):
            plan = planned_lanes.derive_plan(
                study.lock.content, study.lock.digest, phase, _winner(study), bundle_vocabulary
            )
            for violation in find_violations(plan, shards, study.phase_folder(phase), measures):
                violations.setdefault(violation.relation.name, violation)
            count += sum(map(len, shards))
    if not count:
        raise NotRun
    ordered = [violations[relation.name] for relation in INVARIANTS if relation.name in violations]
    if wrong := [violation for violation in ordered if not violation.relation.remedy]:
        more_text = f"; {len(wrong) - MAX_REPORTED} more relations" if len(wrong) > MAX_REPORTED else ""
        raise Tampered("; ".join(map(str, wrong[:MAX_REPORTED])) + more_text)
    if ordered:
        raise CannotTell("; ".join(f"{violation}; {violation.relation.remedy}" for violation in ordered))
    return f"{len(INVARIANTS)} relations between fields hold in {count} records"


def find_violations(
    plan: Plan, shards: Sequence[Sequence[Record]], folder: Path, measures: dict[str, SlotBounds]
) -> list[Violation]:
    """Return the invariants that the records of a phase violate, in the order of the registry.

    folder: of the side files. measures: memory measures by model, to which this call adds. Raises Tampered
    for a trajectory that cannot be read.
    """
    violations: dict[str, Violation] = {}
    phase = Phase.from_shards(plan, shards)
    for unit in recorded_lanes.read_units(phase, folder):
        groups, single_lanes = list(unit.distinct_lanes), [[lane] for lane in unit.lanes]
        memory = (
            narrow_slot_bounds(plan, [group[0] for group in groups], measures.get(unit.plan.model)) or UNKNOWN_MEASURE
        )
        if groups:
            measures[unit.plan.model] = memory
        for relation in INVARIANTS:
            if (check_lane := relation.check_lane) is not None:
                lane_groups = groups if relation.scope == "trajectory" else single_lanes
                messages = ((group, check_lane(plan, group[0], memory)) for group in lane_groups)
                _add_violations(
                    violations, relation, ((lane, message) for group, message in messages if message for lane in group)
                )
            if relation.check_unit is not None:
                _add_violations(violations, relation, relation.check_unit(plan, unit))
    for relation in INVARIANTS:
        if relation.check_phase is not None:
            _add_violations(violations, relation, relation.check_phase(phase))
    return [violations[relation.name] for relation in INVARIANTS if relation.name in violations]


def _add_violations(violations: dict[str, Violation], relation: Invariant, differences: Violations) -> None:
    for lane, message in differences:
        violation = violations.get(relation.name) or Violation(relation, 0, str(lane), message[:MAX_CHARACTERS])
        violations[relation.name] = violation._replace(lanes=violation.lanes + 1)


def _shards(study: Registration, phase: str) -> list[Sequence[Record]]:
    if phase == "confirm":
        return [content.records for content in study.shards.values()]
    return [study.probe_records] if study.probe_records else []


def _winner(study: Registration) -> str | None:
    """Return the candidate that the selection of a sweep chose; None without one."""
    if not (study.has_sweep and study.has(registration.SELECTION)):
        return None
    try:
        return str(study.selection.content["selected"]["winner"])
    except (Refusal, KeyError, TypeError):  # the check of the selection reports it
        return None
