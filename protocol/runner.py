"""Run the cells of one phase, problem by problem, and record them.

A problem's lanes (every arm, budget and seed of one model and task) are one unit of work: they share a
prefill, decode as one batch and are appended with one write and one fsync. A killed run therefore loses at
most one problem, which is run again whole, so that the composition of the batch, and hence every record, is
what an undisturbed run gives.

What runs cells cannot compute an effect, so it cannot stop on one: this module imports neither analysis nor
figures.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from protocol.evidence import records
from protocol.executors import Executor, Job
from protocol.grid import Cell

__all__ = ["Progress", "Unit", "run", "units"]


class Unit(NamedTuple):
    """Every cell of one (model, task), for one problem."""

    model: str
    task: str
    problem: str
    cells: tuple[Cell, ...]


class Progress(NamedTuple):
    done: int  # units
    total: int
    lanes: int  # recorded
    cells: int  # of which every lane is recorded
    all_cells: int
    seconds: float  # of this attempt
    fresh: int  # units run in this attempt; the others were recorded before
    unit: Unit


def units(cells: Sequence[Cell], problems: Mapping[str, Sequence[str]]) -> list[Unit]:
    """Units in running order: by model and task as registered, problems sorted."""
    groups = dict.fromkeys((cell.model, cell.task) for cell in cells)
    return [
        Unit(model, task, problem, tuple(cell for cell in cells if (cell.model, cell.task) == (model, task)))
        for model, task in groups
        for problem in sorted(problems[task])
    ]


def run(
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
    started, written, fresh, lanes = time.monotonic(), 0, 0, 0
    last = {cell: index for index, unit in enumerate(work) for cell in unit.cells}
    with records.Shard(folder / records.FOLDERS[phase]) as shard:
        for done, unit in enumerate(work):
            missing = [
                cell for cell in unit.cells if records.key_of(cell.content(), unit.problem) not in shard
            ]
            if missing:
                produced = execute(Job(unit.model, unit.task, unit.problem, unit.cells))
                batch = [
                    ({"registration": registration, "phase": phase, **body}, {"attempt": attempt, **costs})
                    for body, costs in (produced.records[cell] for cell in missing)
                ]
                for trajectory in produced.trajectories:
                    shard.keep_trajectory(trajectory)
                shard.append(batch)
                written += len(batch)
                fresh += 1
            elapsed = time.monotonic() - started
            lanes += len(unit.cells)
            cells = sum(index <= done for index in last.values())
            report(Progress(done + 1, len(work), lanes, cells, len(last), elapsed, fresh, unit))
    return written
