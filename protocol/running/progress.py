"""Progress messages of a run: what is recorded, what runs now, and how long the rest of the timed work will
take.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from protocol.running import runner
from protocol.running.executors import Loading, Spread

__all__ = ["At", "continuing", "reporter", "starting"]


class At(NamedTuple):
    """One progress line. done, total: lanes. seconds_left: seconds, of the work that `remaining_scope` names.
    detail: where it is. heading: the current activity.
    """

    words: str
    done: int
    total: int
    left: float | None
    of: str
    more: str
    heading: str


def reporter(problems: int, lanes: int, say: Callable[[At], object]) -> Callable[[runner.Event], None]:
    """Return a callback that takes the updates of a run of `problems` problems and `lanes` lanes and emits
    progress lines.
    """
    latest: runner.Progress | None = None
    recorded = words(0, problems, 0, lanes)
    timed = 0.0  # when `latest` estimated the remaining time

    def report(event: runner.Event) -> None:
        nonlocal latest, recorded, timed
        done = 0 if latest is None else latest.lanes
        if isinstance(event, Loading):
            say(At(recorded, done, lanes, None, "", "", f"loading {event.model}"))
        elif isinstance(event, Spread):
            left, of = None, ""
            if latest is not None and latest.left is not None:
                left, of = latest.left - (time.monotonic() - timed), others(latest)
            say(At(recorded, done, lanes, left, of, spread(event), "running" if event.running else "waiting"))
        elif isinstance(event, runner.Progress):
            latest, timed = event, time.monotonic()
            recorded = words(event.done, event.total, event.lanes, event.all_lanes)
            say(
                At(
                    recorded,
                    event.lanes,
                    lanes,
                    event.left,
                    others(event),
                    f"{event.unit.model} {event.unit.task}",
                    "decoding",
                )
            )
        else:
            left, of = None, ""
            if latest is not None and latest.left is not None:
                left, of = latest.left - (time.monotonic() - timed), others(latest)
            batch = f"in this batch {event.done} of {event.lanes} lanes, step {event.steps:,}"
            say(At(recorded, done + event.done, lanes, left, of, batch, event.what))

    return report


def words(problems: int, all_problems: int, lanes: int, all_lanes: int) -> str:
    """Format counts: "12 of 48 problems, 132 of 528 lanes"."""
    return f"{problems:,} of {all_problems:,} problems, {lanes:,} of {all_lanes:,} lanes"


def spread(event: Spread) -> str:
    """Format worker counts: "2 batches run (node1 2), 12 wait, 3 are spooled; 6 workers have not begun"."""
    hosts = Counter(event.running)
    where = ", ".join(f"{host} {number}" if number > 1 else host for host, number in hosts.items())
    run = f"{len(event.running)} batches run ({where})" if where else "no batch runs"
    pending = f"; {event.pending} workers have not begun" if event.pending else ""
    refused = f"; one refused: {event.refused}" if event.refused else ""
    return f"{run}, {event.waiting} wait, {event.ready} are spooled{pending}{refused}"


def starting(workers: int | None) -> str:
    """Return the message before the first update: with several processes nothing is reported until the first
    batch is done.
    """
    return "opening the records" if workers in (None, 1) else f"running {workers} batches at once"


def others(progress: runner.Progress) -> str:
    """Return what the remaining time covers, if it does not cover everything."""
    return f" of this model and task, then {progress.others} more" if progress.others else ""


def continuing(recorded: int, lanes: int) -> str:
    """Return the message of a run that resumes an earlier attempt; empty if nothing was recorded before."""
    return f"continuing: {recorded:,} of {lanes:,} lanes recorded" if recorded else ""
