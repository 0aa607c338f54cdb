"""The estimate of a study on a machine: hours, memory, cost, what dominates, and the assumptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from analysis.output.phases import lasting
from protocol.plan.generation import Generation
from protocol.planning.arithmetic import Decoded, Rates, Room, Spent, decoded, lanes_that_fit, prefill, room
from protocol.planning.workload import Load

__all__ = ["USABLE", "Estimate", "Part", "batch", "estimated", "text", "values"]

USABLE = 0.9
"""The usable share of the memory of a device; the rest is for driver, libraries and fragmentation."""

SPOKEN = {
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
    spent: Spent
    batches: int
    all_lanes: int
    lanes: int
    registered: int | None
    fit: int
    room: Room


class Estimate(NamedTuple):
    """The estimate of a study. seconds: as in `Part`, of all parts with loading. price: per hour, or None."""

    machine: str
    beside: int
    memory: float
    parts: tuple[Part, ...]
    seconds: tuple[float, float, float, float]
    price: float | None
    assumed: tuple[str, ...]


def estimated(
    loads: Sequence[Load],
    sides: Mapping[str, tuple[Rates, Rates, Rates]],
    generation: Generation,
    *,
    machine: str,
    beside: int,
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
    parts, whole = [], [0.0, 0.0, 0.0, 0.0]
    loaded: set[tuple[str, str]] = set()
    for load in loads:
        low, middle, high = reversed(sides[load.model])
        part = _part(load, (low, middle, high), generation, memory, lanes[load.model], samples)
        parts.append(part)
        rounds = -(-part.batches // beside)
        count = rounds if beside > 1 else load.problems / load.together
        for place, seconds in enumerate(part.seconds):
            whole[place] += count * seconds
        if (load.phase, load.model) not in loaded:
            loaded.add((load.phase, load.model))
            for place, side in enumerate((low, middle, middle, high)):
                whole[place] += load.shape.bytes / side.load
    low_, middle_, longest, high_ = whole
    said = tuple(dict.fromkeys([*assumed, *(words for load in loads for words in load.assumed)]))
    return Estimate(machine, beside, memory, tuple(parts), (low_, middle_, longest, high_), price, said)


def _part(
    load: Load,
    sides: tuple[Rates, Rates, Rates],
    generation: Generation,
    memory: float,
    registered: int | None,
    samples: bool,
) -> Part:
    low, middle, high = sides
    every = len(load.kinds) * load.together
    needed = room(
        load.shape,
        load.longest,
        generation.prefill_chunk,
        load.kinds * load.together,
        signals=load.signals,
        watches=load.watches,
        raw=load.raw,
    )
    fit = lanes_that_fit(needed, memory)
    lanes = min(every, max(1, fit) if registered is None else registered)
    longest = ((load.limit,) * len(load.kinds),)

    def taken(rates: Rates, answers: tuple[tuple[int, ...], ...]) -> Decoded:
        return batch(load, rates, answers, lanes, samples)

    expected = taken(middle, load.answers)
    seconds = (
        taken(low, load.answers).spent.whole,
        expected.spent.whole,
        taken(middle, longest).spent.whole,
        taken(high, longest).spent.whole,
    )
    batches = -(-load.problems // load.together)
    return Part(load, seconds, expected.spent, batches, every, lanes, registered, fit, needed)


def batch(
    load: Load, rates: Rates, answers: tuple[tuple[int, ...], ...], lanes: int, samples: bool
) -> Decoded:
    """Return the cost of a batch of the registered number of problems, a mean if answers are known."""
    prompt = prefill(load.shape, rates, load.prompt, load.watched) * (1 + load.again)
    size = load.together
    groups = [answers[at : at + size] for at in range(0, len(answers), size)] if len(answers) > 1 else []
    groups = [group for group in groups if len(group) == size] or [(answers * size)[:size]]
    found = []
    for group in groups:
        batch = [
            (kind, problem, tokens)
            for problem, row in enumerate(group)
            for kind, tokens in zip(load.kinds, row, strict=True)
        ]
        found.append(decoded(load.shape, rates, batch, lanes, samples))
    spent = Spent()
    for each in found:
        spent = spent.plus(each.spent.times(1 / len(found)))
    return Decoded(
        spent.plus(Spent(prompts=size * prompt)),
        round(sum(each.forwards for each in found) / len(found)),
        round(sum(each.lane_steps for each in found) / len(found)),
    )


def values(found: Estimate) -> dict[str, Any]:
    """Return the estimate as --json prints it."""
    low, middle, longest, high = (round(seconds / 3600, 4) for seconds in found.seconds)
    hours = {"low": low, "expected": middle, "longest": longest, "high": high}
    cost = None
    if found.price is not None:
        cost = {name: round(each * found.price, 2) for name, each in hours.items()}
    return {
        "machine": found.machine,
        "at_once": found.beside,
        "memory_bytes": round(found.memory),
        "hours": hours,
        "cost": cost,
        "parts": [_of_part(part) for part in found.parts],
        "assumed": list(found.assumed),
    }


def _of_part(part: Part) -> dict[str, Any]:
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
            "weights": part.room.weights,
            "largest_lane": part.room.lanes[0],
            "prompt": part.room.prompt,
            "at_once": part.room.bytes(part.lanes),
        },
        "seconds_of_a_batch": {"low": low, "expected": middle, "longest": longest, "high": high},
        "spent": {name: round(each, 3) for name, each in part.spent._asdict().items()},
    }


def text(found: Estimate) -> str:
    """Format the estimate as text."""
    low, middle, longest, high = found.seconds
    lines = [
        f"on {found.machine}, {found.beside} {'batch' if found.beside == 1 else 'batches'} at once: "
        f"about {lasting(middle)}, {lasting(low)} to {lasting(high)}; "
        f"{lasting(longest)} with every answer at its longest"
    ]
    if found.price is not None:
        paid = [found.price * seconds / 3600 for seconds in (middle, low, high)]
        lines.append("cost at {:g} an hour: about {:,.0f}, {:,.0f} to {:,.0f}".format(found.price, *paid))
    for part in found.parts:
        lines.append("")
        lines += _told(part, found)
    lines += ["", "assumed, and not measured:", *(f"  {each}" for each in found.assumed)]
    lines.append("checks, grading, hashing and drawings come on top")
    return "\n".join(lines)


def _told(part: Part, found: Estimate) -> list[str]:
    load, whole = part.load, part.spent.whole
    shares = sorted(part.spent._asdict().items(), key=lambda each: -each[1])
    told = ", ".join(
        f"{SPOKEN[name]} {100 * each / whole:.0f} %" for name, each in shares if each > whole / 100
    )
    of = "" if part.registered is None else ", as registered"
    need = part.room.bytes(part.lanes)
    lines = [
        f"{load.phase}  {short(load.model)}  {load.task}: {load.problems:,} problems, "
        f"{len(load.kinds) * load.problems:,} lanes",
        f"  {part.batches:,} batches of {part.all_lanes:,} lanes, {part.lanes:,} at once{of}, "
        f"{lasting(part.seconds[1])} each",
        f"  of it {told}",
        f"  memory: weights {gib(part.room.weights)}, the largest lane {gib(part.room.lanes[0])}, "
        f"a prompt {gib(part.room.prompt)}",
        f"  in all at most {gib(need)} of {gib(found.memory)}",
    ]
    if part.fit == 0:
        lines.append("  does not fit: not one lane does, with the weights and a prompt")
    elif part.lanes > part.fit:
        lines.append(f"  does not fit: of {part.lanes:,} lanes at once {part.fit:,} do")
    else:
        most = "all" if part.fit >= part.all_lanes else f"{part.fit:,}"
        lines.append(f"  fits, for prompts of up to {load.longest:,} tokens; lanes at once that fit: {most}")
    return lines


def short(model: str) -> str:
    """Return the name of a model without the commit of its repository."""
    return model.partition("@")[0].removeprefix("hf:")


def gib(size: float) -> str:
    return f"{size / 2**30:.2f} GiB"
