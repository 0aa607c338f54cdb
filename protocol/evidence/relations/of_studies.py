"""Invariants over all records of a phase: the order of the lines, fields that all of them share, copies."""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal

from protocol.evidence.relations.recorded_lanes import FORMS, Phase, Seen
from protocol.evidence.relations.relation import Differences, Relation

__all__ = ["RELATIONS"]

MANY = 30  # incorrect answers in which two seeds agree: more than chance or a very confident model gives
REPLAY = "kv-prereg audit FOLDER --replay 20 decodes lanes again"


def registered(phase: Phase) -> Differences:
    yield from ((lane, "has a record and is not registered") for lane in phase.strange)


def order(phase: Phase) -> Differences:
    for number, shard in enumerate(phase.shards):
        before = (-1, -1, -1)
        for line, lane in enumerate(shard, start=1):
            if lane.place <= before:
                yield lane, f"stands in line {line} of shard {number}, after lanes that run later"
                break
            before = lane.place
    if len(phase.shards) == 1:
        for lane, place in zip(phase.shards[0], _planned(phase), strict=False):
            if lane.place != place:
                number, problem, at = place
                unit = phase.plan.units[number]
                cell = unit.cells[at]
                missing = f"{unit.model}/{unit.task}/{'/'.join(map(str, cell))}/{unit.problems[problem]}"
                yield lane, f"is recorded where {missing} runs first"
                break


def attempts(phase: Phase) -> Differences:
    for shard in phase.shards:
        before = 1
        for lane in shard:
            if (own := lane.attempt) < before:
                yield lane, f"costs.attempt is {own} after a line of attempt {before}"
            before = max(before, own)


def one_form(phase: Phase) -> Differences:
    """All records of a task have the same optional fields, namely those of one version of the protocol."""
    tasks: dict[str, list[Seen]] = defaultdict(list)
    for shard in phase.shards:
        for lane in shard:
            if lane.forms:
                tasks[lane.key.task].append(lane)
    for lanes in tasks.values():
        for place, name in enumerate(FORMS):
            without = [lane for lane in lanes if not lane.forms[place]]
            if 0 < len(without) < len(lanes):
                there = 2 * len(without) > len(lanes)
                fewer = [one for one in lanes if one.forms[place]] if there else without
                says = f"{name} is {'there' if there else 'missing'}, unlike in most records of its task"
                yield from ((lane, says) for lane in fewer)


def own_prompts(phase: Phase) -> Differences:
    seen: dict[tuple[str, str, str], str] = {}
    for unit in phase.units:
        for lane in unit:
            model, task, *_, problem = lane.key
            other = seen.setdefault((model, task, lane.prompt), problem)
            if other != problem:
                yield lane, f"prompt is that of {other}"
                break


def own_draws(phase: Phase) -> Differences:
    """Find lanes of two seeds that agree in every problem, with enough incorrect answers, at a temperature
    above 0.
    """
    if not phase.plan.sampled:
        return
    arms: dict[tuple[str, ...], dict[int, dict[str, Seen]]] = defaultdict(lambda: defaultdict(dict))
    for lane in itertools.chain.from_iterable(phase.units):
        if lane.text is not None:
            model, task, budget, arm, seed, problem = lane.key
            arms[model, task, budget, arm][seed][problem] = lane
    for seeds in arms.values():
        for one, other in itertools.combinations(seeds.values(), 2):
            both = [(one[problem], other[problem]) for problem in one.keys() & other.keys()]
            unsure = [pair for pair in both if not pair[0].right]
            if len(unsure) >= MANY and all(a.text == b.text for a, b in both):
                first, copy = unsure[0]
                yield copy, f"text is that of {first}, and so in all {len(both)} problems"


def full_use(phase: Phase) -> Differences:
    """Compare the use that the lock gives with the probe, whose full-cache lanes answer the same problems."""
    plan = phase.plan
    for number, unit in enumerate(plan.units) if plan.phase == "probe" and plan.used else ():
        most = plan.tasks[unit.task].max_new_tokens - 1  # the last new token is never fed
        for lane in phase.lanes(number):
            state = lane.body["state"]
            if not lane.full or state == "failed":
                continue
            used = plan.used.get((unit.model, unit.task, lane.body["problem"]))
            if (used is None) != (state == "excluded"):
                had = "has none" if used is None else f"has {used} slots"
                yield lane, f"full_use of the lock {had} of a problem whose lane is {state!r}"
            elif used is not None:
                prompt = int(Decimal(lane.cache["peak"])) - lane.fed
                if not prompt <= used <= prompt + most:
                    held = f"{prompt} to {prompt + most}"
                    yield lane, f"full_use of the lock has {used} slots, a prompt and an answer have {held}"


def _planned(phase: Phase) -> Iterator[tuple[int, int, int]]:
    """Yield the positions of all lanes, in the order in which they run."""
    for number, unit in enumerate(phase.plan.units):
        yield from itertools.product((number,), range(len(unit.problems)), range(len(unit.cells)))


RELATIONS = (
    Relation(
        "lanes",
        "Every record is of a registered lane: a cell of the grid, or of the probe, and a problem of its "
        "split.",
        ("cell.model", "cell.task", "cell.budget", "cell.arm", "cell.seed", "problem"),
        "study",
        of_phase=registered,
    ),
    Relation(
        "order",
        "The lines stand in the order in which lanes run: models and tasks as registered, problems sorted, "
        "cells as in the grid; none is left out before a later one.",
        ("cell.model", "cell.task", "cell.budget", "cell.arm", "cell.seed", "problem"),
        "study",
        of_phase=order,
    ),
    Relation(
        "attempts",
        "The attempt of a line is never before that of the line before.",
        ("costs.attempt",),
        "study",
        of_phase=attempts,
    ),
    Relation(
        "form",
        "All records of a task have the fields of one version: grants, places in side files, second grades.",
        ("cache.granted", "trajectory", "grade_second"),
        "study",
        of_phase=one_form,
    ),
    Relation(
        "own prompts",
        "Two problems of a task have different prompts.",
        ("prompt", "problem"),
        "study",
        of_phase=own_prompts,
        doubt="a task may ask the same twice: compare the two problems",
    ),
    Relation(
        "full use",
        "What the lock says that the full cache held at the end of an answer is no less than the prompt in "
        "the probe's lane of that problem, and no more than that and all that the task allows. It says so of "
        "every problem that is not excluded there, and of no other.",
        ("cache.peak", "tokens", "stop", "problem", "state"),
        "study",
        of_phase=full_use,
    ),
    Relation(
        "own draws",
        "At a temperature above 0, two seeds do not give the same text in every problem of an arm that "
        "fails 30.",
        ("text", "cell.seed"),
        "study",
        of_phase=own_draws,
        doubt=f"a model may be that sure of itself: {REPLAY}",
    ),
)
