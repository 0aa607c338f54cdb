"""Check the consistency of a study's records: all invariants between their fields, over both phases."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from protocol.evidence.findings import CannotTell, NotRun
from protocol.evidence.refusals import Refusal, Tampered
from protocol.evidence.relations import planned_lanes, recorded_lanes, vocabulary
from protocol.evidence.relations.listed import RELATIONS
from protocol.evidence.relations.of_memory import measure
from protocol.evidence.relations.planned_lanes import Plan
from protocol.evidence.relations.recorded_lanes import Phase
from protocol.evidence.relations.relation import Differences, Measure, Relation
from protocol.evidence.run import registration
from protocol.evidence.run.records import Record
from protocol.evidence.run.registration import Registration

__all__ = ["Broken", "broken", "check"]

SHOWN = 3  # invariants that a failure names
MOST = 200  # characters of a message: the fields of a record may have any length
UNKNOWN = Measure(0, 1, 1)  # for a model of which no lane ran


class Broken(NamedTuple):
    """A violated invariant: in how many lanes, the first lane, and the message about it."""

    relation: Relation
    lanes: int
    lane: str
    says: str

    def __str__(self) -> str:
        more = f" ({self.lanes} such)" if self.lanes > 1 else ""
        return f"{self.relation.name}: {self.lane}: {self.says}{more}"


def check(study: Registration) -> str:
    """Return how many invariants hold in how many records.

    Raises Tampered with the first violations, CannotTell where an honest study could have caused all of them,
    NotRun before anything is recorded.
    """
    found: dict[str, Broken] = {}
    measures: dict[str, Measure] = {}
    words = vocabulary.of_bundle(study.bundle, study.lock.content)
    count = 0
    for phase in (
        "confirm",
        "probe",
    ):  # the probe of a sweep lacks the full cache, from which the size of a slot follows
        if shards := _shards(study, phase):
            plan = planned_lanes.plan_of(study.lock.content, study.lock.digest, phase, _winner(study), words)
            for one in broken(plan, shards, study.place(phase), measures):
                found.setdefault(one.relation.name, one)
            count += sum(map(len, shards))
    if not count:
        raise NotRun
    ordered = [found[relation.name] for relation in RELATIONS if relation.name in found]
    if wrong := [one for one in ordered if not one.relation.doubt]:
        also = f"; {len(wrong) - SHOWN} more relations" if len(wrong) > SHOWN else ""
        raise Tampered("; ".join(map(str, wrong[:SHOWN])) + also)
    if ordered:
        raise CannotTell("; ".join(f"{one}; {one.relation.doubt}" for one in ordered))
    return f"{len(RELATIONS)} relations between fields hold in {count} records"


def broken(
    plan: Plan, shards: Sequence[Sequence[Record]], place: Path, measures: dict[str, Measure]
) -> list[Broken]:
    """Return the invariants that the records of a phase violate, in the order of the registry.

    folder: of the side files. measures: memory measures by model, to which this call adds. Raises Tampered
    for a trajectory that cannot be read.
    """
    found: dict[str, Broken] = {}
    phase = Phase.of(plan, shards)
    for unit in recorded_lanes.units(phase, place):
        kinds, alone = list(unit.kinds), [[lane] for lane in unit.lanes]
        shared = measure(plan, [kind[0] for kind in kinds], measures.get(unit.plan.model)) or UNKNOWN
        if kinds:
            measures[unit.plan.model] = shared
        for relation in RELATIONS:
            if (of_lane := relation.of_lane) is not None:
                asked = kinds if relation.scope == "trajectory" else alone
                told = ((kind, of_lane(plan, kind[0], shared)) for kind in asked)
                _note(found, relation, ((lane, says) for kind, says in told if says for lane in kind))
            if relation.of_unit is not None:
                _note(found, relation, relation.of_unit(plan, unit))
    for relation in RELATIONS:
        if relation.of_phase is not None:
            _note(found, relation, relation.of_phase(phase))
    return [found[relation.name] for relation in RELATIONS if relation.name in found]


def _note(found: dict[str, Broken], relation: Relation, differences: Differences) -> None:
    for lane, says in differences:
        first = found.get(relation.name) or Broken(relation, 0, str(lane), says[:MOST])
        found[relation.name] = first._replace(lanes=first.lanes + 1)


def _shards(study: Registration, phase: str) -> list[Sequence[Record]]:
    if phase == "confirm":
        return [read.records for read in study.shards.values()]
    return [study.probed] if study.probed else []


def _winner(study: Registration) -> str | None:
    """Return the candidate that the selection of a sweep chose; None without one."""
    if not (study.swept and study.has(registration.SELECTION)):
        return None
    try:
        return str(study.selection.content["selected"]["winner"])
    except (Refusal, KeyError, TypeError):  # the check of the selection reports it
        return None
