"""Sentences about arms that retained the same slots when a study was locked, from the lock's checks."""

from collections.abc import Container, Mapping
from typing import Any

__all__ = ["words"]

RANDOM = "a random network"


def words(found: Mapping[str, Any] | None, among: Container[str] | None = None) -> list[str]:
    """Return a line for each pair of `checks.same_kept`, restricted to `arms` if given; none for a lock
    without this check.
    """
    if found is None:
        return []
    stood_in = (
        ", read by a random network" if any(runs.startswith(RANDOM) for runs in found["on"].values()) else ""
    )
    return [
        f"arms {one} and {other} kept the same slots ({float(pair['shared']):.1%} of those dropped are "
        f"dropped by both) on {pair['problems']} development problems{stood_in}: one experiment, two "
        "contrasts"
        for pair in found["pairs"]
        for one, other in [pair["arms"]]
        if among is None or (one in among and other in among)
    ]
