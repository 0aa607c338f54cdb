"""Results of comparing two arms: plain values that a rule can read without importing statistics."""

from typing import NamedTuple


class Comparison(NamedTuple):
    """Mean difference in accuracy points (-1 to 1), its two-sided interval, and the two-sided p of the null
    hypothesis (a difference of zero unless the caller passed another).
    """

    mean: float
    low: float
    high: float
    p: float


class Margins(NamedTuple):
    """Mean difference (points), its limits with coverage 1 - 2 alpha, and a one-sided p for each margin."""

    mean: float
    low: float
    high: float
    p_worse: float  # null: the mean is at the lower margin or below; small if the subject is not inferior
    p_better: float  # null: the mean is at the upper margin or above; the larger p is that of equivalence


class Position(NamedTuple):
    """Where a contrast is at a look of a sequential design, as normal quantiles of one-sided levels."""

    z: float  # towards the subject: above 0 if it is better or, with a margin, if the data are above -margin
    boundary: float  # z from which the look decides
