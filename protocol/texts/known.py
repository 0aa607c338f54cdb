"""Sentences about who could know the problems and answers of a study before it was locked."""

from collections.abc import Mapping
from typing import Any

__all__ = ["answers"]


def answers(lock: Mapping[str, Any]) -> list[str]:
    """Say which answers registering read, which problems were encrypted, and where the others are from."""
    said = [
        f"The known answers of {task} ({check['confirm']} held out) were read to verify that the grader "
        f"recognises each of them; no model was run on them."
        for task, check in lock["checks"].get("golds", {}).items()
    ]
    if hidden := [task for task, data in lock["data"].items() if isinstance(data, dict)]:
        said.append(
            f"The held-out problems of {', '.join(hidden)} lay encrypted to somebody's key when this was "
            "locked; whether its author had read them before no lock can show."
        )
    files = {task["name"] for task in lock["protocol"]["content"]["tasks"] if "file" in task}
    if own := [task for task in lock["data"] if task in files]:
        said.append(
            f"The problems of {', '.join(own)} stand in a file of the author's: whoever wrote it knew all of "
            "them and their answers, and by their ids which are held out."
        )
    if published := [task for task in lock["data"] if task not in files]:
        said.append(
            f"The problems of {', '.join(published)} are published, and a model may have been trained on "
            "them."
        )
    return said
