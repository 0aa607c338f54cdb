"""The charge for unequal memory: how much accuracy the subject's excess or shortfall may explain.

A policy must not win because it uses more memory, nor lose because it uses less. So "better" is tested
against the accuracy that an excess may have bought, and "worse" against what a shortfall may have cost. In
the opposite direction memory explains nothing, and nothing is charged.

`bound_charge` charges what the comparator's own accuracy changes up to its next measurement: no slope is
assumed, and a cliff between two budgets is covered wherever it lies. `charge_memory`, of studies that ship,
takes twice the steepest chord instead, which holds where accuracy rises by at most 1.5 points per slot between
64 and 256 slots. Both were tried on curves of many shapes (benchmarks/memory_charge.py).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.stats.comparison import Comparison, Margins

SLOPE_FACTOR = 2.0  # the curve may be this much steeper than the measured chords
MIN_PRICE = 2.0  # accuracy points for 100 % more memory: twice the chord from an empty cache to a perfect one
CLIFF = 0.005  # accuracy may change as much as between two budgets within this share of memory; at 200 slots, one slot
PRICED = 0.02  # the largest excess that MIN_PRICE is asked of
NEAR = 0.05  # a neighbour that is further away than this share of the subject's memory is not tested
NOISE = 1e-9  # relative differences of memory below it are rounding
MAX_MARGIN = 0.999  # the largest margin that a difference of accuracies can still exceed
MIN_MEMORY_GAP = 0.05  # chords between caches that differ by less are noise


class CurvePoint(NamedTuple):
    """A point of the accuracy curve: mean memory, in one unit throughout, and mean accuracy (0 to 1)."""

    memory: float
    accuracy: float


class Charge(NamedTuple):
    """Accuracy that an excess of memory may have bought (above 0) or a shortfall may have cost (below 0).

    excess: memory of the subject over that of the comparator, minus 1. slope: of the steepest measured chord,
    accuracy per unit of memory; None if no chord was measured. nearest: memory of the nearest other
    measurement over that of the comparator at this budget; None without one. points: accuracy points (-1 to
    1; infinite if no slope was measured).
    """

    excess: float
    slope: float | None
    nearest: float | None
    points: float


def charge_memory(memory: float, comparator: CurvePoint, curve: Sequence[CurvePoint]) -> Charge:
    """Return the charge of a subject whose mean memory is `memory`.

    comparator: its point at the same budget. curve: its points at other budgets, and the full cache.

    The price of 100 % more memory is SLOPE_FACTOR times the steepest chord from `comparator` to its
    neighbours on the curve, above and below, and at least MIN_PRICE. If neither the comparator at another
    budget nor the full cache was measured, the price is unknown and any excess may explain any difference.
    """
    excess = memory / comparator.memory - 1
    above = [point for point in curve if point.memory > comparator.memory * (1 + MIN_MEMORY_GAP)]
    below = [point for point in curve if point.memory < comparator.memory * (1 - MIN_MEMORY_GAP)]
    neighbours = [min(above, key=lambda point: point.memory)] if above else []
    neighbours += [max(below, key=lambda point: point.memory)] if below else []
    if not neighbours:
        return Charge(excess, None, None, math.copysign(math.inf, excess) if excess else 0.0)
    slope = max((point.accuracy - comparator.accuracy) / (point.memory - comparator.memory) for point in neighbours)
    price = max(MIN_PRICE, SLOPE_FACTOR * slope * comparator.memory)
    nearest = min((point.memory / comparator.memory for point in neighbours), key=lambda ratio: abs(math.log(ratio)))
    return Charge(excess, slope, nearest, price * excess)


class Neighbour(NamedTuple):
    """The comparator at another budget. memory: mean, in one unit throughout. low, high: confidence limits of
    its accuracy minus that at the tested budget (-1 to 1).
    """

    memory: float
    low: float
    high: float


class SwingCharge(NamedTuple):
    """Accuracy that an excess of memory may have bought (above 0) or a shortfall may have cost (below 0).

    excess: as in `Charge`. swing: the most that the comparator gains (loses) between here and the nearest
    measurement with at least (at most) the subject's memory; None if there is none. points: accuracy points;
    infinite without a swing.
    """

    excess: float
    swing: float | None
    points: float


def bound_charge(memory: float, comparator_memory: float, neighbours: Sequence[Neighbour]) -> SwingCharge:
    """Return the charge of a subject whose mean memory is `memory`. neighbours: of its comparator.

    The comparator with the subject's memory is at most as accurate as the nearest neighbour that has as much
    or more, if accuracy does not rise and fall again in between; so an excess may have bought the whole rise up
    to there. An excess below CLIFF is charged its share of that, and never less than MIN_PRICE. A neighbour on
    the other side counts too, since accuracy may be lowest here. A shortfall mirrors all of this.
    """
    excess = memory / comparator_memory - 1
    if abs(excess) < NOISE:
        return SwingCharge(0.0, 0.0, 0.0)
    side = math.copysign(1.0, excess)

    def distance(neighbour: Neighbour) -> float:
        return side * (neighbour.memory - memory)

    reached = min((point for point in neighbours if distance(point) >= 0), key=distance, default=None)
    if reached is None:
        return SwingCharge(excess, None, side * math.inf)
    behind = (distance(point) for point in neighbours if side * (point.memory - comparator_memory) < 0)
    first, last = max(behind, default=-math.inf), distance(reached)
    between = [point for point in neighbours if first <= distance(point) <= last]
    swing = max(point.high if side > 0 else -point.low for point in between)
    share, least = min(1.0, abs(excess) / CLIFF), MIN_PRICE * min(abs(excess), PRICED)
    return SwingCharge(excess, max(0.0, swing), side * max(least, share * swing))


def measure_charge(excess: float, here: NDArray[np.float64], neighbour: NDArray[np.float64]) -> SwingCharge:
    """Return the charge of a subject that is also tested against its comparator at a neighbour with as much memory:
    what the comparator gains (loses) up to there, as measured. here, neighbour: the subject's differences, [problem,
    seed]. No test uses it.
    """
    gain = float(here.mean() - neighbour.mean())
    swing = max(0.0, math.copysign(gain, gain * excess))
    return SwingCharge(excess, swing, math.copysign(swing, excess))


def widen_margins(limits: Sequence[Margins]) -> Margins:
    """Return the limits and p that hold for every member (an intersection-union test: Berger 1982)."""
    return limits[0]._replace(
        low=min(each.low for each in limits),
        high=max(each.high for each in limits),
        p_worse=max(each.p_worse for each in limits),
        p_better=max(each.p_better for each in limits),
    )


def nearest_null(mean: float, points: float) -> float | None:
    """Return the mean difference to test when `points` are charged: of the differences that memory alone may
    explain, the one nearest to `mean`; None if memory may explain `mean` itself.
    """
    low, high = min(points, 0.0), max(points, 0.0)
    if low < high and low <= mean <= high:
        return None
    return low if mean < low else high


def widen_interval(comparison: Comparison, points: float) -> Comparison:
    """Return the comparison with the interval at equal memory: it excludes zero exactly where the test of
    `nearest_null` rejects.
    """
    low, high = comparison.low - max(points, 0.0), comparison.high - min(points, 0.0)
    return comparison._replace(low=max(-1.0, low), high=min(1.0, high))


def tost(
    difference: ArrayLike,
    margin: float,
    points: float,
    *,
    alpha: float,
    method: str = "t",
    draws: int = 10_000,
    rng: np.random.Generator | None = None,
    sizes: NDArray[np.float64] | None = None,
) -> Margins:
    """Return `equivalence.tost` of the difference at equal memory: the limits are widened, and each margin is
    moved by what memory may explain on that side. A margin moved beyond any difference has p = 1.
    """
    from analysis.stats import equivalence  # rules without a margin do without

    lower, upper = max(points, 0.0) - margin, margin + min(points, 0.0)
    clipped = min(lower, MAX_MARGIN), max(upper, -MAX_MARGIN)
    tests = equivalence.tost(difference, clipped, alpha=alpha, method=method, draws=draws, rng=rng, sizes=sizes)
    return tests._replace(
        low=max(-1.0, tests.low - max(points, 0.0)),
        high=min(1.0, tests.high - min(points, 0.0)),
        p_worse=tests.p_worse if lower < MAX_MARGIN else 1.0,
        p_better=tests.p_better if upper > -MAX_MARGIN else 1.0,
    )
