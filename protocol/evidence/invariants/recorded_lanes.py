"""The records of one phase in the form that invariants check: lanes with their trajectories, unit by unit."""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from protocol.evidence import records
from protocol.evidence.invariants.planned_lanes import FULL, NEVER, Arm, Cell, Plan, UnitPlan
from protocol.evidence.records import Key, Record
from protocol.formats import fields
from protocol.formats.record_fields import TRAJECTORY
from protocol.formats.refusals import Tampered


class SlotBounds(NamedTuple):
    """What all lanes of a model share. heads: layers times KV heads. min_bytes, max_bytes: bounds of the
    bytes of one slot of one head; both are equal once a lane of the full cache determines them.
    """

    heads: int
    min_bytes: int
    max_bytes: int


class Trajectory(NamedTuple):
    """What a lane held, by step. slots: over layers and KV heads; allocated: bytes; heads: layers times KV heads."""

    slots: Sequence[int]
    allocated: Sequence[int]
    heads: int


EMPTY_TRAJECTORY = Trajectory((), (), 1)
# Fields of a record, besides the cache, that describe a lane's memory.
MEMORY_FIELDS = ("trajectory", "prompt_tokens", "slots", "tokens", "thought", "stop")


class Lane:
    """A record of a registered lane. has_trajectory: it ended well and its trajectory was read. query_tokens:
    tokens that were fed between the first eviction and the first new token, derived from the trajectory.
    """

    __slots__ = (
        "allocations",
        "arm",
        "body",
        "cache",
        "cell",
        "costs",
        "has_trajectory",
        "position",
        "query_outside",
        "query_tokens",
        "trajectory",
    )

    def __init__(self, record: Record, cell: Cell, arm: Arm, position: tuple[int, int, int], query_outside: bool):
        self.body, self.costs = record["body"], record["costs"]
        self.cell, self.arm, self.query_outside = cell, arm, query_outside
        self.position = position  # indices of its unit, and within that of its problem and its cell
        self.cache: Mapping[str, Any] = self.body["cache"] or {}
        self.trajectory = EMPTY_TRAJECTORY
        self.has_trajectory = False
        self.query_tokens = 0
        self.allocations: list[Any] | None = None  # derived from the trajectory, once they are needed

    def __str__(self) -> str:
        return str(records.body_key(self.body))

    @property
    def is_full(self) -> bool:
        return self.cell.budget == FULL

    @property
    def never_evicts(self) -> bool:
        return self.arm.fires == NEVER

    @property
    def events(self) -> list[list[int]]:
        events: list[list[int]] = self.cache["events"]
        return events

    @property
    def fed_tokens(self) -> int:
        """New tokens that were fed: all of them if the answer ended by a stop token, else all but the last."""
        tokens: int = self.body["tokens"]
        return tokens - int(self.body["stop"] == "length")

    @property
    def thinking_end(self) -> int | None:
        """The step at which the mark that ended the thinking was fed: no eviction happens then or later."""
        thinking_tokens: int | None = self.body.get("thought")
        return thinking_tokens if thinking_tokens is not None and thinking_tokens <= self.fed_tokens else None

    def set_trajectory(self, trajectory: Trajectory) -> None:
        self.trajectory, self.has_trajectory, self.allocations = trajectory, bool(self.cache), None
        if self.has_trajectory and self.query_outside and len(trajectory.slots) > 1:
            next_events = self.events[1:2]
            grown_slots = next_events[0][1] if next_events and next_events[0][0] == 0 else trajectory.slots[1]
            self.query_tokens = (grown_slots - trajectory.slots[0]) // trajectory.heads


class LaneStay(NamedTuple):
    """When a lane was in its batch: forwards of the batch before the lane's first, decoding steps before it left."""

    joined: int
    left: int


class Unit:
    """The records of a unit, in the order of the lines. Trajectories are set only while the unit is checked."""

    def __init__(self, plan: UnitPlan, lanes: list[Lane]):
        self.plan, self.lanes = plan, lanes
        self.side_trajectories: list[Trajectory] | None = None  # of its side file, if it has exactly one
        self.stays: list[tuple[Lane, LaneStay]] | None = None  # derived when first needed

    @cached_property
    def is_complete(self) -> bool:
        """Whether every lane of the unit is recorded, all by one attempt; only then the batch can be simulated."""
        expected_lanes = len(self.plan.problems) * len(self.plan.cells)
        return len(self.lanes) == expected_lanes and len({lane.costs["attempt"] for lane in self.lanes}) == 1

    @property
    def distinct_lanes(self) -> Iterable[list[Lane]]:
        """Lanes with a trajectory, grouped by equal trajectory and equal memory fields."""
        groups: dict[Any, list[list[Lane]]] = {}
        for lane in self.lanes:
            if not lane.has_trajectory:
                continue
            memory = (*(lane.body.get(name) for name in MEMORY_FIELDS), lane.cell.budget, lane.arm)
            for group in groups.setdefault(memory, []):
                if group[0].cache == lane.cache:
                    group.append(lane)
                    break
            else:
                groups[memory].append([lane])
        return itertools.chain.from_iterable(groups.values())


@dataclass(slots=True)
class LaneSummary:
    """The part of a lane's record that study-wide invariants need: of up to a million records, no more than
    this is in memory at once. What follows the prompt is set when the lane is read. version_fields: whether each field
    of VERSION_FIELDS is present, one tuple for all lanes alike. text_digest: of a lane that ended well.
    """

    key: Key
    position: tuple[int, int, int]  # indices of its unit, and within that of its problem and its cell
    shard: int
    line: int  # from 0
    attempt: int
    prompt: str
    version_fields: tuple[bool, ...] = ()
    is_correct: bool = False
    text_digest: bytes | None = None

    def __str__(self) -> str:
        return str(self.key)

    def complete(self, body: Mapping[str, Any]) -> None:
        self.is_correct = body["grade"] == "correct" or body.get("score") == "1.000000"
        if body["state"] == "ok":
            self.version_fields = _VERSIONS[tuple([is_present(body) for is_present in VERSION_FIELDS.values()])]
            self.text_digest = hashlib.sha256(body["text"].encode(errors="surrogatepass")).digest()


# Fields that not all records have; those of a task must have the same.
VERSION_FIELDS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = MappingProxyType(
    {
        "cache.granted": lambda body: "granted" in (body["cache"] or {}),
        "a line number in a side file": lambda body: "#" in (body["trajectory"] or "#"),
        "grade_second": lambda body: "grade_second" in body,
    }
)
_VERSIONS = {version: version for version in itertools.product((False, True), repeat=len(VERSION_FIELDS))}


class Phase(NamedTuple):
    """All records of a phase: by shard in the order of lines, and by unit. unregistered: keys of unregistered lanes.
    A summary is complete once its unit was read.
    """

    plan: Plan
    records: Sequence[Sequence[Record]]
    shards: list[list[LaneSummary]]
    units: list[list[LaneSummary]]
    unregistered: list[str]

    @classmethod
    def from_shards(cls, plan: Plan, shards: Sequence[Sequence[Record]]) -> "Phase":
        positions = {
            (unit.model, unit.task, problem): (number, problem_index)
            for number, unit in enumerate(plan.units)
            for problem_index, problem in enumerate(unit.problems)
        }
        cell_indices = {
            (unit.model, unit.task): {cell: problem_index for problem_index, cell in enumerate(unit.cells)}
            for unit in plan.units
        }
        phase = cls(plan, shards, [], [[] for _ in plan.units], [])
        for shard_number, shard_records in enumerate(shards):
            phase.shards.append([])
            for line, head in enumerate(records.record_heads(shard_records)):
                key = head.key
                number, problem_index = positions.get((key.model, key.task, key.problem), (-1, -1))
                cell_index = cell_indices.get((key.model, key.task), {}).get(Cell(key.budget, key.arm, key.seed))
                if number < 0 or cell_index is None:
                    phase.unregistered.append(str(key))
                    continue
                position = (number, problem_index, cell_index)
                summary = LaneSummary(key, position, shard_number, line, head.attempt, head.prompt)
                phase.shards[-1].append(summary)
                phase.units[number].append(summary)
        return phase

    def read_lanes(self, number: int) -> list[Lane]:
        """Read the lanes of a unit, in the order of the lines."""
        unit, lanes = self.plan.units[number], list[Lane]()
        query_outside = self.plan.tasks[unit.task].query_outside
        for shard_number, shard_summaries in itertools.groupby(self.units[number], key=lambda summary: summary.shard):
            summaries = list(shard_summaries)
            lines = [summary.line for summary in summaries]
            for summary, record in zip(
                summaries, records.select_records(self.records[shard_number], lines), strict=True
            ):
                summary.complete(record["body"])
                cell = unit.cells[summary.position[2]]
                arm = self.plan.arm(unit.model, cell)
                lanes.append(Lane(record, cell, arm, summary.position, query_outside))
        return lanes


def read_units(phase: Phase, folder: Path) -> Iterator[Unit]:
    """Yield the units that have records, each read when it is reached, with its trajectories.

    folder: the folder of the phase. Raises Tampered for a trajectory that is missing, damaged or malformed.
    """
    shared_trajectories: dict[str, Trajectory] = {}  # in version 1: one trajectory, shared by units
    for number, unit_plan in enumerate(phase.plan.units):
        if not phase.units[number]:
            continue
        unit = Unit(unit_plan, phase.read_lanes(number))
        citations = {lane.body["trajectory"] for lane in unit.lanes} - {None}
        names = {entry.partition("#")[0] for entry in citations}
        cited_trajectories: dict[str, Trajectory] = {}
        for name in sorted(names - shared_trajectories.keys()):
            content = records.read_side_file(folder, name)
            if isinstance(content, list):
                side = [_parse_trajectory(entry, f"{name}.json.gz[{index}]") for index, entry in enumerate(content)]
                cited_trajectories |= {records.make_citation(name, index): entry for index, entry in enumerate(side)}
                unit.side_trajectories = side if len(names) == 1 else None
            else:
                shared_trajectories[name] = _parse_trajectory(content, f"{name}.json.gz")
        for lane in unit.lanes:
            if citation := lane.body["trajectory"]:
                if (trajectory := cited_trajectories.get(citation, shared_trajectories.get(citation))) is None:
                    raise Tampered(f"{lane}: cites {citation}, which is not a trajectory")
                lane.set_trajectory(trajectory)
        yield unit


def group_by_problem(unit: Unit) -> Iterable[Sequence[Lane]]:
    """Return the lanes of each problem of a unit."""
    groups: dict[int, list[Lane]] = {}
    for lane in unit.lanes:
        groups.setdefault(lane.position[1], []).append(lane)
    return groups.values()


def _parse_trajectory(content: Any, location: str) -> Trajectory:
    if isinstance(content, dict) and content.keys() == TRAJECTORY.fields.keys():
        lists, heads = (content["held"], content["allocated"]), content["heads"]
        is_valid = all(
            isinstance(values, list) and values and set(map(type, values)) == {int} and min(values) >= 0
            for values in lists
        )
        if is_valid and type(heads) is int and heads >= 1 and len(lists[0]) == len(lists[1]):
            return Trajectory(*lists, heads)
    fault = fields.find_fault(TRAJECTORY, content, "trajectory") or "allocated: must have as many entries as held"
    raise Tampered(f"{location}: {fault}")
