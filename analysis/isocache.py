"""Did both arms hold the same memory? Judged on what was measured, never on the nominal budget."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["Matched", "matched"]


class Matched(NamedTuple):
    """Slots of the subject over slots of the comparator, and whether that is a fair comparison."""

    ratio: float  # mean over problems of the subject / mean over problems of the comparator
    worst: float  # the same ratio of the one problem that is furthest from 1
    matched: bool


def matched(subject: ArrayLike, comparator: ArrayLike, *, tolerance: float) -> Matched:
    """Compare mean slots held per KV head and layer over a whole generation.

    subject, comparator: [problem, seed], the same problems and seeds in the same order. Seeds are averaged
    first. Matched when neither arm's mean exceeds the other's by more than `tolerance` (0.02 is 2 %). The
    worst problem is reported and does not decide: the output of one problem may end early in one arm. Raises
    ValueError for different shapes, no problem, or slots that are not positive and finite.
    """
    held = [np.asarray(arm, dtype=np.float64) for arm in (subject, comparator)]
    if held[0].shape != held[1].shape or held[0].ndim != 2 or held[0].size == 0:
        raise ValueError(
            f"slots: shapes {held[0].shape} and {held[1].shape}; pass the same [problem, seed] for both arms"
        )
    if not all(np.isfinite(arm).all() and (arm > 0).all() for arm in held):
        raise ValueError(
            "slots: a value is not positive and finite; an arm that holds nothing was not measured"
        )
    own, other = (arm.mean(axis=1) for arm in held)
    ratio = float(own.mean() / other.mean())
    ratios = own / other
    worst = float(ratios[np.argmax(np.abs(np.log(ratios)))])
    return Matched(ratio, worst, max(ratio, 1 / ratio) <= 1 + tolerance + 1e-12)
