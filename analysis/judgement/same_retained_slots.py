"""Sentences about arms that retained the same slots when a study was locked, from the lock's checks."""

from collections.abc import Container, Mapping
from typing import Any

RANDOM = "a random network"


def describe_pairs(same_slots: Mapping[str, Any] | None, arms: Container[str] | None = None) -> list[str]:
    """Return a line for each pair of `checks.same_kept`, restricted to `arms` if given; none for a lock
    without this check.
    """
    if same_slots is None:
        return []
    is_random = any(runs.startswith(RANDOM) for runs in same_slots["on"].values())
    network_note = ", read by a random network" if is_random else ""
    return [
        f"arms {first} and {second} kept the same slots ({float(pair['shared']):.1%} of those dropped are dropped by "
        f"both) on {pair['problems']} development problems{network_note}: one experiment, two contrasts"
        for pair in same_slots["pairs"]
        for first, second in [pair["arms"]]
        if arms is None or (first in arms and second in arms)
    ]
