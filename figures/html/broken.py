"""The problems behind a contrast: the answers that only one of its two arms got right."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from figures.html.finished import Finished

__all__ = ["Behind", "behind"]


class Behind(NamedTuple):
    """One lane that tells the two arms apart. kind: "gain", which the subject alone got right, or "loss"."""

    problem: str
    kind: str
    seed: int
    subject: str
    comparator: str
    differs: int  # characters that both texts begin with
    gold: str | None = None


def behind(files: Finished, contrast: Mapping[str, Any], most: int | None = None) -> list[Behind]:
    return []
