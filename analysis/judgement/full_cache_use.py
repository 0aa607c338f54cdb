"""Sentences about the full cache's use on development problems, from a lock or a rehearsal."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

FIELD = "full_use"  # field of a lock


def describe_full_use(full_use: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """Return a sentence for each model and task of the field `full_use`; none if no budget depends on it."""
    return [
        f"On {model}, {task}, the full cache held {float(Fraction(entry['mean'])):.1f} slots per KV head and "
        f"layer at the end of an answer, mean of {_format_problems(len(entry['held']))}: "
        + ", ".join(f"{budget} is {slots} slots" for budget, slots in entry["slots"].items())
        + "."
        for model, tasks in full_use.items()
        for task, entry in tasks.items()
    ]


def _format_problems(count: int) -> str:
    return f"{count} development problem" + ("" if count == 1 else "s")
