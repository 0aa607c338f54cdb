"""Invariants between the lanes of one problem, and between lanes that decoded together."""

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable

from protocol.evidence.invariants.invariant import Violations, declare_invariant
from protocol.evidence.invariants.planned_lanes import Plan
from protocol.evidence.invariants.recorded_lanes import Lane, LaneStay, Unit, group_by_problem
from protocol.formats.registry import load_attribute


@declare_invariant("one prompt", "problem", "prompt", "prompt_tokens", "problem")
def check_prompts(plan: Plan, unit: Unit) -> Violations:
    """All lanes of a problem have the same prompt if the lock gives their arms the same extra prompt, whatever arm,
    budget and seed; otherwise their prompts differ.
    """
    for lanes in group_by_problem(unit):
        firsts: dict[str, Lane] = {}
        for lane in lanes:
            first = firsts.setdefault(lane.arm.extra_prompt, lane)
            for name in ("prompt", "prompt_tokens"):
                if (value := lane.body[name]) != (expected := first.body[name]):
                    yield lane, f"{name} is {value}, but {expected} in another lane of the problem"
        prompts: dict[str, str] = {}
        for extra_prompt, lane in firsts.items():
            if (expected := prompts.setdefault(lane.body["prompt"], extra_prompt)) != extra_prompt:
                yield lane, "prompt equals that of a lane of the same problem with another question"


@declare_invariant("one question", "problem", "trajectory.held")
def check_query(plan: Plan, unit: Unit) -> Violations:
    """A question outside the context adds the same number of tokens, at least one, to every lane of its problem
    with the same extra prompt.
    """
    if not plan.tasks[unit.plan.task].query_outside:
        return
    for lanes in group_by_problem(unit):
        for group in _group_by_extra_prompt(lane for lane in lanes if lane.has_trajectory):
            common_query = Counter(lane.query_tokens for lane in group).most_common(1)
            for lane in group:
                if lane.query_tokens < 1 or lane.query_tokens != common_query[0][0]:
                    yield (
                        lane,
                        f"trajectory.held adds {lane.query_tokens} tokens for the question, but other lanes "
                        f"add {common_query[0][0]}",
                    )


@declare_invariant("one text", "problem", "state", "text", "tokens", "stop", "cell.seed")
def check_text(plan: Plan, unit: Unit) -> Violations:
    """Where an outcome is locked, all lanes of a problem and seed in the state ok have the text of the full cache."""
    if plan.has_outcome:
        yield from load_attribute("protocol.evidence.invariants.followed_lanes:list_other_texts")(unit)


@declare_invariant("one prefill", "problem", "costs.prefill_seconds", "costs.attempt")
def check_prefill_seconds(plan: Plan, unit: Unit) -> Violations:
    """All lanes of a problem that were recorded in one attempt and have the same prompt have the seconds of the
    same prefill.
    """
    for lanes in group_by_problem(unit):
        seconds: dict[tuple[int, str], str] = {}
        for lane in lanes:
            if lane_seconds := lane.costs.get("prefill_seconds"):
                expected = seconds.setdefault((lane.costs["attempt"], lane.body["prompt"]), lane_seconds)
                if lane_seconds != expected:
                    yield (
                        lane,
                        f"costs.prefill_seconds is {lane_seconds}, but {expected} in another lane of the problem",
                    )


@declare_invariant("company", "batch", "batch.problems", "batch.lanes", "state")
def check_batch(plan: Plan, unit: Unit) -> Violations:
    """The lock determines which lanes are decoded together: its number of problems, in their order and without the
    excluded ones, and its number of lanes at once. Some records of version 1 do not have `batch`, nor do records of
    the native kernel, whose numbers do not depend on it.
    """
    if not plan.depends_on_batches:
        yield from (
            (lane, "batch is present, although no number depends on it or the lock is older")
            for lane in unit.lanes
            if "batch" in lane.body
        )
        return
    if len({lane.position[1] for lane in unit.lanes}) < len(unit.plan.problems):
        return  # interrupted: which of the other problems are excluded is not recorded yet
    excluded = {lane.position[1] for lane in unit.lanes if lane.body["state"] == "excluded"}
    problems = [problem for index, problem in enumerate(unit.plan.problems) if index not in excluded]
    lane_count = len(problems) * len(unit.plan.cells)
    max_lanes = min(lane_count, plan.lanes.get(unit.plan.model, lane_count))
    for lane in unit.lanes:
        batch, state = lane.body.get("batch"), lane.body["state"]
        if (batch is None) != (state == "excluded") or (batch and ("joined" in batch) != (state == "ok")):
            yield lane, f"batch is {'missing' if batch is None else sorted(batch)} in the state {state!r}"
        elif batch and batch["problems"] != problems:
            yield (
                lane,
                f"batch.problems has {len(batch['problems'])} problems that differ from the {len(problems)} of "
                "its unit",
            )
        elif batch and batch["lanes"] != max_lanes:
            yield lane, f"batch.lanes is {batch['lanes']}, but its unit and the lock give {max_lanes}"


@declare_invariant("joined", "batch", "batch.joined", "trajectory.held", "batch.lanes")
def check_joined(plan: Plan, unit: Unit) -> Violations:
    """The step at which a lane joined follows from the lengths of the lanes before it: places are given in the
    order of the lanes, and a lane that stops leaves its place to the next. Batches in which a lane failed are not
    checked.
    """
    for lane, stay in _simulate_batch(plan, unit):
        if (recorded := lane.body["batch"].get("joined")) != stay.joined:
            yield lane, f"batch.joined is {recorded}, but the earlier lanes' lengths give {stay.joined}"


@declare_invariant("clocks", "batch", "costs.decode_seconds", "batch.joined")
def check_decode_seconds(plan: Plan, unit: Unit) -> Violations:
    """A lane that joined its batch before another and left it after that one decoded at least as long."""
    stays = sorted(_simulate_batch(plan, unit), key=lambda lane_stay: lane_stay[1])
    left: list[int] = []  # of lanes that joined before, ascending, with their seconds, ascending too:
    seconds: list[float] = []  # a lane that left earlier and took longer adds no constraint
    waiting: list[tuple[int, float]] = []
    join_step = -1
    for lane, stay in stays:
        if stay.joined > join_step:
            join_step = stay.joined
            for end_step, lane_seconds in waiting:
                _insert_lane(left, seconds, end_step, lane_seconds)
            waiting.clear()
        if "decode_seconds" not in lane.costs:
            continue
        lane_seconds = float(lane.costs["decode_seconds"])
        index = bisect_right(left, stay.left)
        if index < len(left) and lane_seconds > seconds[index]:
            yield (
                lane,
                (
                    f"costs.decode_seconds is {lane_seconds}, but {seconds[index]} in a lane that was decoded within "
                    "this one"
                ),
            )
        waiting.append((stay.left, lane_seconds))


@declare_invariant("side file", "batch", "trajectory", "trajectory.held", "trajectory.allocated")
def check_side_file(plan: Plan, unit: Unit) -> Violations:
    """The side file of a batch contains exactly the different trajectories of its lanes, each once and in the order
    of the lines.
    """
    if not unit.is_complete or unit.side_trajectories is None:
        return
    positions = dict.fromkeys(
        int(lane.body["trajectory"].partition("#")[2]) for lane in unit.lanes if lane.body["trajectory"]
    )
    name = f"{unit.lanes[0].body['trajectory'] or ''}".partition("#")[0] or "the side file"
    if list(positions) != list(range(len(unit.side_trajectories))):
        cited = f"{len(positions)} of {len(unit.side_trajectories)} trajectories, the first {list(positions)[:3]}"
        yield f"{name}.json.gz", f"its lanes cite {cited}; they must cite each trajectory, in the order of the lines"
    distinct = {(tuple(trajectory.slots), tuple(trajectory.allocated)) for trajectory in unit.side_trajectories}
    if len(distinct) != len(unit.side_trajectories):
        yield (
            f"{name}.json.gz",
            f"has {len(unit.side_trajectories)} trajectories, but only {len(distinct)} different ones",
        )


def _group_by_extra_prompt(lanes: Iterable[Lane]) -> list[list[Lane]]:
    """Group the lanes of a problem by extra prompt; those of one group fork from one prefill."""
    groups: dict[str, list[Lane]] = {}
    for lane in lanes:
        groups.setdefault(lane.arm.extra_prompt, []).append(lane)
    return list(groups.values())


def _simulate_batch(plan: Plan, unit: Unit) -> list[tuple[Lane, LaneStay]]:
    """Return when each lane of a unit joined and left its batch, in the order of the lanes; empty if a lane
    is missing or failed, because nobody knows when a failed lane left.

    Lanes enter the batch in their order, those of a problem with the same extra prompt as its first lane
    first; a lane that stops frees its slot for the next one. Lanes of one prompt that join together read the
    question in one extra forward. Two invariants need it.
    """
    if unit.stays is None:
        unit.stays = _derive_stays(unit) if plan.depends_on_batches and unit.is_complete else []
    return unit.stays


def _derive_stays(unit: Unit) -> list[tuple[Lane, LaneStay]]:
    queue = (
        lane
        for problem_lanes in group_by_problem(unit)
        for group in _group_by_extra_prompt(problem_lanes)
        for lane in group
    )
    lanes = [lane for lane in queue if lane.body["state"] != "excluded"]
    is_determined = all(lane.has_trajectory and "batch" in lane.body for lane in lanes)
    if not (lanes and is_determined):
        return []
    free_slots = lanes[0].body["batch"]["lanes"]
    forwards, clock, first = 0, 0, 0
    leaving: list[int] = []
    stays = []
    while first < len(lanes):
        if not free_slots:
            leave_step = leaving[0]
            forwards, clock = forwards + leave_step - clock, leave_step
            while leaving and leaving[0] == leave_step:
                heapq.heappop(leaving)
                free_slots += 1
        last = _end_of_prompt(lanes, first, first + free_slots)
        for lane in lanes[first:last]:
            stay = LaneStay(forwards, clock + max(0, len(lane.trajectory.slots) - 1 - lane.query_outside))
            stays.append((lane, stay))
            if stay.left > clock:
                heapq.heappush(leaving, stay.left)
                free_slots -= 1
        forwards += lanes[first].query_outside
        first = last
    return stays


def _end_of_prompt(lanes: list[Lane], first: int, max_end: int) -> int:
    def prompt_key(lane: Lane) -> tuple[int, str]:
        return lane.position[1], lane.arm.extra_prompt

    last = first
    while last < min(max_end, len(lanes)) and prompt_key(lanes[last]) == prompt_key(lanes[first]):
        last += 1
    return last


def _insert_lane(left: list[int], seconds: list[float], end: int, lane_seconds: float) -> None:
    """Insert a lane unless one that left no earlier took no longer; remove those that the new one makes redundant."""
    index = bisect_left(left, end)
    if index < len(left) and seconds[index] <= lane_seconds:
        return
    stop = bisect_right(left, end)
    while index and seconds[index - 1] >= lane_seconds:
        index -= 1
    left[index:stop], seconds[index:stop] = [end], [lane_seconds]
