"""Sentences about who could know the problems and answers of a study before it was locked."""

from collections.abc import Mapping
from typing import Any

__all__ = ["describe_prior_knowledge"]


def describe_prior_knowledge(lock: Mapping[str, Any]) -> list[str]:
    """Say which answers registering read, which problems were encrypted, and where the others are from."""
    sentences = [
        f"The known answers of {task} ({check['confirm']} held out) were read to verify that the grader "
        f"recognises each of them; no model was run on them."
        for task, check in lock["checks"].get("golds", {}).items()
    ]
    if encrypted := [task for task, data in lock["data"].items() if isinstance(data, dict)]:
        sentences.append(
            f"The held-out problems of {', '.join(encrypted)} lay encrypted to somebody's key when this was "
            "locked; whether its author had read them before no lock can show."
        )
    files = {task["name"] for task in lock["protocol"]["content"]["tasks"] if "file" in task}
    if author_files := [task for task in lock["data"] if task in files]:
        sentences.append(
            f"The problems of {', '.join(author_files)} stand in a file of the author's: whoever wrote it knew all of "
            "them and their answers, and by their ids which are held out."
        )
    if published := [task for task in lock["data"] if task not in files]:
        sentences.append(
            f"The problems of {', '.join(published)} are published, and a model may have been trained on them."
        )
    return sentences
