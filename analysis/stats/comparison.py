"""What comparing two arms gives: plain values, so that a rule reads them without loading any statistics."""

from typing import NamedTuple

__all__ = ["Comparison", "Margins"]


class Comparison(NamedTuple):
    """Mean difference in accuracy points (-1 to 1), its two-sided interval, and the two-sided p of zero."""

    mean: float
    low: float
    high: float
    p: float


class Margins(NamedTuple):
    """Mean difference (points), its limits with coverage 1 - 2 alpha, and a one-sided p for each margin."""

    mean: float
    low: float
    high: float
    p_worse: float  # of "worse by the margin or more": small for a subject that is not inferior
    p_better: float  # of "better by the margin or more"; the larger of the two is that of equivalence
