"""How true estimates are: batches of shipped studies as `rehearse --on here` predicts them, and as they run.

The machine is measured anew before each batch, at the shape of its model. Both the measurement and the batch
are timed in processor seconds of one thread, so that who else uses the machine counts for less. A batch is
predicted for answers as long as its own were: what is checked is the arithmetic, not a guess of lengths.

    python -m benchmarks.planning
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import NamedTuple

import torch

from benchmarks.report import header, table
from benchmarks.setting import Setting
from protocol.instruments.planning import estimate, rate_measurement, workload
from protocol.instruments.planning.roofline import TimeSpent
from protocol.instruments.planning.workload import Load, UserInputs
from protocol.models import sources
from protocol.plan import grid
from protocol.run.executors import Job
from protocol.run.executors.local import cache_models, make_executor
from protocol.workspace.planned_study import PlannedStudy, read_protocol

REGISTRATIONS = Path(__file__).resolve().parent.parent / "registrations"


class Case(NamedTuple):
    """Some problems of a shipped study in one batch. tokens: new ones at most, in place of the registered."""

    about: str
    study: str
    model: str
    task: str
    problems: int
    lanes: int
    tokens: int | None = None


CASES = (
    Case("prompts of 768 tokens", "quickstart", "smollm2-135m", "needle-768", 2, 22),
    Case("one problem alone", "quickstart", "smollm2-135m", "association-768", 1, 11),
    Case("longer answers", "quickstart", "smollm2-135m", "needle-768", 1, 11, 64),
    Case("answers with events", "alpha-chain", "chain-llama", "chain", 6, 126),
    Case("the same, other model", "alpha-chain", "chain-qwen2", "chain", 3, 63),
    Case("13 policies with events", "reasoning-field", "chain-qwen2", "chain", 2, 106),
)


class Checked(NamedTuple):
    predicted: float
    ran: float
    lanes: int
    lane_steps: int
    spent: TimeSpent


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.planning",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--cases", type=int, nargs="+", default=list(range(len(CASES))), metavar="N")
    arguments = made.parse_args(argv)
    rows = []
    for case in (CASES[number] for number in arguments.cases):
        found = checked(case)
        spent = found.spent
        shares = [f"{100 * part / spent.total:.0f}" for part in spent]
        rows.append(
            [
                f"{case.study}, {case.model}: {case.about}",
                str(found.lanes),
                str(found.lane_steps),
                f"{found.predicted:.1f}",
                f"{found.ran:.1f}",
                f"{found.predicted / found.ran:.2f}",
                " / ".join(shares),
            ]
        )
        print(rows[-1], file=sys.stderr, flush=True)
    print(header(Setting("models as named", "cpu", "float32", 1), "planning", argv))
    columns = ("batch", "lanes", "tokens", "predicted, s", "ran, s", "predicted / ran")
    print(table((*columns, "% " + " / ".join(TimeSpent._fields)), rows))
    return 0


def checked(case: Case) -> Checked:
    """One batch of the confirmation's cells on development problems: predicted, then run."""
    planned = planned_of(case)
    protocol = planned.protocol
    torch.set_num_threads(1)
    ids = spread(planned.tasks[case.task].ids(), case.problems)
    loads = workload.list_loads(planned, {case.task: {"dev": ids, "confirm": ids}}, UserInputs({}))
    load = next(each for each in loads if each.phase == "confirm")
    lanes = min(case.lanes, len(load.kinds) * case.problems)
    widest = load._replace(problems_per_batch=case.problems)
    asked = estimate.measurement_request(widest, protocol.generation.dtype, lanes)
    rates, without = rate_measurement.measure_rates(asked, now=process_time)
    if without:
        print(f"not measured: {without}", file=sys.stderr)
    acting = protocol.designs_by_phase()["confirm"]
    cells = tuple(grid.cells(acting))
    run = make_executor(planned._replace(protocol=acting), {case.model: lanes}, load_model=cache_models(planned, print))
    job = Job(case.model, case.task, tuple(ids), cells)
    run(job._replace(problems=tuple(ids[:1]), cells=cells[:1]))  # loads the model and the grader
    start = process_time()
    produced = run(job)
    ran = process_time() - start
    answers = tuple(tuple(produced.records[cell, problem][0]["tokens"] for cell in cells) for problem in ids)
    own: Load = load._replace(answers=answers, problems_per_batch=case.problems)
    predicted = estimate.batch_seconds(own, rates, answers, lanes, protocol.generation.temperature > 0)
    steps = sum(map(sum, answers))
    return Checked(predicted.total, ran, len(cells) * len(ids), steps, predicted)


def planned_of(case: Case) -> PlannedStudy:
    """The study with this one model and task."""
    folder = REGISTRATIONS / case.study
    _, protocol = read_protocol(folder)
    tasks = tuple(
        task._replace(max_new_tokens=case.tokens or task.max_new_tokens)
        for task in protocol.tasks
        if task.name == case.task
    )
    generation = protocol.generation._replace(threads=1, workers=None)
    alone = replace(protocol, models=(case.model,), tasks=tasks, generation=generation)
    return PlannedStudy(alone, sources.cache_home(), folder=folder)


def spread(ids: Sequence[str], count: int) -> list[str]:
    """Development problems from all over the list."""
    from splits import CONFIRM, assign_bucket

    dev = [each for each in ids if assign_bucket(each) not in CONFIRM]
    return [dev[place * len(dev) // count] for place in range(count)]


if __name__ == "__main__":
    raise SystemExit(main())
