"""What unequal memory could have bought: the charge that a subject pays for what it held more.

More memory must not buy a win, nor less a loss. So "better" is tested against the accuracy that the subject's
excess may have bought, and "worse" against what its shortfall may have cost: the other way round memory
explains nothing, and nothing is charged. The price is an upper bound, which holds where accuracy rises by at
most 1.5 points a slot of 64 to 256 (benchmarks/memory_matching.py); an honest excess is a tenth of a percent,
so that a bound that is too high costs little.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from analysis.stats import equivalence
from analysis.stats.comparison import Comparison, Margins

__all__ = ["LEAST", "Charge", "Point", "charge", "margins", "null", "widened"]

STEEPER = 2.0  # how much steeper the curve may be than the chords that were measured
LEAST = 2.0  # accuracy for twice the memory: twice the chord from an empty cache to one that is always right
FARTHEST = 0.999  # a margin that a difference of accuracies can still lie beyond
APART = 0.05  # a chord between caches that differ by less is noise


class Point(NamedTuple):
    """Of a curve: mean memory, in one unit throughout, and the mean accuracy there (0 to 1)."""

    memory: float
    accuracy: float


class Charge(NamedTuple):
    """What an excess may have bought (above 0), or a shortfall cost (below 0).

    excess: memory of the subject over that of the comparator, less 1. slope: of the steepest measured chord,
    accuracy for each unit of memory; None where nothing was measured. nearest: the memory of the nearest
    other measurement over that of the comparator here; None without one. points: accuracy points (-1 to 1;
    infinite where no slope was measured).
    """

    excess: float
    slope: float | None
    nearest: float | None
    points: float


def charge(held: float, here: Point, curve: Sequence[Point]) -> Charge:
    """The charge of a subject that held `held` on average.

    here: the comparator at the same budget. curve: it at its other budgets, and the full cache.

    The price of 100 % more memory is STEEPER times the steepest chord from `here` to its neighbours on the
    curve, above and below, and at least LEAST. Where the comparator was measured nowhere else, and the full
    cache was not either, a price is not known, and whatever the excess it may have bought everything.
    """
    excess = held / here.memory - 1
    above = [point for point in curve if point.memory > here.memory * (1 + APART)]
    below = [point for point in curve if point.memory < here.memory * (1 - APART)]
    near = [min(above, key=lambda point: point.memory)] if above else []
    near += [max(below, key=lambda point: point.memory)] if below else []
    if not near:
        return Charge(excess, None, None, math.copysign(math.inf, excess) if excess else 0.0)
    slope = max((point.accuracy - here.accuracy) / (point.memory - here.memory) for point in near)
    price = max(LEAST, STEEPER * slope * here.memory)
    nearest = min((point.memory / here.memory for point in near), key=lambda ratio: abs(math.log(ratio)))
    return Charge(excess, slope, nearest, price * excess)


def null(mean: float, points: float) -> float | None:
    """The mean difference to be tested where `points` are charged: the one nearest to `mean` of those that
    memory alone may explain; None where it may explain `mean` itself.
    """
    low, high = min(points, 0.0), max(points, 0.0)
    if low < high and low <= mean <= high:
        return None
    return low if mean < low else high


def widened(comparison: Comparison, points: float) -> Comparison:
    """With the interval of the difference at equal memory: it excludes zero where the test of `null` does."""
    low, high = comparison.low - max(points, 0.0), comparison.high - min(points, 0.0)
    return comparison._replace(low=max(-1.0, low), high=min(1.0, high))


def margins(
    difference: ArrayLike,
    margin: float,
    points: float,
    *,
    alpha: float,
    method: str = "t",
    draws: int = 10_000,
    rng: np.random.Generator | None = None,
) -> Margins:
    """`equivalence.margins` of the difference at equal memory: the limits are widened, and each margin is
    moved by what memory may have done for the subject on that side. Moved past any difference it has p = 1.
    """
    lower, upper = max(points, 0.0) - margin, margin + min(points, 0.0)
    inside = min(lower, FARTHEST), max(upper, -FARTHEST)
    found = equivalence.margins(difference, inside, alpha=alpha, method=method, draws=draws, rng=rng)
    return found._replace(
        low=max(-1.0, found.low - max(points, 0.0)),
        high=min(1.0, found.high - min(points, 0.0)),
        p_worse=found.p_worse if lower < FARTHEST else 1.0,
        p_better=found.p_better if upper > -FARTHEST else 1.0,
    )
