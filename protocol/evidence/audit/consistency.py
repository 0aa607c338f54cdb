"""Check the consistency of a study's records: all invariants between their fields, over both phases."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from protocol.evidence import registration
from protocol.evidence.invariants import invariant, planned_lanes, recorded_lanes, vocabulary
from protocol.evidence.invariants.invariant import Subject, Violation
from protocol.evidence.invariants.memory_invariants import narrow_slot_bounds
from protocol.evidence.invariants.planned_lanes import Plan
from protocol.evidence.invariants.recorded_lanes import Phase, SlotBounds
from protocol.evidence.invariants.registry import INVARIANTS
from protocol.evidence.records import Record
from protocol.evidence.registration import Registration
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.refusals import Refusal, Tampered

UNKNOWN_MEASURE = SlotBounds(0, 1, 1)  # for a model of which no lane ran


def check(study: Registration) -> str:
    """Return how many invariants hold in how many records.

    Raises Tampered with the first violations, CannotTell where an honest study could have caused all of them,
    NotRun before anything is recorded.
    """
    violations: dict[str, Violation] = {}
    measures: dict[str, SlotBounds] = {}
    bundle_vocabulary = vocabulary.read_vocabularies(study)
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
                violations.setdefault(violation.invariant.name, violation)
            count += sum(map(len, shards))
    if not count:
        raise NotRun
    ordered = [violations[relation.name] for relation in INVARIANTS if relation.name in violations]
    if wrong := [violation for violation in ordered if not violation.invariant.remedy]:
        raise Tampered(invariant.describe_violations(wrong))
    if ordered:
        raise CannotTell("; ".join(f"{violation}; {violation.invariant.remedy}" for violation in ordered))
    return f"{len(INVARIANTS)} relations between fields are satisfied in {count} records"


def find_violations(
    plan: Plan, shards: Sequence[Sequence[Record]], folder: Path, measures: dict[str, SlotBounds]
) -> list[Violation]:
    """Return the invariants that the records of a phase violate, in the order of the registry.

    folder: of the side files. measures: memory measures by model, to which this call adds. Raises Tampered
    for a trajectory that cannot be read.
    """
    return invariant.find_violations(
        INVARIANTS, _iter_subjects(plan, Phase.from_shards(plan, shards), folder, measures)
    )


def _iter_subjects(plan: Plan, phase: Phase, folder: Path, measures: dict[str, SlotBounds]) -> Iterator[Subject]:
    """Yield lanes, groups of lanes with equal trajectories and units of work, in their order, then the phase."""
    for unit in recorded_lanes.read_units(phase, folder):
        groups = list(unit.distinct_lanes)
        memory = (
            narrow_slot_bounds(plan, [group[0] for group in groups], measures.get(unit.plan.model)) or UNKNOWN_MEASURE
        )
        if groups:
            measures[unit.plan.model] = memory
        yield from (Subject("record", [lane], (plan, lane, memory)) for lane in unit.lanes)
        yield from (Subject("trajectory", group, (plan, group[0], memory)) for group in groups)
        yield from (Subject(scope, (), (plan, unit)) for scope in ("problem", "batch"))
    yield Subject("study", (), (phase,))


def _shards(study: Registration, phase: str) -> list[Sequence[Record]]:
    if phase == "confirm":
        return study.own_shards
    return [study.probe_records] if study.probe_records else []


def _winner(study: Registration) -> str | None:
    """Return the candidate that the selection of a sweep chose; None without one."""
    if not (study.has_sweep and study.has(registration.SELECTION)):
        return None
    try:
        return str(study.selection.content["selected"]["winner"])
    except (Refusal, KeyError, TypeError):  # the check of the selection reports it
        return None
