"""Show how far a run is: a live bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn

from protocol.evidence.bytes.shown import put, shown
from protocol.running import runner

__all__ = ["display", "lines"]

PLAIN_EVERY = 15.0  # seconds between plain lines


@contextmanager
def display(title: str) -> Iterator[Callable[[runner.Progress], None]]:
    """A callable that takes each runner.Progress. Writes to standard error, so that output can be piped."""
    if sys.stderr.isatty():
        with _bar(title) as report:
            yield report
    else:
        yield lines(title)


@contextmanager
def _bar(title: str) -> Iterator[Callable[[runner.Progress], None]]:
    from rich.console import Console

    plain = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[words]}"))
    columns = [next(plain), BarColumn(), next(plain)]
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(shown(title), total=None, words="loading the model")

        def report(progress: runner.Progress) -> None:
            bar.update(task, total=progress.total, completed=progress.done, words=shown(words(progress)))

        yield report


def lines(title: str) -> Callable[[runner.Progress], None]:
    """What says it in a plain line now and then."""
    said = time.monotonic() - PLAIN_EVERY

    def report(progress: runner.Progress) -> None:
        nonlocal said
        if time.monotonic() - said >= PLAIN_EVERY or progress.done == progress.total:
            said = time.monotonic()
            put(f"{title}: {words(progress)}", sys.stderr)

    return report


def words(progress: runner.Progress) -> str:
    """E.g. "12/48 problems, 132 lanes, 0/22 cells, 2 min left, smollm2-135m needle-768"."""
    left = ""
    if progress.fresh and progress.done < progress.total:
        seconds = progress.seconds / progress.fresh * (progress.total - progress.done)
        left = f", {seconds / 60:.0f} min left" if seconds >= 90 else f", {seconds:.0f} s left"
    counted = f"{progress.done}/{progress.total} problems, {progress.lanes} lanes"
    where = f"{progress.unit.model} {progress.unit.task}"
    return f"{counted}, {progress.cells}/{progress.all_cells} cells{left}, {where}"
