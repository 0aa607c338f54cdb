"""Invariants over all records of a phase: the order of the lines, fields that all of them share, copies."""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal

from protocol.evidence.invariants.invariant import Violations, declare_invariant
from protocol.evidence.invariants.planned_lanes import FULL
from protocol.evidence.invariants.recorded_lanes import VERSION_FIELDS, LaneSummary, Phase

MIN_UNSURE = 30  # incorrect answers in which two seeds agree: more than chance or a very confident model gives
REPLAY = "kv-prereg audit FOLDER --replay decodes lanes again"


@declare_invariant("lanes", "study", "cell.model", "cell.task", "cell.budget", "cell.arm", "cell.seed", "problem")
def check_registered(phase: Phase) -> Violations:
    """Every record belongs to a registered lane: a cell of the grid, or of the probe, and a problem of its split."""
    yield from ((lane, "has a record, but is not registered") for lane in phase.unregistered)


@declare_invariant("order", "study", "cell.model", "cell.task", "cell.budget", "cell.arm", "cell.seed", "problem")
def check_order(phase: Phase) -> Violations:
    """The lines are in the order in which lanes run: models and tasks as registered, problems sorted, cells as in
    the grid. No lane is missing before a later one.
    """
    for number, shard in enumerate(phase.shards):
        last_position = (-1, -1, -1)
        for line, lane in enumerate(shard, start=1):
            if lane.position <= last_position:
                yield lane, f"is in line {line} of shard {number}, after lanes that run later"
                break
            last_position = lane.position
    if len(phase.shards) == 1:
        for lane, position in zip(phase.shards[0], _planned_positions(phase), strict=False):
            if lane.position != position:
                number, problem, cell_index = position
                unit = phase.plan.units[number]
                cell = unit.cells[cell_index]
                expected_lane = f"{unit.model}/{unit.task}/{'/'.join(map(str, cell))}/{unit.problems[problem]}"
                yield lane, f"is recorded first, but {expected_lane} should run first"
                break


@declare_invariant("attempts", "study", "costs.attempt")
def check_attempts(phase: Phase) -> Violations:
    """The attempt of a line is never before the attempt of the previous line."""
    for shard in phase.shards:
        last_attempt = 1
        for lane in shard:
            if (attempt := lane.attempt) < last_attempt:
                yield lane, f"costs.attempt is {attempt}, but the line before is of attempt {last_attempt}"
            last_attempt = max(last_attempt, attempt)


@declare_invariant("form", "study", "cache.granted", "trajectory", "grade_second")
def check_form(phase: Phase) -> Violations:
    """All records of a task have the fields of the same version: grants, places in side files, second grades. Where
    an outcome is locked, this is so among the full cache's records and among all others.
    """
    tasks: dict[tuple[str, bool], list[LaneSummary]] = defaultdict(list)
    for shard in phase.shards:
        for lane in shard:
            if lane.version_fields:
                tasks[lane.key.task, phase.plan.has_outcome and lane.key.budget == FULL].append(lane)
    for lanes in tasks.values():
        for index, name in enumerate(VERSION_FIELDS):
            without = [lane for lane in lanes if not lane.version_fields[index]]
            if 0 < len(without) < len(lanes):
                is_usual = 2 * len(without) > len(lanes)
                minority = (
                    [candidate for candidate in lanes if candidate.version_fields[index]] if is_usual else without
                )
                message = f"{name} is {'present' if is_usual else 'missing'}, unlike in most records of its task"
                yield from ((lane, message) for lane in minority)


@declare_invariant(
    "own prompts",
    "study",
    "prompt",
    "problem",
    remedy="a task may contain the same question twice: compare the two problems",
)
def check_distinct_prompts(phase: Phase) -> Violations:
    """Two problems of a task have different prompts."""
    problems: dict[tuple[str, str, str], str] = {}
    for unit in phase.units:
        for lane in unit:
            model, task, *_, problem = lane.key
            first_problem = problems.setdefault((model, task, lane.prompt), problem)
            if first_problem != problem:
                yield lane, f"prompt is the same as that of {first_problem}"
                break


@declare_invariant("full use", "study", "cache.peak", "tokens", "stop", "problem", "state")
def check_full_use(phase: Phase) -> Violations:
    """According to the lock, the full cache held at the end of an answer at least as many slots as the prompt has
    in the probe's lane of that problem, and at most these plus the tokens that the task allows. The lock gives this
    for exactly the problems that are not excluded there.
    """
    plan = phase.plan
    for number, unit in enumerate(plan.units) if plan.phase == "probe" and plan.full_cache_slots else ():
        max_fed_tokens = plan.tasks[unit.task].max_new_tokens - 1  # the last new token is never fed
        for lane in phase.read_lanes(number):
            state = lane.body["state"]
            if not lane.is_full or state == "failed":
                continue
            slots = plan.full_cache_slots.get((unit.model, unit.task, lane.body["problem"]))
            if (slots is None) != (state == "excluded"):
                recorded = "has none" if slots is None else f"has {slots} slots"
                yield lane, f"full_use of the lock {recorded} for a problem whose lane is {state!r}"
            elif slots is not None:
                prompt = int(Decimal(lane.cache["peak"])) - lane.fed_tokens
                if not prompt <= slots <= prompt + max_fed_tokens:
                    bounds = f"{prompt} to {prompt + max_fed_tokens}"
                    yield lane, f"full_use of the lock has {slots} slots, but a prompt with its answer has {bounds}"


@declare_invariant("own draws", "study", "text", "cell.seed", remedy=f"a very certain model may cause this: {REPLAY}")
def check_distinct_samples(phase: Phase) -> Violations:
    """At a temperature above 0, two seeds do not give the same text in every problem of an arm that fails 30."""
    if not phase.plan.is_sampled:
        return
    arms: dict[tuple[str, ...], dict[int, dict[str, LaneSummary]]] = defaultdict(lambda: defaultdict(dict))
    for lane in itertools.chain.from_iterable(phase.units):
        if lane.text_digest is not None:
            model, task, budget, arm, seed, problem = lane.key
            arms[model, task, budget, arm][seed][problem] = lane
    for seeds in arms.values():
        for first_lanes, second_lanes in itertools.combinations(seeds.values(), 2):
            pairs = [
                (first_lanes[problem], second_lanes[problem]) for problem in first_lanes.keys() & second_lanes.keys()
            ]
            unsure_pairs = [pair for pair in pairs if not pair[0].is_correct]
            if len(unsure_pairs) >= MIN_UNSURE and all(a.text_digest == b.text_digest for a, b in pairs):
                first, copy = unsure_pairs[0]
                yield copy, f"text equals that of {first}, and this is so in all {len(pairs)} problems"


def _planned_positions(phase: Phase) -> Iterator[tuple[int, int, int]]:
    """Yield the positions of all lanes, in the order in which they run."""
    for number, unit in enumerate(phase.plan.units):
        yield from itertools.product((number,), range(len(unit.problems)), range(len(unit.cells)))
