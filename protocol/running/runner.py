"""Run the cells of one phase of a study, probe or confirm, batch by batch, and record them.

The lanes (every arm, budget and seed of one model and task) of some problems are one unit of work: they
decode as one batch and are appended with one write and one fsync. A killed run therefore loses at most one
unit, which is run again whole, so that the composition of the batch, and hence every record, is what an
undisturbed run gives.

What runs cells cannot compute an effect, so it cannot stop on one: this module imports neither analysis nor
figures.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from protocol.evidence.run import records
from protocol.locked.study import Study
from protocol.plan.design import Design
from protocol.plan.grid import Cell
from protocol.running.executors import Executor, Job, pool
from protocol.tasks.door import Opened

__all__ = ["Progress", "Unit", "record", "run", "units"]


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
    cells: int  # of which every lane is recorded
    all_cells: int
    seconds: float  # of this attempt
    fresh: int  # problems run in this attempt; the others were recorded before
    unit: Unit


def units(
    cells: Sequence[Cell], problems: Mapping[str, Sequence[str]], together: int | None = None
) -> list[Unit]:
    """Units in running order: by model and task as registered, problems sorted, `together` a unit (or 1)."""
    groups = dict.fromkeys((cell.model, cell.task) for cell in cells)
    size = together or 1
    work = []
    for model, task in groups:
        own = tuple(cell for cell in cells if (cell.model, cell.task) == (model, task))
        ids = tuple(sorted(problems[task]))
        work += [Unit(model, task, ids[at : at + size], own) for at in range(0, len(ids), size)]
    return work


def run(
    study: Study,
    protocol: Design,
    cells: Sequence[Cell],
    problems: Mapping[str, Sequence[str]],
    *,
    phase: str,
    attempt: int,
    report: Callable[[Progress], None],
    opened: Opened | None = None,
) -> None:
    """Record every lane of a phase that the study does not hold yet, in the registered processes. protocol:
    what of the registered one runs now; problems: by task; those that are held out come from `opened`.
    """
    work = units(cells, problems, protocol.generation.problems_per_batch)
    generation = protocol.generation._replace(first_event=study.first_event())
    planned = study.planned._replace(protocol=replace(protocol, generation=generation))
    with pool.opened(planned, study.lanes(), opened) as execute:
        record(
            study.folder,
            work,
            execute,
            phase=phase,
            registration=study.lock.digest,
            attempt=attempt,
            report=report,
        )


def record(
    folder: Path,
    work: Sequence[Unit],
    execute: Executor,
    *,
    phase: str,
    registration: str,
    attempt: int,
    report: Callable[[Progress], None],
) -> int:
    """Record every unit that `folder` does not hold yet; returns the number of records written.

    A record that is already there is kept: only missing ones are appended, after the whole unit was run
    again.
    """
    started, written, fresh, lanes, problems = time.monotonic(), 0, 0, 0, 0
    total = sum(len(unit.problems) for unit in work)
    last = {cell: index for index, unit in enumerate(work) for cell in unit.cells}
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
        results = execute(Job(*unit) for index, unit in enumerate(work) if missing[index])
        for done, unit in enumerate(work):
            if missing[done]:
                produced = next(results)
                batch = [
                    ({"registration": registration, "phase": phase, **body}, {"attempt": attempt, **costs})
                    for body, costs in (produced.records[lane] for lane in missing[done])
                ]
                if produced.trajectories:
                    shard.keep_trajectories(produced.trajectories)
                shard.append(batch)
                written += len(batch)
                fresh += len(unit.problems)
            elapsed = time.monotonic() - started
            problems += len(unit.problems)
            lanes += len(unit.cells) * len(unit.problems)
            cells = sum(index <= done for index in last.values())
            report(Progress(problems, total, lanes, cells, len(last), elapsed, fresh, unit))
    return written
