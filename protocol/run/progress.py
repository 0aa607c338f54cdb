"""Progress messages of a run: what is recorded, what runs now, and how long the rest of the timed work will
take.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from protocol.evidence import ledger
from protocol.formats import progress_display
from protocol.formats.progress_display import Progress
from protocol.plan.design import Design
from protocol.plan.grid import Cell
from protocol.run import runner
from protocol.run.executors import Loading, PoolStatus
from protocol.run.executors.held_out_problems import UnbuiltProblems
from protocol.run.executors.settings import Settings
from protocol.tasks.held_out_guard import HeldOutProblems
from protocol.workspace.study import Study

Report = Callable[[runner.RunUpdate], None]


def run_displayed(
    study: Study,
    design: Design,
    cells: Sequence[Cell],
    problems: Mapping[str, Sequence[str]],
    *,
    phase: str,
    attempt: int,
    settings: Settings,
    held_out_problems: HeldOutProblems | UnbuiltProblems | None = None,
    watch: Callable[[Report], Report] = lambda report: report,
) -> None:
    """Run a phase as `runner.run_phase` does, and show how far it is. watch: wraps what receives updates."""
    lanes = runner.count_lanes(cells, problems)
    event = {"confirm": "attempt"}.get(phase, phase)
    if message := format_continuation(ledger.last_attempt_records(study.folder, event), lanes):
        progress_display.note(message)
    with progress_display.phase(format_start(settings.count(design.generation.workers))) as update:
        report = make_reporter(sum(map(len, problems.values())) * len(design.models), lanes, update)
        runner.run_phase(
            study,
            design,
            cells,
            problems,
            phase=phase,
            attempt=attempt,
            report=watch(report),
            held_out_problems=held_out_problems,
            settings=settings,
        )


def make_reporter(problems: int, lanes: int, emit: Callable[[Progress], object]) -> Report:
    """Return a callback that takes the updates of a run of so many problems and lanes, and emits progress in lanes."""
    latest: runner.Progress | None = None
    counts = format_counts(0, problems, 0, lanes)
    reported_at = 0.0  # when `latest` estimated the remaining time

    def report(update: runner.RunUpdate) -> None:
        nonlocal latest, counts, reported_at
        clock = time.monotonic()
        if isinstance(update, runner.Progress):
            latest, reported_at = update, clock
            counts = format_counts(update.done, update.total, update.lanes, update.all_lanes)
        now = Progress(counts, 0 if latest is None else latest.lanes, lanes)
        if isinstance(update, Loading):
            emit(now._replace(heading=f"loading {update.model}"))
            return
        if latest is not None and latest.seconds_left is not None:
            now = now._replace(left=latest.seconds_left - (clock - reported_at), of=format_scope(latest))
        if isinstance(update, runner.Progress):
            emit(now._replace(more=f"{update.unit.model} {update.unit.task}", heading="decoding"))
        elif isinstance(update, PoolStatus):
            emit(now._replace(more=format_pool_status(update), heading="running" if update.running else "waiting"))
        else:
            batch = f"in this batch {update.done} of {update.lanes} lanes, step {update.steps:,}"
            emit(now._replace(done=now.done + update.done, more=batch, heading=update.phase))

    return report


def format_counts(problems: int, all_problems: int, lanes: int, all_lanes: int) -> str:
    """Format counts: "12 of 48 problems, 132 of 528 lanes"."""
    return f"{problems:,} of {all_problems:,} problems, {lanes:,} of {all_lanes:,} lanes"


def format_pool_status(status: PoolStatus) -> str:
    """Format worker counts: "2 batches run (node1 2), 12 wait, 3 are spooled; 6 workers have not begun"."""
    hosts = Counter(status.running)
    host_list = ", ".join(f"{host} {number}" if number > 1 else host for host, number in hosts.items())
    running = f"{len(status.running)} batches run ({host_list})" if host_list else "no batch is running"
    pending = f"; {status.pending} workers have not started" if status.pending else ""
    refused = f"; one refused: {status.refused}" if status.refused else ""
    return f"{running}, {status.waiting} are waiting, {status.ready} are spooled{pending}{refused}"


def format_start(workers: int | None) -> str:
    """Return the message before the first update, which with several processes comes after the first batch."""
    return "opening the record files" if workers in (None, 1) else f"running {workers} batches in parallel"


def format_scope(progress: runner.Progress) -> str:
    """Return what the remaining time covers, if it does not cover everything."""
    return f" of this model and task, then {progress.groups_left} more" if progress.groups_left else ""


def format_continuation(recorded: int, lanes: int) -> str:
    """Return the message of a run that resumes an earlier attempt; empty if nothing was recorded before."""
    return f"continuing: {recorded:,} of {lanes:,} lanes recorded" if recorded else ""
