"""Run the cells of one phase of a study, probe or confirm, batch by batch, and record them.

The lanes (every arm, budget and seed of one model and task) of some problems are one unit of work: they
decode as one batch and are appended with one write and one fsync. A killed run therefore loses at most one
unit. It runs again completely, so that the batch composition, and hence every record, is that of an
uninterrupted run.

The code that runs cells cannot compute an effect, so it cannot stop on one: this module imports neither
analysis nor figures.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from protocol.evidence.run import records
from protocol.locked.study import Study
from protocol.plan.design import Design
from protocol.plan.grid import Cell
from protocol.running.executors import Executor, Job, Told, choice
from protocol.running.executors.settings import LOCAL, Settings
from protocol.tasks.door import Opened

__all__ = ["Event", "Progress", "Reached", "Unit", "lanes", "record", "run", "units"]


class Unit(NamedTuple):
    """Every cell of one (model, task), for some problems."""

    model: str
    task: str
    problems: tuple[str, ...]
    cells: tuple[Cell, ...]


class Progress(NamedTuple):
    done: int  # problems of a model and task
    total: int
    lanes: int  # recorded
    all_lanes: int
    left: float | None  # seconds remaining for this model and task; None if none of its units was timed
    others: int  # models and tasks still to run after it
    unit: Unit


Event: TypeAlias = "Progress | Told"
"""What a run says while it goes on: of the units that are recorded, and of the one that runs."""


def units(
    cells: Sequence[Cell], problems: Mapping[str, Sequence[str]], together: int | None = None
) -> list[Unit]:
    """Return units in running order: by model and task as registered, problems sorted, `problems_per_unit` in
    a unit (default 1).
    """
    groups = dict.fromkeys((cell.model, cell.task) for cell in cells)
    size = together or 1
    work = []
    for model, task in groups:
        own = tuple(cell for cell in cells if (cell.model, cell.task) == (model, task))
        ids = tuple(sorted(problems[task]))
        work += [Unit(model, task, ids[at : at + size], own) for at in range(0, len(ids), size)]
    return work


def lanes(cells: Sequence[Cell], problems: Mapping[str, Sequence[str]]) -> int:
    """Count the lanes that these cells have on these problems, by task."""
    return sum(len(problems[cell.task]) for cell in cells)


def run(
    study: Study,
    protocol: Design,
    cells: Sequence[Cell],
    problems: Mapping[str, Sequence[str]],
    *,
    phase: str,
    attempt: int,
    report: Callable[[Event], object],
    opened: Opened | None = None,
    settings: Settings = LOCAL,
) -> None:
    """Record every lane of a phase that the study does not have yet, on the machines that `settings` name.
    protocol: the part of the registered design that runs now. problems: by task; held-out problems come from
    `held_out_problems`.
    """
    work = units(cells, problems, protocol.generation.problems_per_batch)
    generation = protocol.generation._replace(first_event=study.first_event())
    planned = study.planned._replace(protocol=replace(protocol, generation=generation))
    with choice.opened(study, planned, phase, opened, settings, report) as execute:
        record(
            study.folder,
            work,
            execute,
            phase=phase,
            registration=study.lock.digest,
            attempt=attempt,
            report=report,
            beside=settings.count(generation.workers),
        )


class Reached:
    """Progress over some units and an estimate of the remaining time, from the timed units of this attempt.
    Each model and task is timed separately, since they differ.
    """

    def __init__(self, work: Sequence[Unit], beside: int, to_run: Collection[int] | None = None) -> None:
        """concurrency: units that run at once. to_run: indices of the units that have to run; None means all.
        """
        self._beside, self._problems, self._lanes = beside, 0, 0
        self._total = sum(len(unit.problems) for unit in work)
        self._all_lanes = sum(len(unit.cells) * len(unit.problems) for unit in work)
        self._taken: dict[tuple[str, str], tuple[float, int]] = {}
        self._ahead: Counter[tuple[str, str]] = Counter()  # problems to run
        for unit in work if to_run is None else [work[place] for place in to_run]:
            self._ahead[unit.model, unit.task] += len(unit.problems)

    def after(self, unit: Unit, seconds: float | None) -> Progress:
        """Return the progress after one more unit. seconds: its run time; None if it was already recorded."""
        kind, problems = (unit.model, unit.task), len(unit.problems)
        self._problems += problems
        self._lanes += len(unit.cells) * problems
        if seconds is not None:
            before, timed = self._taken.get(kind, (0.0, 0))
            self._taken[kind] = (before + seconds, timed + problems)
            self._ahead[kind] -= problems
        left = None
        if kind in self._taken:
            taken, timed = self._taken[kind]
            left = taken / timed * self._ahead[kind] / self._beside
        others = sum(ahead > 0 for other, ahead in self._ahead.items() if other != kind)
        return Progress(self._problems, self._total, self._lanes, self._all_lanes, left, others, unit)


def record(
    folder: Path,
    work: Sequence[Unit],
    execute: Executor,
    *,
    phase: str,
    registration: str,
    attempt: int,
    report: Callable[[Event], object],
    beside: int = 1,
) -> int:
    """Record every unit that `folder` does not have yet; return the number of records written.

    Existing records are not replaced: only missing ones are appended, after the whole unit ran again.
    concurrency: units that `execute` runs at once, for the time estimate.
    """
    written = 0
    with records.Shard(folder / records.FOLDERS[phase]) as shard:
        missing = {
            index: [
                (cell, problem)
                for problem in unit.problems
                for cell in unit.cells
                if records.key_of(cell._asdict(), problem) not in shard
            ]
            for index, unit in enumerate(work)
        }
        reached = Reached(work, beside, [index for index in missing if missing[index]])
        results = execute(Job(*unit) for index, unit in enumerate(work) if missing[index])
        for index, unit in enumerate(work):
            seconds = None
            if missing[index]:
                produced = next(results)
                batch = [
                    (
                        {"registration": registration, "phase": phase, **body},
                        {"attempt": attempt, **produced.where, **costs},
                    )
                    for body, costs in (produced.records[lane] for lane in missing[index])
                ]
                if produced.trajectories:
                    shard.keep_trajectories(produced.trajectories)
                shard.append(batch)
                written += len(batch)
                seconds = produced.seconds
            report(reached.after(unit, seconds))
    return written
