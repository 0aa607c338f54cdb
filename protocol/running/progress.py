"""How far a run is, in words: what is recorded, what is done now, and how long what was timed will take."""

from collections.abc import Callable
from typing import NamedTuple

from protocol.running import runner
from protocol.running.executors import Loading

__all__ = ["At", "continuing", "reporter"]


class At(NamedTuple):
    """heading: what is done now. done, total: lanes. left: seconds, and of what."""

    words: str
    done: int
    total: int
    left: float | None
    of: str
    heading: str


def reporter(problems: int, lanes: int, say: Callable[[At], object]) -> Callable[[runner.Event], None]:
    """What takes the events of a run of so many problems and lanes, and says how far it is."""
    latest: runner.Progress | None = None
    recorded = f"0 of {problems:,} problems, 0 of {lanes:,} lanes"

    def report(event: runner.Event) -> None:
        nonlocal latest, recorded
        done = 0 if latest is None else latest.lanes
        if isinstance(event, Loading):
            say(At(recorded, done, lanes, None, "", f"loading {event.model}"))
        elif isinstance(event, runner.Progress):
            latest, recorded = event, words(event)
            say(At(recorded, event.lanes, lanes, event.left, others(event), "decoding"))
        else:
            now = f"{recorded}; of this batch {event.done} of {event.lanes} lanes, step {event.steps:,}"
            left = None if latest is None else latest.left
            say(At(now, done + event.done, lanes, left, "" if latest is None else others(latest), event.what))

    return report


def words(progress: runner.Progress) -> str:
    """E.g. "12 of 48 problems, 132 of 528 lanes, smollm2-135m needle-768"."""
    problems = f"{progress.done:,} of {progress.total:,} problems"
    lanes = f"{progress.lanes:,} of {progress.all_lanes:,} lanes"
    return f"{problems}, {lanes}, {progress.unit.model} {progress.unit.task}"


def others(progress: runner.Progress) -> str:
    """What the time left is of, where it is not of all."""
    return f" of this model and task, then {progress.others} more" if progress.others else ""


def continuing(recorded: int, lanes: int) -> str:
    """What a run says that an earlier attempt began; empty where none recorded anything."""
    return f"continuing: {recorded:,} of {lanes:,} lanes recorded" if recorded else ""
