"""Run the cells of one phase of a study, probe or confirm, batch by batch, and record them.

The lanes (every arm, budget and seed of one model and task) of some problems are one unit of work: they
decode as one batch and are appended with one write and one fsync. A killed run therefore loses the units that
its workers had not returned. They run again completely, so that the batch composition, and hence every record,
is that of an uninterrupted run.

The code that runs cells cannot compute an effect, so it cannot stop on one: this module imports neither
analysis nor figures.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from protocol.evidence import records
from protocol.evidence.shard_writer import ShardWriter
from protocol.plan.design import Design
from protocol.plan.grid import Cell
from protocol.run.executors import Executor, Job, JobUpdate, factory
from protocol.run.executors.held_out_problems import UnbuiltProblems
from protocol.run.executors.settings import LOCAL, Settings
from protocol.tasks.held_out_guard import HeldOutProblems
from protocol.workspace.study import Study


class Progress(NamedTuple):
    done: int  # problems of a model and task
    total: int
    lanes: int  # recorded
    all_lanes: int
    seconds_left: float | None  # seconds remaining for this model and task; None if none of its units was timed
    groups_left: int  # models and tasks still to run after it
    unit: Job


RunUpdate: TypeAlias = "Progress | JobUpdate"
"""What a run says while it goes on: of the units that are recorded, and of the one that runs."""


def split_into_units(
    cells: Sequence[Cell], problems: Mapping[str, Sequence[str]], problems_per_unit: int | None = None
) -> list[Job]:
    """Return units in running order: by model and task as registered, problems sorted, so many in a unit."""
    groups = dict.fromkeys((cell.model, cell.task) for cell in cells)
    size = problems_per_unit or 1
    work = []
    for model, task in groups:
        group_cells = tuple(cell for cell in cells if (cell.model, cell.task) == (model, task))
        ids = tuple(sorted(problems[task]))
        work += [Job(model, task, ids[start : start + size], group_cells) for start in range(0, len(ids), size)]
    return work


def count_lanes(cells: Sequence[Cell], problems: Mapping[str, Sequence[str]]) -> int:
    """Count the lanes that these cells have on these problems, by task."""
    return sum(len(problems[cell.task]) for cell in cells)


def run_phase(
    study: Study,
    protocol: Design,
    cells: Sequence[Cell],
    problems: Mapping[str, Sequence[str]],
    *,
    phase: str,
    attempt: int,
    report: Callable[[RunUpdate], object],
    held_out_problems: HeldOutProblems | UnbuiltProblems | None = None,
    settings: Settings = LOCAL,
) -> None:
    """Record every lane of a phase that the study does not have yet, on the machines that `settings` name. protocol:
    the part of the registered design that runs now. problems: by task; held-out problems come from `held_out_problems`.
    """
    work = split_into_units(cells, problems, protocol.generation.problems_per_batch)
    generation = replace(protocol.generation, first_event=study.first_event())
    planned = study.planned._replace(protocol=replace(protocol, generation=generation))
    with factory.open_executor(study, planned, phase, held_out_problems, settings, report) as execute:
        record_units(
            study.folder,
            work,
            execute,
            phase=phase,
            registration=study.lock.digest,
            attempt=attempt,
            report=report,
            concurrency=settings.count(generation.workers),
        )


class ProgressTracker:
    """Progress over some units and an estimate of the remaining time, from the timed units of this attempt.
    Each model and task is timed separately, since they differ.
    """

    def __init__(self, work: Sequence[Job], concurrency: int, to_run: Collection[int] | None = None) -> None:
        """concurrency: units that run at once. to_run: indices of the units that have to run; None means all."""
        self._concurrency, self._problems, self._lanes = concurrency, 0, 0
        self._total = sum(len(unit.problems) for unit in work)
        self._all_lanes = sum(len(unit.cells) * len(unit.problems) for unit in work)
        self._timings: dict[tuple[str, str], tuple[float, int]] = {}
        self._problems_left: Counter[tuple[str, str]] = Counter()  # problems to run
        for unit in work if to_run is None else [work[index] for index in to_run]:
            self._problems_left[unit.model, unit.task] += len(unit.problems)

    def advance(self, unit: Job, seconds: float | None) -> Progress:
        """Return the progress after one more unit. seconds: its run time; None if it was already recorded."""
        group, problems = (unit.model, unit.task), len(unit.problems)
        self._problems += problems
        self._lanes += len(unit.cells) * problems
        if seconds is not None:
            total_seconds, problems_timed = self._timings.get(group, (0.0, 0))
            self._timings[group] = (total_seconds + seconds, problems_timed + problems)
            self._problems_left[group] -= problems
        seconds_left = None
        if group in self._timings:
            timed_seconds, problems_timed = self._timings[group]
            seconds_left = timed_seconds / problems_timed * self._problems_left[group] / self._concurrency
        groups_left = sum(
            problems_left > 0 for other_group, problems_left in self._problems_left.items() if other_group != group
        )
        return Progress(self._problems, self._total, self._lanes, self._all_lanes, seconds_left, groups_left, unit)


def record_units(
    folder: Path,
    work: Sequence[Job],
    execute: Executor,
    *,
    phase: str,
    registration: str,
    attempt: int,
    report: Callable[[RunUpdate], object],
    concurrency: int = 1,
) -> int:
    """Record every unit that `folder` does not have yet; return the number of records written.

    Existing records are not replaced: only missing ones are appended, after the whole unit ran again.
    concurrency: units that `execute` runs at once, for the time estimate.
    """
    written = 0
    with ShardWriter(folder / records.FOLDERS[phase]) as shard:
        missing = {
            index: [
                (cell, problem)
                for problem in unit.problems
                for cell in unit.cells
                if records.lane_key(cell._asdict(), problem) not in shard
            ]
            for index, unit in enumerate(work)
        }
        tracker = ProgressTracker(work, concurrency, [index for index in missing if missing[index]])
        results = execute(unit for index, unit in enumerate(work) if missing[index])
        for index, unit in enumerate(work):
            seconds = None
            if missing[index]:
                job_result = next(results)
                batch = [
                    (
                        {"registration": registration, "phase": phase, **body},
                        {"attempt": attempt, **job_result.where, **costs},
                    )
                    for body, costs in (job_result.records[lane] for lane in missing[index])
                ]
                if job_result.trajectories:
                    shard.keep_trajectories(job_result.trajectories)
                shard.append(batch)
                written += len(batch)
                seconds = job_result.seconds
            report(tracker.advance(unit, seconds))
    return written
