"""Several contrasts at once: Bonferroni decides, since it has matching intervals; Holm and
Benjamini-Hochberg stand beside it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from statsmodels.stats.multitest import multipletests

__all__ = ["Adjusted", "adjust", "corrected"]


class Adjusted(NamedTuple):
    """Adjusted p in the order given; a contrast passes at alpha when its adjusted p is at most alpha.

    The first two bound the chance of any false rejection, the last the expected share of false ones among the
    rejections (for independent or positively dependent contrasts).
    """

    bonferroni: tuple[float, ...]
    holm: tuple[float, ...]
    benjamini_hochberg: tuple[float, ...]


def corrected(alpha: float, family: int) -> float:
    """Bonferroni level of one of `family` contrasts; its simultaneous interval has the coverage 1 - this."""
    if family < 1:
        raise ValueError(f"family: {family} contrasts; a family has at least one")
    return alpha / family


def adjust(p: Sequence[float]) -> Adjusted:
    """Adjust the whole registered family, one p a contrast. Raises ValueError outside [0, 1] or for none."""
    if not len(p) or not all(0 <= value <= 1 for value in p):
        raise ValueError(f"p: {list(p)} is not a family of probabilities; pass one in [0, 1] per contrast")
    bonferroni, hochberg = (
        multipletests(p, method=method)[1].tolist() for method in ("bonferroni", "fdr_bh")
    )
    return Adjusted(tuple(bonferroni), tuple(_holm(np.asarray(p))), tuple(hochberg))


def _holm(p: NDArray[np.float64]) -> list[float]:
    """By hand: statsmodels 0.15 collects garbage in this method, which takes up to a second beside torch."""
    order = np.argsort(p)
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(np.arange(len(p), 0, -1) * p[order])
    return list(map(float, np.minimum(1.0, adjusted)))
