"""The records of one phase in the form that invariants check: lanes with their trajectories, unit by unit."""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from protocol.evidence.bytes import fields
from protocol.evidence.refusals import Tampered
from protocol.evidence.relations.planned_lanes import FULL, Arm, Cell, Plan, UnitPlan
from protocol.evidence.run import records
from protocol.evidence.run.record_fields import TRAJECTORY
from protocol.evidence.run.records import Key, Record

__all__ = ["FORMS", "Lane", "Phase", "Seen", "Trajectory", "Unit", "by_problem", "units"]


class Trajectory(NamedTuple):
    """What a lane held at each step. slots: over all layers and KV heads; allocated: bytes; heads: layers
    times KV heads.
    """

    held: Sequence[int]
    allocated: Sequence[int]
    heads: int


NOTHING = Trajectory((), (), 1)
# Fields of a record, besides the cache, that describe a lane's memory.
SAID = ("trajectory", "prompt_tokens", "slots", "tokens", "thought", "stop")


class Lane:
    """A record of a registered lane. has_trajectory: it ended well and its trajectory was read. query_tokens:
    tokens that were fed between the first eviction and the first new token, derived from the trajectory.
    """

    __slots__ = (
        "arm",
        "body",
        "cache",
        "cell",
        "costs",
        "outside",
        "place",
        "query",
        "ran",
        "trajectory",
    )

    def __init__(self, record: Record, cell: Cell, arm: Arm, place: tuple[int, int, int], outside: bool):
        self.body, self.costs = record["body"], record["costs"]
        self.cell, self.arm, self.outside = cell, arm, outside
        self.place = place  # indices of its unit, and within that of its problem and its cell
        self.cache: Mapping[str, Any] = self.body["cache"] or {}
        self.trajectory = NOTHING
        self.ran = False
        self.query = 0

    def __str__(self) -> str:
        return str(records.key(self.body))

    @property
    def full(self) -> bool:
        return self.cell.budget == FULL

    @property
    def events(self) -> list[list[int]]:
        events: list[list[int]] = self.cache["events"]
        return events

    @property
    def fed(self) -> int:
        """New tokens that were fed: all of them if the answer ended by a stop token, else all but the last.
        """
        tokens: int = self.body["tokens"]
        return tokens - int(self.body["stop"] == "length")

    @property
    def settled(self) -> int | None:
        """The step at which the mark that ended the thinking was fed: no eviction happens then or later."""
        thought: int | None = self.body.get("thought")
        return thought if thought is not None and thought <= self.fed else None

    def show(self, trajectory: Trajectory) -> None:
        self.trajectory, self.ran = trajectory, bool(self.cache)
        if self.ran and self.outside and len(trajectory.held) > 1:
            again = self.events[1:2]
            grown = again[0][1] if again and again[0][0] == 0 else trajectory.held[1]
            self.query = (grown - trajectory.held[0]) // trajectory.heads


class Unit:
    """The records of a unit, in the order of the lines. Trajectories are set only while the unit is checked.
    """

    def __init__(self, plan: UnitPlan, lanes: list[Lane]):
        self.plan, self.lanes = plan, lanes
        self.side: list[Trajectory] | None = None  # of its side file, if it has exactly one

    @cached_property
    def whole(self) -> bool:
        """Whether every lane of the unit is recorded, all by one attempt; only then the batch can be
        simulated.
        """
        planned = len(self.plan.problems) * len(self.plan.cells)
        return len(self.lanes) == planned and len({lane.costs["attempt"] for lane in self.lanes}) == 1

    @property
    def kinds(self) -> Iterable[list[Lane]]:
        """Lanes with a trajectory, grouped by equal trajectory and equal memory fields."""
        kinds: dict[Any, list[list[Lane]]] = {}
        for lane in self.lanes:
            if not lane.ran:
                continue
            said = (*(lane.body.get(name) for name in SAID), lane.cell.budget, lane.arm)
            for kind in kinds.setdefault(said, []):
                if kind[0].cache == lane.cache:
                    kind.append(lane)
                    break
            else:
                kinds[said].append([lane])
        return itertools.chain.from_iterable(kinds.values())


class Seen(NamedTuple):
    """The part of a lane's record that study-wide invariants need: of up to a million records, no more than
    this is in memory at once. version_fields: whether each field of VERSION_FIELDS is present. text_digest:
    of a lane that ended well.
    """

    key: Key
    place: tuple[int, int, int]  # indices of its unit, and within that of its problem and its cell
    shard: int
    line: int  # from 0
    attempt: int
    prompt: str
    forms: tuple[bool, ...]
    right: bool
    text: bytes | None

    def __str__(self) -> str:
        return str(self.key)


# Fields that only some versions of the record format have; all records of a task must have the same.
FORMS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = MappingProxyType(
    {
        "cache.granted": lambda body: "granted" in (body["cache"] or {}),
        "a place in a side file": lambda body: "#" in (body["trajectory"] or "#"),
        "grade_second": lambda body: "grade_second" in body,
    }
)


class Phase(NamedTuple):
    """All records of a phase: by shard in the order of the lines, and by unit. unregistered: the keys of
    records whose lane is not registered.
    """

    plan: Plan
    records: Sequence[Sequence[Record]]
    shards: list[list[Seen]]
    units: list[list[Seen]]
    strange: list[str]

    @classmethod
    def of(cls, plan: Plan, shards: Sequence[Sequence[Record]]) -> "Phase":
        places = {
            (unit.model, unit.task, problem): (number, at)
            for number, unit in enumerate(plan.units)
            for at, problem in enumerate(unit.problems)
        }
        cells = {
            (unit.model, unit.task): {cell: at for at, cell in enumerate(unit.cells)} for unit in plan.units
        }
        forms: dict[tuple[bool, ...], tuple[bool, ...]] = {}
        phase = cls(plan, shards, [], [[] for _ in plan.units], [])
        for shard, found in enumerate(shards):
            phase.shards.append([])
            for line, (record, head) in enumerate(zip(found, records.heads(found), strict=True)):
                body, key = record["body"], head.key
                number, at = places.get((key.model, key.task, key.problem), (-1, -1))
                among = cells.get((key.model, key.task), {}).get(Cell(key.budget, key.arm, key.seed))
                if number < 0 or among is None:
                    phase.strange.append(str(key))
                    continue
                own: tuple[bool, ...] = ()
                text = None
                if head.state == "ok":
                    own = tuple(has(body) for has in FORMS.values())
                    text = hashlib.sha256(body["text"].encode(errors="surrogatepass")).digest()
                seen = Seen(
                    key,
                    (number, at, among),
                    shard,
                    line,
                    head.attempt,
                    head.prompt,
                    forms.setdefault(own, own),
                    body["grade"] == "correct" or body.get("score") == "1.000000",
                    text,
                )
                phase.shards[-1].append(seen)
                phase.units[number].append(seen)
        return phase

    def lanes(self, number: int) -> list[Lane]:
        """Read the lanes of a unit, in the order of the lines."""
        unit, found = self.plan.units[number], list[Lane]()
        outside = self.plan.tasks[unit.task].outside
        for shard, own in itertools.groupby(self.units[number], key=lambda seen: seen.shard):
            here = list(own)
            lines = [seen.line for seen in here]
            for seen, record in zip(here, records.chosen(self.records[shard], lines), strict=True):
                cell = unit.cells[seen.place[2]]
                arm = self.plan.arm(unit.model, cell)
                found.append(Lane(record, cell, arm, seen.place, outside))
        return found


def units(phase: Phase, place: Path) -> Iterator[Unit]:
    """Yield the units that have records, each read when it is reached, with its trajectories.

    folder: the folder of the phase. Raises Tampered for a trajectory that is missing, damaged or malformed.
    """
    alone: dict[str, Trajectory] = {}  # before 2026-11-22: one trajectory, shared by units
    for number, plan in enumerate(phase.plan.units):
        if not phase.units[number]:
            continue
        unit = Unit(plan, phase.lanes(number))
        cited = {lane.body["trajectory"] for lane in unit.lanes} - {None}
        names = {one.partition("#")[0] for one in cited}
        held: dict[str, Trajectory] = {}
        for name in sorted(names - alone.keys()):
            content = records.read_side_file(place, name)
            if isinstance(content, list):
                side = [_trajectory(one, f"{name}.json.gz[{at}]") for at, one in enumerate(content)]
                held |= {records.cite(name, at): one for at, one in enumerate(side)}
                unit.side = side if len(names) == 1 else None
            else:
                alone[name] = _trajectory(content, f"{name}.json.gz")
        for lane in unit.lanes:
            if citation := lane.body["trajectory"]:
                if (found := held.get(citation, alone.get(citation))) is None:
                    raise Tampered(f"{lane}: cites {citation}, which is no trajectory")
                lane.show(found)
        yield unit


def by_problem(unit: Unit) -> Iterable[Sequence[Lane]]:
    """Return the lanes of each problem of a unit."""
    groups: dict[int, list[Lane]] = {}
    for lane in unit.lanes:
        groups.setdefault(lane.place[1], []).append(lane)
    return groups.values()


def _trajectory(content: Any, where: str) -> Trajectory:
    if isinstance(content, dict) and content.keys() == TRAJECTORY.fields.keys():
        lists, heads = (content["held"], content["allocated"]), content["heads"]
        whole = all(
            isinstance(one, list) and one and set(map(type, one)) == {int} and min(one) >= 0 for one in lists
        )
        if whole and type(heads) is int and heads >= 1 and len(lists[0]) == len(lists[1]):
            return Trajectory(*lists, heads)
    wrong = fields.fault(TRAJECTORY, content, "trajectory") or "allocated: is not as long as held"
    raise Tampered(f"{where}: {wrong}")
