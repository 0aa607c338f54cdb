"""Sentences about the full cache's use on development problems, from a lock or a rehearsal."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

FIELD = "full_use"  # field of a lock


def describe_full_use(full_use: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """Return a sentence for each model and task of the field `full_use`; none if no budget depends on it."""
    return [
        (
            f"On {model}, {task}, the full cache used {float(Fraction(entry['mean'])):.1f} slots per KV head "
            f"and layer at the end of an answer (mean of {len(entry['held'])} development "
            f"problem{'s' * (len(entry['held']) != 1)}): "
        )
        + ", ".join(f"{budget} is {slots} slots" for budget, slots in entry["slots"].items())
        + "."
        for model, tasks in full_use.items()
        for task, entry in tasks.items()
    ]
