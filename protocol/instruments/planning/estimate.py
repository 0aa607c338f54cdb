"""The estimate of a study on a machine: hours, memory, cost, what dominates, and the assumptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from protocol.formats.progress_display import format_duration
from protocol.instruments.planning.cost_model import (
    DecodingCost,
    MemoryNeed,
    Rates,
    TimeSpent,
    decoding_cost,
    lanes_that_fit,
    memory_need,
    prefill_seconds,
)
from protocol.instruments.planning.workload import Load
from protocol.plan.generation import Generation

__all__ = ["USABLE_SHARE", "Estimate", "Part", "batch_cost", "estimate_study", "format_estimate", "json_values"]

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
    seconds: tuple[float, float, float, float]
    price: float | None
    assumed: tuple[str, ...]


def estimate_study(
    loads: Sequence[Load],
    sides: Mapping[str, tuple[Rates, Rates, Rates]],
    generation: Generation,
    *,
    machine: str,
    batches_at_once: int,
    memory: float,
    lanes: Mapping[str, int | None],
    price: float | None,
    assumed: Sequence[str],
) -> Estimate:
    """Estimate a study. sides: pessimistic, expected and optimistic rates, by model. batches_at_once: batches
    that run in parallel, each in a process. memory: bytes for each. lanes: how many decode at once, by model;
    None if registering chooses.
    """
    samples = generation.temperature > 0
    parts, totals = [], [0.0, 0.0, 0.0, 0.0]
    loaded: set[tuple[str, str]] = set()
    for load in loads:
        low, middle, high = reversed(sides[load.model])
        part = _estimate_part(load, (low, middle, high), generation, memory, lanes[load.model], samples)
        parts.append(part)
        rounds = -(-part.batches // batches_at_once)
        count = rounds if batches_at_once > 1 else load.problems / load.problems_per_batch
        for index, seconds in enumerate(part.seconds):
            totals[index] += count * seconds
        if (load.phase, load.model) not in loaded:
            loaded.add((load.phase, load.model))
            for index, side in enumerate((low, middle, middle, high)):
                totals[index] += load.shape.bytes / side.load
    low_, middle_, longest, high_ = totals
    assumptions = tuple(dict.fromkeys([*assumed, *(sentence for load in loads for sentence in load.assumed)]))
    return Estimate(machine, batches_at_once, memory, tuple(parts), (low_, middle_, longest, high_), price, assumptions)


def _estimate_part(
    load: Load,
    sides: tuple[Rates, Rates, Rates],
    generation: Generation,
    memory: float,
    registered: int | None,
    samples: bool,
) -> Part:
    low, middle, high = sides
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
    longest = ((load.limit,) * len(load.kinds),)

    def cost_of_answers(rates: Rates, answers: tuple[tuple[int, ...], ...]) -> DecodingCost:
        return batch_cost(load, rates, answers, lanes, samples)

    expected = cost_of_answers(middle, load.answers)
    seconds = (
        cost_of_answers(low, load.answers).spent.total,
        expected.spent.total,
        cost_of_answers(middle, longest).spent.total,
        cost_of_answers(high, longest).spent.total,
    )
    batches = -(-load.problems // load.problems_per_batch)
    return Part(load, seconds, expected.spent, batches, every, lanes, registered, fit, needed)


def batch_cost(
    load: Load, rates: Rates, answers: tuple[tuple[int, ...], ...], lanes: int, samples: bool
) -> DecodingCost:
    """Return the cost of a batch of the registered number of problems, a mean if answers are known."""
    prompt = prefill_seconds(load.shape, rates, load.prompt, load.watched) * (1 + load.rereads)
    size = load.problems_per_batch
    groups = [answers[at : at + size] for at in range(0, len(answers), size)] if len(answers) > 1 else []
    groups = [group for group in groups if len(group) == size] or [(answers * size)[:size]]
    costs = []
    for group in groups:
        lanes_of_batch = [
            (kind, problem, tokens)
            for problem, row in enumerate(group)
            for kind, tokens in zip(load.kinds, row, strict=True)
        ]
        costs.append(decoding_cost(load.shape, rates, lanes_of_batch, lanes, samples))
    spent = TimeSpent()
    for cost in costs:
        spent = spent.add(cost.spent.scale(1 / len(costs)))
    return DecodingCost(
        spent.add(TimeSpent(prompts=size * prompt)),
        round(sum(cost.forwards for cost in costs) / len(costs)),
        round(sum(cost.lane_steps for cost in costs) / len(costs)),
    )


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
    lines.append("checks, grading, hashing and drawings come on top")
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
        f"  in all at most {format_gib(needed)} of {format_gib(estimate.memory)}",
    ]
    if part.fit == 0:
        lines.append("  does not fit: not one lane does, with the weights and a prompt")
    elif part.lanes > part.fit:
        lines.append(f"  does not fit: of {part.lanes:,} lanes at once {part.fit:,} do")
    else:
        most = "all" if part.fit >= part.all_lanes else f"{part.fit:,}"
        lines.append(f"  fits, for prompts of up to {load.longest:,} tokens; lanes at once that fit: {most}")
    return lines


def short_model_name(model: str) -> str:
    """Return the name of a model without the commit of its repository."""
    return model.partition("@")[0].removeprefix("hf:")


def format_gib(size: float) -> str:
    return f"{size / 2**30:.2f} GiB"
