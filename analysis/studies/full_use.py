"""Sentences about the full cache's use on development problems, from a lock or a rehearsal."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

__all__ = ["FIELD", "words"]

FIELD = "full_use"  # field of a lock


def words(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """Return a sentence for each model and task of the field `full_use`; none if no budget depends on it."""
    return [
        f"On {model}, {task}, the full cache held {float(Fraction(one['mean'])):.1f} slots per KV head and "
        f"layer at the end of an answer, mean of {_problems(len(one['held']))}: "
        + ", ".join(f"{budget} is {slots} slots" for budget, slots in one["slots"].items())
        + "."
        for model, tasks in found.items()
        for task, one in tasks.items()
    ]


def _problems(count: int) -> str:
    return f"{count} development problem" + ("" if count == 1 else "s")
