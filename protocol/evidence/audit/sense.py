"""Whether the records of a study make sense: every relation between their fields, over both phases."""

from collections.abc import Iterable
from typing import NamedTuple

from protocol.evidence.findings import CannotTell, NotRun
from protocol.evidence.refusals import Refusal, Tampered
from protocol.evidence.relations import planned_lanes, recorded_lanes, vocabulary
from protocol.evidence.relations.listed import RELATIONS
from protocol.evidence.relations.of_memory import measure
from protocol.evidence.relations.recorded_lanes import Phase
from protocol.evidence.relations.relation import Differences, Measure, Relation
from protocol.evidence.run import records, registration
from protocol.evidence.run.registration import Registration

__all__ = ["Broken", "broken", "check"]

SHOWN = 3  # relations that a failure names
MOST = 200  # characters that are said of a difference: what a record holds is of any length
UNKNOWN = Measure(0, None)  # of a model of which no lane ran


class Broken(NamedTuple):
    """A relation that does not hold: how often, and where first."""

    relation: Relation
    lanes: int
    lane: str
    says: str

    def __str__(self) -> str:
        more = f" ({self.lanes} such)" if self.lanes > 1 else ""
        return f"{self.relation.name}: {self.lane}: {self.says}{more}"


def check(study: Registration) -> str:
    """What holds. Raises Tampered with the first relations that do not, CannotTell where all that does not
    hold may be an honest study's, NotRun before anything is recorded.
    """
    phases = [phase for phase in records.FOLDERS if study.place(phase).exists()]
    if not phases:
        raise NotRun
    found = broken(study, phases)
    if wrong := [one for one in found if not one.relation.doubt]:
        also = f"; {len(wrong) - SHOWN} more relations" if len(wrong) > SHOWN else ""
        raise Tampered("; ".join(map(str, wrong[:SHOWN])) + also)
    if found:
        raise CannotTell("; ".join(f"{one}; {one.relation.doubt}" for one in found))
    count = sum(len(study.probed if phase == "probe" else study.confirmed) for phase in phases)
    return f"{len(RELATIONS)} relations between fields hold in {count} records"


def broken(study: Registration, phases: Iterable[str]) -> list[Broken]:
    """The relations that do not hold, in order. Raises Tampered for a trajectory that cannot be read."""
    found: dict[str, Broken] = {}
    measures: dict[str, Measure] = {}
    words = vocabulary.of_bundle(study.bundle, study.lock.content)
    for name in sorted(phases):  # confirm first: a sweep's probe has no full cache to measure with
        shards = _shards(study, name)
        plan = planned_lanes.plan_of(study.lock.content, study.lock.digest, name, _winner(study), words)
        phase = Phase.of(plan, shards)
        for unit in recorded_lanes.units(phase, study.place(name)):
            if unit.plan.model not in measures and (own := measure(plan, unit)):
                measures[unit.plan.model] = own
            shared = measures.get(unit.plan.model, UNKNOWN)
            kinds = list(unit.kinds)
            for relation in RELATIONS:
                if (of_lane := relation.of_lane) is not None:
                    asked = kinds if relation.scope == "trajectory" else [[lane] for lane in unit.lanes]
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


def _shards(study: Registration, phase: str) -> list[list[records.Record]]:
    if phase == "confirm":
        return [read.records for read in study.shards.values()]
    return [study.probed] if study.probed else []


def _winner(study: Registration) -> str | None:
    """The candidate whose policy a sweep's arm has, as its selection says."""
    if not (study.swept and study.has(registration.SELECTION)):
        return None
    try:
        return str(study.selection.content["selected"]["winner"])
    except (Refusal, KeyError, TypeError):  # its own check says so
        return None
