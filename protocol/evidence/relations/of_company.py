"""Invariants between the lanes of one problem, and between lanes that decoded together."""

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from protocol.evidence.relations.planned_lanes import Plan
from protocol.evidence.relations.recorded_lanes import Lane, Unit, by_problem
from protocol.evidence.relations.relation import Differences, Relation

__all__ = ["RELATIONS"]


class Stay(NamedTuple):
    """When a lane was in its batch. joined: forwards of the batch before the lane's first. left: decoding
    steps of the batch before it left.
    """

    joined: int
    left: int


def one_prompt(plan: Plan, unit: Unit) -> Differences:
    for lanes in by_problem(unit):
        firsts: dict[str, Lane] = {}
        for lane in lanes:
            first = firsts.setdefault(lane.arm.asks, lane)
            for name in ("prompt", "prompt_tokens"):
                if (own := lane.body[name]) != (other := first.body[name]):
                    yield lane, f"{name} is {own}, {other} in another lane of the problem"
        prompts: dict[str, str] = {}
        for asks, lane in firsts.items():
            if (other := prompts.setdefault(lane.body["prompt"], asks)) != asks:
                yield lane, "prompt is that of a lane of the problem that is asked something else"


def one_question(plan: Plan, unit: Unit) -> Differences:
    if not plan.tasks[unit.plan.task].outside:
        return
    for lanes in by_problem(unit):
        for ran in _by_asks(lane for lane in lanes if lane.ran):
            usual = Counter(lane.query for lane in ran).most_common(1)
            for lane in ran:
                if lane.query < 1 or lane.query != usual[0][0]:
                    yield (
                        lane,
                        f"trajectory.held adds {lane.query} tokens of a question, others {usual[0][0]}",
                    )


def one_prefill(plan: Plan, unit: Unit) -> Differences:
    for lanes in by_problem(unit):
        seconds: dict[tuple[int, str], str] = {}
        for lane in lanes:
            if own := lane.costs.get("prefill_seconds"):
                other = seconds.setdefault((lane.costs["attempt"], lane.body["prompt"]), own)
                if own != other:
                    yield lane, f"costs.prefill_seconds is {own}, {other} in another lane of the problem"


def company(plan: Plan, unit: Unit) -> Differences:
    if not plan.batched:
        yield from (
            (lane, "batch is there, and the lock is older") for lane in unit.lanes if "batch" in lane.body
        )
        return
    if len({lane.place[1] for lane in unit.lanes}) < len(unit.plan.problems):
        return  # interrupted: which of the other problems are excluded is not recorded yet
    out = {lane.place[1] for lane in unit.lanes if lane.body["state"] == "excluded"}
    problems = [problem for at, problem in enumerate(unit.plan.problems) if at not in out]
    every = len(problems) * len(unit.plan.cells)
    at_once = min(every, plan.lanes.get(unit.plan.model, every))
    for lane in unit.lanes:
        batch, state = lane.body.get("batch"), lane.body["state"]
        if (batch is None) != (state == "excluded") or (batch and ("joined" in batch) != (state == "ok")):
            yield lane, f"batch is {'missing' if batch is None else sorted(batch)} in the state {state!r}"
        elif batch and batch["problems"] != problems:
            yield (
                lane,
                f"batch.problems has {len(batch['problems'])} others than the {len(problems)} of its unit",
            )
        elif batch and batch["lanes"] != at_once:
            yield lane, f"batch.lanes is {batch['lanes']}, its unit and the lock give {at_once}"


def joined(plan: Plan, unit: Unit) -> Differences:
    for lane, stay in _stays(plan, unit):
        if (own := lane.body["batch"].get("joined")) != stay.joined:
            yield lane, f"batch.joined is {own}; by how long the lanes before it stayed, {stay.joined}"


def clocks(plan: Plan, unit: Unit) -> Differences:
    """A lane that joined before another and left after it took as long or longer."""
    stays = sorted(_stays(plan, unit), key=lambda one: one[1])
    left: list[int] = []  # of lanes that joined before, ascending, with their seconds, ascending too:
    seconds: list[float] = []  # a lane that left earlier and took longer adds no constraint
    waiting: list[tuple[int, float]] = []
    now = -1
    for lane, stay in stays:
        if stay.joined > now:
            now = stay.joined
            for end, own in waiting:
                _enter(left, seconds, end, own)
            waiting.clear()
        if "decode_seconds" not in lane.costs:
            continue
        own = float(lane.costs["decode_seconds"])
        place = bisect_right(left, stay.left)
        if place < len(left) and own > seconds[place]:
            yield lane, f"costs.decode_seconds is {own}, of a lane around it {seconds[place]}"
        waiting.append((stay.left, own))


def side_file(plan: Plan, unit: Unit) -> Differences:
    if not unit.whole or unit.side is None:
        return
    places = dict.fromkeys(
        int(lane.body["trajectory"].partition("#")[2]) for lane in unit.lanes if lane.body["trajectory"]
    )
    name = f"{unit.lanes[0].body['trajectory'] or ''}".partition("#")[0] or "the side file"
    if list(places) != list(range(len(unit.side))):
        cited = f"{len(places)} of {len(unit.side)} trajectories, first {list(places)[:3]}"
        yield f"{name}.json.gz", f"its lanes cite {cited}; each is cited, in the order of the lines"
    different = {(tuple(one.held), tuple(one.allocated)) for one in unit.side}
    if len(different) != len(unit.side):
        yield f"{name}.json.gz", f"has {len(unit.side)} trajectories, {len(different)} of them different"


def _by_asks(lanes: Iterable[Lane]) -> list[list[Lane]]:
    """Group the lanes of a problem by extra prompt; those of one group fork from one prefill."""
    groups: dict[str, list[Lane]] = {}
    for lane in lanes:
        groups.setdefault(lane.arm.asks, []).append(lane)
    return list(groups.values())


def _stays(plan: Plan, unit: Unit) -> list[tuple[Lane, Stay]]:
    """Return when each lane of a unit joined and left its batch, in the order of the lanes; empty if a lane
    is missing or failed, because nobody knows when a failed lane left.

    Lanes enter the batch in their order, those of a problem with the same extra prompt as its first lane
    first; a lane that stops frees its slot for the next one. Lanes of one prompt that join together read the
    question in one extra forward.
    """
    asked = (lane for own in by_problem(unit) for alike in _by_asks(own) for lane in alike)
    lanes = [lane for lane in asked if lane.body["state"] != "excluded"]
    told = all(lane.ran and "batch" in lane.body for lane in lanes)
    if not (lanes and told and plan.batched and unit.whole):
        return []
    free = lanes[0].body["batch"]["lanes"]
    forwards, clock, first = 0, 0, 0
    leaving: list[int] = []
    stays = []
    while first < len(lanes):
        if not free:
            later = leaving[0]
            forwards, clock = forwards + later - clock, later
            while leaving and leaving[0] == later:
                heapq.heappop(leaving)
                free += 1
        last = _end_of_prompt(lanes, first, first + free)
        for lane in lanes[first:last]:
            stay = Stay(forwards, clock + max(0, len(lane.trajectory.held) - 1 - lane.outside))
            stays.append((lane, stay))
            if stay.left > clock:
                heapq.heappush(leaving, stay.left)
                free -= 1
        forwards += lanes[first].outside
        first = last
    return stays


def _end_of_prompt(lanes: list[Lane], first: int, most: int) -> int:
    def prompt(lane: Lane) -> tuple[int, str]:
        return lane.place[1], lane.arm.asks

    last = first
    while last < min(most, len(lanes)) and prompt(lanes[last]) == prompt(lanes[first]):
        last += 1
    return last


def _enter(left: list[int], seconds: list[float], end: int, own: float) -> None:
    """Insert a lane unless one that left no earlier took no longer; remove those that the new one makes
    redundant.
    """
    place = bisect_left(left, end)
    if place < len(left) and seconds[place] <= own:
        return
    stop = bisect_right(left, end)
    while place and seconds[place - 1] >= own:
        place -= 1
    left[place:stop], seconds[place:stop] = [end], [own]


RELATIONS = (
    Relation(
        "one prompt",
        "Lanes of a problem have one prompt where the lock says that their arms ask the same beside it, "
        "whatever arm, budget and seed, and different ones where they do not.",
        ("prompt", "prompt_tokens", "problem"),
        "problem",
        of_unit=one_prompt,
    ),
    Relation(
        "one question",
        "A question outside adds the same tokens to every lane of its problem that is asked the same beside "
        "it, at least one.",
        ("trajectory.held",),
        "problem",
        of_unit=one_question,
    ),
    Relation(
        "one prefill",
        "All lanes of a problem that one attempt recorded have, by prompt, the seconds of one prefill.",
        ("costs.prefill_seconds", "costs.attempt"),
        "problem",
        of_unit=one_prefill,
    ),
    Relation(
        "company",
        "Who decoded together follows from the lock: so many problems in their order, without the excluded "
        "ones, and as many lanes at once as it allows. Records of before 2026-11-21 do not say it.",
        ("batch.problems", "batch.lanes", "state"),
        "batch",
        of_unit=company,
    ),
    Relation(
        "joined",
        "When a lane joined follows from how long those before it stayed: places are given in the order of "
        "the lanes, and one that stops leaves its place to the next. Not asked of a batch in which a lane "
        "failed.",
        ("batch.joined", "trajectory.held", "batch.lanes"),
        "batch",
        of_unit=joined,
    ),
    Relation(
        "clocks",
        "A lane that joined its batch before another and left it after that one decoded as long or longer.",
        ("costs.decode_seconds", "batch.joined"),
        "batch",
        of_unit=clocks,
    ),
    Relation(
        "side file",
        "The side file of a batch holds the different trajectories of its lanes, once each and in the order "
        "of the lines, and no other.",
        ("trajectory", "trajectory.held", "trajectory.allocated"),
        "batch",
        of_unit=side_file,
    ),
)
