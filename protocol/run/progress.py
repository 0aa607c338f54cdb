"""Progress messages of a run: what is recorded, what runs now, and how long the rest of the timed work will
take.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from protocol.run import runner
from protocol.run.executors import Loading, PoolStatus

__all__ = ["ProgressLine", "format_continuation", "format_start", "make_reporter"]


class ProgressLine(NamedTuple):
    """One progress line. done, total: lanes. seconds_left: seconds, of the work that `remaining_scope` names.
    detail: where it is. heading: the current activity.
    """

    text: str
    done: int
    total: int
    seconds_left: float | None
    remaining_scope: str
    detail: str
    heading: str


def make_reporter(
    problems: int, lanes: int, emit: Callable[[ProgressLine], object]
) -> Callable[[runner.RunUpdate], None]:
    """Return a callback that takes the updates of a run of `problems` problems and `lanes` lanes and emits
    progress lines.
    """
    latest: runner.Progress | None = None
    counts = format_counts(0, problems, 0, lanes)
    reported_at = 0.0  # when `latest` estimated the remaining time

    def report(update: runner.RunUpdate) -> None:
        nonlocal latest, counts, reported_at
        done = 0 if latest is None else latest.lanes
        if isinstance(update, Loading):
            emit(ProgressLine(counts, done, lanes, None, "", "", f"loading {update.model}"))
        elif isinstance(update, PoolStatus):
            seconds_left, remaining_scope = None, ""
            if latest is not None and latest.seconds_left is not None:
                seconds_left, remaining_scope = (
                    latest.seconds_left - (time.monotonic() - reported_at),
                    format_scope(latest),
                )
            emit(
                ProgressLine(
                    counts,
                    done,
                    lanes,
                    seconds_left,
                    remaining_scope,
                    format_pool_status(update),
                    "running" if update.running else "waiting",
                )
            )
        elif isinstance(update, runner.Progress):
            latest, reported_at = update, time.monotonic()
            counts = format_counts(update.done, update.total, update.lanes, update.all_lanes)
            emit(
                ProgressLine(
                    counts,
                    update.lanes,
                    lanes,
                    update.seconds_left,
                    format_scope(update),
                    f"{update.unit.model} {update.unit.task}",
                    "decoding",
                )
            )
        else:
            seconds_left, remaining_scope = None, ""
            if latest is not None and latest.seconds_left is not None:
                seconds_left, remaining_scope = (
                    latest.seconds_left - (time.monotonic() - reported_at),
                    format_scope(latest),
                )
            batch = f"in this batch {update.done} of {update.lanes} lanes, step {update.steps:,}"
            emit(ProgressLine(counts, done + update.done, lanes, seconds_left, remaining_scope, batch, update.phase))

    return report


def format_counts(problems: int, all_problems: int, lanes: int, all_lanes: int) -> str:
    """Format counts: "12 of 48 problems, 132 of 528 lanes"."""
    return f"{problems:,} of {all_problems:,} problems, {lanes:,} of {all_lanes:,} lanes"


def format_pool_status(status: PoolStatus) -> str:
    """Format worker counts: "2 batches run (node1 2), 12 wait, 3 are spooled; 6 workers have not begun"."""
    hosts = Counter(status.running)
    host_list = ", ".join(f"{host} {number}" if number > 1 else host for host, number in hosts.items())
    running = f"{len(status.running)} batches run ({host_list})" if host_list else "no batch runs"
    pending = f"; {status.pending} workers have not begun" if status.pending else ""
    refused = f"; one refused: {status.refused}" if status.refused else ""
    return f"{running}, {status.waiting} wait, {status.ready} are spooled{pending}{refused}"


def format_start(workers: int | None) -> str:
    """Return the message before the first update: with several processes nothing is reported until the first
    batch is done.
    """
    return "opening the records" if workers in (None, 1) else f"running {workers} batches at once"


def format_scope(progress: runner.Progress) -> str:
    """Return what the remaining time covers, if it does not cover everything."""
    return f" of this model and task, then {progress.groups_left} more" if progress.groups_left else ""


def format_continuation(recorded: int, lanes: int) -> str:
    """Return the message of a run that resumes an earlier attempt; empty if nothing was recorded before."""
    return f"continuing: {recorded:,} of {lanes:,} lanes recorded" if recorded else ""
