"""Corrections for several contrasts: Bonferroni decides, since it has matching intervals; Holm is reported."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from statsmodels.stats.multitest import multipletests


class AdjustedP(NamedTuple):
    """Adjusted p in the order of the input; a contrast passes at alpha if its adjusted p is at most alpha."""

    bonferroni: tuple[float, ...]
    holm: tuple[float, ...]


def corrected_alpha(alpha: float, family: int) -> float:
    """Return the Bonferroni level of one of `family` contrasts; simultaneous intervals cover 1 minus this."""
    if family < 1:
        raise ValueError(f"family: {family} contrasts are not a family; pass at least one")
    return alpha / family


def adjust(p: Sequence[float]) -> AdjustedP:
    """Adjust the p of the whole registered family. Raises ValueError for none, or one outside [0, 1]."""
    if not len(p) or not all(0 <= value <= 1 for value in p):
        raise ValueError(f"p: {list(p)} is not a family of probabilities; pass one in [0, 1] per contrast")
    return AdjustedP(tuple(multipletests(p, method="bonferroni")[1].tolist()), tuple(_holm(np.asarray(p))))


def _holm(p: NDArray[np.float64]) -> list[float]:
    """Return Holm's adjusted p. statsmodels 0.15 runs the garbage collector there: up to 1 s with torch."""
    order = np.argsort(p)
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(np.arange(len(p), 0, -1) * p[order])
    return list(map(float, np.minimum(1.0, adjusted)))
