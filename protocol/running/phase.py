"""One phase of a study, probe or confirm: its cells on some problems, in the registered processes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from protocol.evidence.run.held_out import HeldOut
from protocol.locked.study import Study
from protocol.plan.design import Design
from protocol.plan.grid import Cell
from protocol.running import runner
from protocol.running.executors import pool

__all__ = ["run"]


def run(
    study: Study,
    protocol: Design,
    cells: Sequence[Cell],
    problems: Mapping[str, Sequence[str]],
    home: Path,
    *,
    phase: str,
    attempt: int,
    report: Callable[[runner.Progress], None],
    held_out: HeldOut | None = None,
) -> None:
    """Record every lane that the study does not hold yet. protocol: what of the registered one runs now;
    problems: by task; held-out ones need `held_out`.
    """
    work = runner.units(cells, problems, protocol.generation.problems_per_batch)
    with pool.opened(protocol, home, study.lanes(), held_out) as execute:
        runner.run(
            study.folder,
            work,
            execute,
            phase=phase,
            registration=study.lock.digest,
            attempt=attempt,
            report=report,
        )
