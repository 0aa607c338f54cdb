"""Several contrasts at once: Bonferroni decides, since it has matching intervals; Holm stands beside it."""

from collections.abc import Sequence
from typing import NamedTuple

from statsmodels.stats.multitest import multipletests

__all__ = ["Adjusted", "adjust", "corrected"]


class Adjusted(NamedTuple):
    """Adjusted p in the order given; a contrast passes at alpha when its adjusted p is at most alpha."""

    bonferroni: tuple[float, ...]
    holm: tuple[float, ...]


def corrected(alpha: float, family: int) -> float:
    """Bonferroni level of one of `family` contrasts; its simultaneous interval has the coverage 1 - this."""
    if family < 1:
        raise ValueError(f"family: {family} contrasts; a family has at least one")
    return alpha / family


def adjust(p: Sequence[float]) -> Adjusted:
    """Adjust the whole registered family, one p a contrast. Raises ValueError outside [0, 1] or for none."""
    if not p or not all(0 <= value <= 1 for value in p):
        raise ValueError(f"p: {list(p)} is not a family of probabilities; pass one in [0, 1] per contrast")
    bonferroni, holm = (multipletests(p, method=method)[1] for method in ("bonferroni", "holm"))
    return Adjusted(tuple(map(float, bonferroni)), tuple(map(float, holm)))
