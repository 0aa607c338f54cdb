"""Estimate how long a study will take, from timed batches as wide as registered and from observed answer
lengths.

A lane of a wide batch takes less time than one of a narrow batch, and a batch takes more than the sum of its
lanes, because a forward has a fixed cost. So the model of a batch is `per_forward` seconds a forward plus
`per_lane` seconds for each lane in it, besides its prompts.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle, islice
from typing import NamedTuple

from protocol.plan.grid import Cell
from protocol.running.executors import Produced

__all__ = ["Batch", "Speed", "batch", "seconds", "speed", "steps"]


class Batch(NamedTuple):
    """The measurements of one batch. forwards: of the batch; lane_steps: summed over its lanes."""

    problems: int
    prefill: float  # seconds
    decode: float  # seconds
    forwards: int
    lane_steps: int


class Speed(NamedTuple):
    """Seconds for a prompt, for a forward, and for each lane in a forward."""

    prompt: float
    fixed: float
    each: float


def batch(produced: Produced) -> Batch | None:
    """Return the measurements of a job's batch, or None if no lane ran. Failed lanes are not counted."""
    ran = [(problem, body, costs) for (_, problem), (body, costs) in produced.records.items() if costs]
    spans = [
        (body["batch"]["joined"], body["tokens"] + 1)
        for _, body, _ in ran
        if "joined" in body.get("batch", ())
    ]
    if not spans:
        return None
    prefill = sum({problem: float(costs["prefill_seconds"]) for problem, _, costs in ran}.values())
    return Batch(
        problems=len({problem for problem, _, _ in ran}),
        prefill=prefill,
        decode=max(0.0, produced.seconds - prefill),
        forwards=max(joined + taken for joined, taken in spans),
        lane_steps=sum(taken for _, taken in spans),
    )


def speed(measured: Sequence[Batch]) -> Speed:
    """Fit the speed of one model and task by least squares with non-negative parts. At least one of the
    batches is as wide as the registered one.
    """
    prompt = sum(one.prefill for one in measured) / sum(one.problems for one in measured)
    ff = sum(one.forwards**2 for one in measured)
    fl = sum(one.forwards * one.lane_steps for one in measured)
    ll = sum(one.lane_steps**2 for one in measured)
    fs = sum(one.forwards * one.decode for one in measured)
    ls = sum(one.lane_steps * one.decode for one in measured)
    determinant = ff * ll - fl * fl
    if determinant > 1e-9 * ff * ll:
        fixed, each = (fs * ll - ls * fl) / determinant, (ls * ff - fs * fl) / determinant
        if fixed >= 0 and each >= 0:
            return Speed(prompt, fixed, each)
    alone = Speed(prompt, fs / ff, 0.0), Speed(prompt, 0.0, ls / ll)

    def off(tried: Speed) -> float:
        return sum(
            (one.forwards * tried.fixed + one.lane_steps * tried.each - one.decode) ** 2 for one in measured
        )

    return min(alone, key=off)


def steps(lengths: Iterable[int], lanes: int) -> int:
    """Count the forwards of a batch whose lanes need `lengths` steps, `lanes` of them at a time, in this
    order.
    """
    waiting = deque(lengths)
    running: list[int] = []
    forwards = 0
    while waiting or running:
        while waiting and len(running) < lanes:
            running.append(waiting.popleft())
        shortest = min(running)
        forwards += shortest
        running = [left - shortest for left in running if left > shortest]
    return forwards


def seconds(
    taken: Speed,
    cells: Sequence[Cell],
    answers: Mapping[Cell, Sequence[int]],
    problems: int,
    together: int,
    lanes: int,
) -> float:
    """Return the seconds for `problems` problems, `problems_per_batch` in a batch, with `lanes` lanes
    decoding at once.

    answers: the answer lengths in tokens that each cell gave; they are repeated in turn.
    """
    turns = {cell: cycle(answers[cell]) for cell in cells if answers.get(cell)}
    whole = 0.0
    for first in range(0, problems, together):
        size = min(together, problems - first)
        drawn = [[tokens + 1 for tokens in islice(turns[cell], size)] for cell in turns]
        lengths = [own[place] for place in range(size) for own in drawn]
        whole += size * taken.prompt
        whole += taken.fixed * steps(lengths, lanes or len(lengths)) + taken.each * sum(lengths)
    return whole
