"""What comparing two arms gives: plain values, so that a rule reads them without loading any statistics."""

from typing import NamedTuple

__all__ = ["Comparison", "Margins"]


class Comparison(NamedTuple):
    """Mean difference in accuracy points (-1 to 1), its two-sided interval, and the two-sided p of zero or of
    the null that was asked about.
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
    p_worse: float  # of a mean at the lower margin or below: small for a subject that is not inferior
    p_better: float  # of a mean at the upper margin or above; the larger of the two is that of equivalence
