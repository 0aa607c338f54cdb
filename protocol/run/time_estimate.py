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
from protocol.run.executors import JobResult


class Batch(NamedTuple):
    """The measurements of one batch. forwards: of the batch; lane_steps: summed over its lanes."""

    problems: int
    prefill: float  # seconds
    decode: float  # seconds
    forwards: int
    lane_steps: int


class Speed(NamedTuple):
    """Seconds for a prompt, for a forward, and for each lane in a forward."""

    per_prompt: float
    per_forward: float
    per_lane: float


def summarize_batch(job_result: JobResult) -> Batch | None:
    """Return the measurements of a job's batch, or None if no lane ran. Failed lanes are not counted."""
    records = [(problem, body, costs) for (_, problem), (body, costs) in job_result.records.items() if costs]
    spans = [
        (body["batch"]["joined"], body["tokens"] + 1) for _, body, _ in records if "joined" in body.get("batch", ())
    ]
    if not spans:
        return None
    prefill = sum({problem: float(costs["prefill_seconds"]) for problem, _, costs in records}.values())
    return Batch(
        problems=len({problem for problem, _, _ in records}),
        prefill=prefill,
        decode=max(0.0, job_result.seconds - prefill),
        forwards=max(joined + steps for joined, steps in spans),
        lane_steps=sum(steps for _, steps in spans),
    )


def fit_speed(batches: Sequence[Batch]) -> Speed:
    """Fit the speed of one model and task by least squares with non-negative parts. At least one of the
    batches is as wide as the registered one.
    """
    per_prompt = sum(item.prefill for item in batches) / sum(item.problems for item in batches)
    ff = sum(item.forwards**2 for item in batches)
    fl = sum(item.forwards * item.lane_steps for item in batches)
    ll = sum(item.lane_steps**2 for item in batches)
    fs = sum(item.forwards * item.decode for item in batches)
    ls = sum(item.lane_steps * item.decode for item in batches)
    determinant = ff * ll - fl * fl
    if determinant > 1e-9 * ff * ll:
        per_forward, per_lane = (fs * ll - ls * fl) / determinant, (ls * ff - fs * fl) / determinant
        if per_forward >= 0 and per_lane >= 0:
            return Speed(per_prompt, per_forward, per_lane)
    candidates = Speed(per_prompt, fs / ff, 0.0), Speed(per_prompt, 0.0, ls / ll)

    def squared_error(candidate: Speed) -> float:
        return sum(
            (item.forwards * candidate.per_forward + item.lane_steps * candidate.per_lane - item.decode) ** 2
            for item in batches
        )

    return min(candidates, key=squared_error)


def count_forwards(lengths: Iterable[int], lanes: int) -> int:
    """Count the forwards of a batch whose lanes need `lengths` steps, `lanes` of them at a time, in this order."""
    waiting = deque(lengths)
    running: list[int] = []
    forwards = 0
    while waiting or running:
        while waiting and len(running) < lanes:
            running.append(waiting.popleft())
        shortest = min(running)
        forwards += shortest
        running = [remaining - shortest for remaining in running if remaining > shortest]
    return forwards


def predict_seconds(
    pace: Speed,
    cells: Sequence[Cell],
    answers: Mapping[Cell, Sequence[int]],
    problems: int,
    problems_per_batch: int,
    lanes: int,
) -> float:
    """Return the seconds for `problems` problems, `problems_per_batch` in a batch, with `lanes` lanes decoding at once.

    answers: the answer lengths in tokens that each cell gave; they are repeated in turn.
    """
    turns = {cell: cycle(answers[cell]) for cell in cells if answers.get(cell)}
    total = 0.0
    for start in range(0, problems, problems_per_batch):
        size = min(problems_per_batch, problems - start)
        cell_lengths = [[tokens + 1 for tokens in islice(turns[cell], size)] for cell in turns]
        lengths = [lengths_of_cell[position] for position in range(size) for lengths_of_cell in cell_lengths]
        total += size * pace.per_prompt
        total += pace.per_forward * count_forwards(lengths, lanes or len(lengths)) + pace.per_lane * sum(lengths)
    return total
