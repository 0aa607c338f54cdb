"""Sentences about studies whose outputs another harness made, from the lock only."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.judgement.untrusted_files import RecordError
from protocol.formats import runners


def is_outside(lock: Mapping[str, Any]) -> bool:
    return runners.TABLE in lock["protocol"]["content"]


def refuse_outside(folder: Path, lock: Mapping[str, Any]) -> None:
    """Raise RecordError for a study that another harness ran, of whose lanes only the grades are known."""
    if is_outside(lock):
        raise RecordError(runners.describe_refusal(folder))


def describe_outside(lock: Mapping[str, Any]) -> str:
    """Return a clause about what was not seen; empty for a study that this project decodes."""
    return "outputs were not made or replayed by this project; memory not measured" if is_outside(lock) else ""


def describe_pools(lock: Mapping[str, Any]) -> list[str]:
    """Return clauses about what may have been known of the held-out problems when the study was locked."""
    known, drawn = (
        ", ".join(task["name"] for task in lock["protocol"]["content"]["tasks"] if ("draw" in task) == is_drawn)
        for is_drawn in (False, True)
    )
    sentences = []
    if known:
        sentences.append(
            f"the problems of {known} were known before the lock, so that somebody may have run them "
            "earlier; the times of files prove nothing."
        )
    if drawn:
        sentences.append(
            f"the problems of {drawn} are drawn from their pool after the lock, so that nobody could know which; "
            "whether somebody had run the whole pool before, no file shows."
        )
    return sentences


def list_limits(lock: Mapping[str, Any]) -> list[str]:
    """Return what the judgement of outputs of others does not prove."""
    content = lock["protocol"]["content"]
    return [
        f"That {', '.join(content['arms'])} are what their names say: the registered commands were not run here, and "
        "the files were read as they are. A file that was edited, or that is of another run, looks the same.",
        "Anything about memory, speed or slots: none was measured, and an arm that holds more may win by it.",
        "The grades: they are those of the files, and no text was graded again.",
        *(f"Outputs that are younger than the lock: {clause}" for clause in describe_pools(lock)),
        f"Other models or tasks: only {', '.join(content['models'])} on {', '.join(lock['items'])}.",
    ]
