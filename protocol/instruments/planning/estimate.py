"""The estimate of a study on a machine: hours, memory, cost, what dominates, and the assumptions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from protocol.formats.progress_display import format_duration, phase
from protocol.formats.refusals import BadInput
from protocol.instruments.planning import machines, workload
from protocol.instruments.planning.roofline import (
    MemoryNeed,
    Rates,
    TimeSpent,
    decoding_seconds,
    lanes_that_fit,
    memory_need,
    prefill_seconds,
)
from protocol.instruments.planning.workload import Load, UserInputs
from protocol.lock import lock
from protocol.plan.generation import Generation
from protocol.preflight import frozen_problems
from protocol.workspace.planned_study import PlannedStudy

USABLE_SHARE = 0.9
"""The usable share of the memory of a device; the rest is for driver, libraries and fragmentation."""

PHRASES = {
    "prompts": "prompts",
    "weights": "weights",
    "slots": "slots",
    "host": "Python and launches",
    "sampling": "drawing tokens",
    "events": "events",
}


class Part(NamedTuple):
    """The estimate for one phase, model and task. seconds: of one device for a batch: optimistic, expected,
    expected with all answers at their longest, pessimistic with these. batches: units of work. lanes: decoded
    at once; fit: how many fit at most.
    """

    load: Load
    seconds: tuple[float, float, float, float]
    spent: TimeSpent
    batches: int
    all_lanes: int
    lanes: int
    registered: int | None
    fit: int
    memory: MemoryNeed


class Estimate(NamedTuple):
    """The estimate of a study. seconds: as in `Part`, of all parts with loading. price: per hour, or None."""

    machine: str
    batches_at_once: int
    memory: float
    parts: tuple[Part, ...]
    seconds: tuple[float, ...]
    price: float | None
    assumed: tuple[str, ...]


def estimate_study(planned: PlannedStudy, machine_name: str, inputs: UserInputs, price: float | None) -> Estimate:
    """Raise BadInput for an unknown machine, an unknown shape of a model, and missing problems."""
    machine, generation = machines.find_machine(machine_name), planned.protocol.generation
    sides = machines.machine_rates(machine, generation.dtype)
    memory = machine.memory * USABLE_SHARE
    items = _read_items(planned)
    with phase("counting lanes, slots and tokens"):
        loads = workload.list_loads(planned, items, inputs)
    lanes = _lanes_by_model(planned)
    parts, totals = [], [0.0] * 4
    loaded: set[tuple[str, str]] = set()
    worst, middle, best = sides
    for load in loads:
        part = _estimate_part(load, sides, generation, memory, lanes[load.model])
        parts.append(part)
        rounds = -(-part.batches // machine.devices)
        count = rounds if machine.devices > 1 else load.problems / load.problems_per_batch
        is_first = (load.phase, load.model) not in loaded
        loaded.add((load.phase, load.model))
        for index, side in enumerate((best, middle, middle, worst)):
            totals[index] += count * part.seconds[index] + is_first * load.shape.bytes / side.load
    assumed = dict.fromkeys([machines.ASSUMED, *(sentence for load in loads for sentence in load.assumed)])
    name = f"{machine.devices} x {machine.name}"
    return Estimate(name, machine.devices, memory, tuple(parts), tuple(totals), price, tuple(assumed))


def _read_items(planned: PlannedStudy) -> dict[str, dict[str, list[str]]]:
    """Return the problems of the tasks that are available."""
    try:
        return frozen_problems.freeze_items(planned)
    except BadInput:
        if all(task.dev and task.confirm for task in planned.protocol.tasks):
            return {}  # the protocol has the counts, the options the prompt lengths
        raise


def _lanes_by_model(planned: PlannedStudy) -> Mapping[str, int | None]:
    """Return the lanes at once, by model: from the lock, or as registered."""
    protocol = planned.protocol
    path = planned.folder / lock.NAME if planned.folder else Path(lock.NAME)
    if planned.folder and path.is_file():
        try:
            lock_lanes = json.loads(path.read_text(encoding="utf-8"))["batch"]["lanes"]
            if lock_lanes or not protocol.generation.is_batch_invariant:
                return {model: int(lock_lanes[model]) for model in protocol.models}
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{path}: is not a readable lock; run: kv-prereg audit") from None
    return dict.fromkeys(protocol.models, protocol.generation.lanes_per_batch)


def _estimate_part(
    load: Load, sides: tuple[Rates, Rates, Rates], generation: Generation, memory: float, registered: int | None
) -> Part:
    worst, middle, best = sides
    every = len(load.kinds) * load.problems_per_batch
    needed = memory_need(
        load.shape,
        load.longest,
        generation.prefill_chunk,
        load.kinds * load.problems_per_batch,
        signals=load.signals,
        watches=load.watches,
        raw=load.raw,
    )
    fit = lanes_that_fit(needed, memory)
    lanes = min(every, max(1, fit) if registered is None else registered)
    longest = (load.limit,) * len(load.kinds)
    samples = generation.temperature > 0
    expected, *others = (
        _batch_seconds(load, rates, answers, lanes, samples)
        for rates, answers in ((middle, load.answers), (best, load.answers), (middle, longest), (worst, longest))
    )
    low, long, high = (spent.total for spent in others)
    batches = -(-load.problems // load.problems_per_batch)
    return Part(load, (low, expected.total, long, high), expected, batches, every, lanes, registered, fit, needed)


def _batch_seconds(load: Load, rates: Rates, answers: Sequence[int], lanes: int, samples: bool) -> TimeSpent:
    """Return seconds of a batch of the registered number of problems. answers: tokens of each kind of lane."""
    size = load.problems_per_batch
    draws = len({kind.seed for kind in load.kinds}) / len(load.kinds) if samples else None
    prompt = prefill_seconds(load.shape, rates, load.prompt, load.watched) * (1 + load.rereads)
    batch = [*zip(load.kinds, answers, strict=True)] * size
    decoding = decoding_seconds(load.shape, rates, batch, lanes, draws)
    return decoding._replace(prompts=decoding.prompts + size * prompt)


def json_values(estimate: Estimate) -> dict[str, Any]:
    """Return the estimate as --json prints it."""
    low, middle, longest, high = (round(seconds / 3600, 4) for seconds in estimate.seconds)
    hours = {"low": low, "expected": middle, "longest": longest, "high": high}
    cost = None
    if estimate.price is not None:
        cost = {name: round(value * estimate.price, 2) for name, value in hours.items()}
    return {
        "machine": estimate.machine,
        "at_once": estimate.batches_at_once,
        "memory_bytes": round(estimate.memory),
        "hours": hours,
        "cost": cost,
        "parts": [_part_values(part) for part in estimate.parts],
        "assumed": list(estimate.assumed),
    }


def _part_values(part: Part) -> dict[str, Any]:
    low, middle, longest, high = (round(seconds, 3) for seconds in part.seconds)
    return {
        "phase": part.load.phase,
        "model": part.load.model,
        "task": part.load.task,
        "problems": part.load.problems,
        "batches": part.batches,
        "lanes_of_a_batch": part.all_lanes,
        "lanes_at_once": part.lanes,
        "lanes_that_fit": part.fit,
        "fits": part.lanes <= part.fit,
        "prompt_tokens": [part.load.prompt, part.load.longest],
        "bytes": {
            "weights": part.memory.weights,
            "largest_lane": part.memory.lanes[0],
            "prompt": part.memory.prompt,
            "at_once": part.memory.bytes(part.lanes),
        },
        "seconds_of_a_batch": {"low": low, "expected": middle, "longest": longest, "high": high},
        "spent": {name: round(duration, 3) for name, duration in part.spent._asdict().items()},
    }


def format_estimate(estimate: Estimate) -> str:
    """Format the estimate as text."""
    low, middle, longest, high = estimate.seconds
    lines = [
        f"on {estimate.machine}, {estimate.batches_at_once} "
        f"{'batch' if estimate.batches_at_once == 1 else 'batches'} at once: "
        f"about {format_duration(middle)}, {format_duration(low)} to {format_duration(high)}; "
        f"{format_duration(longest)} with every answer at its longest"
    ]
    if estimate.price is not None:
        paid = [estimate.price * seconds / 3600 for seconds in (middle, low, high)]
        lines.append("cost at {:g} an hour: about {:,.0f}, {:,.0f} to {:,.0f}".format(estimate.price, *paid))
    for part in estimate.parts:
        lines.append("")
        lines += _format_part(part, estimate)
    lines += ["", "assumed, and not measured:", *(f"  {assumption}" for assumption in estimate.assumed)]
    lines.append("checks, grading, hashing and drawings take additional time")
    return "\n".join(lines)


def _format_part(part: Part, estimate: Estimate) -> list[str]:
    load, total = part.load, part.spent.total
    shares = sorted(part.spent._asdict().items(), key=lambda entry: -entry[1])
    breakdown = ", ".join(
        f"{PHRASES[name]} {100 * entry / total:.0f} %" for name, entry in shares if entry > total / 100
    )
    registered_note = "" if part.registered is None else ", as registered"
    needed = part.memory.bytes(part.lanes)
    lines = [
        f"{load.phase}  {short_model_name(load.model)}  {load.task}: {load.problems:,} problems, "
        f"{len(load.kinds) * load.problems:,} lanes",
        f"  {part.batches:,} batches of {part.all_lanes:,} lanes, {part.lanes:,} at once{registered_note}, "
        f"{format_duration(part.seconds[1])} each",
        f"  of it {breakdown}",
        f"  memory: weights {format_gib(part.memory.weights)}, the largest lane {format_gib(part.memory.lanes[0])}, "
        f"a prompt {format_gib(part.memory.prompt)}",
        f"  in total at most {format_gib(needed)} of {format_gib(estimate.memory)}",
    ]
    if part.fit == 0:
        lines.append("  does not fit: the weights and a prompt leave no room for a single lane")
    elif part.lanes > part.fit:
        lines.append(f"  does not fit: only {part.fit:,} of {part.lanes:,} lanes at once fit")
    else:
        most = "all" if part.fit >= part.all_lanes else f"{part.fit:,}"
        lines.append(f"  fits, for prompts of up to {load.longest:,} tokens; lanes at once that fit: {most}")
    return lines


def short_model_name(model: str) -> str:
    """Return the name of a model without the commit of its repository."""
    return model.partition("@")[0].removeprefix("hf:")


def format_gib(size: float) -> str:
    return f"{size / 2**30:.2f} GiB"
