"""Levels of a sequential design: several looks at growing data that together err at most as often as one.

An error-spending function says how much of alpha is spent by each look (Lan & DeMets 1983, Biometrika 70:659). The
boundary of a look is then found by integrating the joint law of the statistics of all looks: a Brownian motion at the
fractions of the data (Armitage, McPherson & Rowe 1969, JRSS A 132:235; Jennison & Turnbull 2000, chapter 19). The
level of a look holds for any p value that is uniform under the null, through its normal quantile.

The intervals at these levels are the repeated confidence intervals of Jennison & Turnbull (1989, JRSS B 51:305): all
looks together cover with the nominal chance, whatever made the study stop. The p of a look is the smallest alpha
at which the design rejects there.

All levels here are one-sided. A two-sided test at alpha is two tests at alpha / 2.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from analysis.stats.comparison import Comparison, Margins, Position

Floats = NDArray[np.float64]

ANYTIME = "anytime"  # of p values that hold at every look as they are: those of `betting`, by Ville's inequality


def _obrien_fleming(fraction: float, alpha: float) -> float:
    return float(2 * stats.norm.sf(stats.norm.isf(alpha / 2) / math.sqrt(fraction)))


def _pocock(fraction: float, alpha: float) -> float:
    return alpha * math.log(1 + (math.e - 1) * fraction)


SPENDING_FUNCTIONS: Mapping[str, Callable[[float, float], float]] = MappingProxyType(
    {"obrien-fleming": _obrien_fleming, "pocock": _pocock}
)
"""The alpha that is spent at a fraction of the data, of one in all; both are of Lan & DeMets (1983)."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(160)
LOWEST = -9.0  # z below which nothing is integrated
LARGEST_Z = 40.0
SMALLEST, LARGEST = 1e-10, 0.9999  # of the alpha that `Look.overall` finds


class Look(NamedTuple):
    """One look of a design.

    spending: a name of `SPENDING_FUNCTIONS`, or `ANYTIME`. fractions: of the registered problems at each look up to
    this one; the last look of a design is at 1.
    """

    spending: str
    fractions: tuple[float, ...]

    def level(self, alpha: float) -> float:
        """Return the one-sided level at which this look tests, of a design with this one-sided alpha."""
        if self.spending == ANYTIME:
            return alpha
        return float(stats.norm.sf(boundary(self.spending, self.fractions, alpha)))

    def overall(self, p: float) -> float:
        """Return the smallest one-sided alpha at which this look rejects. p: one-sided, of the data of this look."""
        if self.spending == ANYTIME or p in (0.0, 1.0):
            return p
        return _overall(self, p)

    def coverage(self, level: float) -> float:
        """Return the nominal coverage of the two-sided interval at this look that all looks cover with `level`."""
        return 1 - 2 * self.level((1 - level) / 2)

    def adjust(self, comparison: Comparison) -> Comparison:
        """Return a two-sided comparison of this look with the p of the design."""
        return comparison._replace(p=min(1.0, 2 * self.overall(comparison.p / 2)))

    def locate(self, comparison: Comparison, alpha: float, null: float = 0.0) -> Position:
        """Return where a two-sided comparison is at this look. alpha: two-sided, of the design."""
        z = math.copysign(_quantile(comparison.p / 2), comparison.mean - null)
        return Position(z, _quantile(self.level(alpha / 2)))

    def locate_margin(self, margins: Margins, alpha: float) -> Position:
        """Return where the test of the lower margin is at this look. alpha: one-sided, of the design."""
        return Position(_quantile(margins.p_worse), _quantile(self.level(alpha)))

    def adjust_margins(self, margins: Margins) -> Margins:
        """Return the tests against margins with the p of the design."""
        return margins._replace(p_worse=self.overall(margins.p_worse), p_better=self.overall(margins.p_better))


def _quantile(p: float) -> float:
    """Return the normal quantile of a one-sided p, in place of infinity the largest one."""
    return float(np.clip(stats.norm.isf(p), -LARGEST_Z, LARGEST_Z))


@lru_cache(maxsize=4096)
def boundary(spending: str, fractions: tuple[float, ...], alpha: float) -> float:
    """Return the z beyond which the last of these looks rejects; the looks before it did not."""
    spend = SPENDING_FUNCTIONS[spending]
    spent = spend(fractions[-1], alpha) - (spend(fractions[-2], alpha) if len(fractions) > 1 else 0.0)
    if len(fractions) == 1:
        return float(stats.norm.isf(spent))
    density = _continuing(spending, fractions[:-1], alpha)

    def excess(z: float) -> float:
        return _crossing(density, fractions[-2], fractions[-1], z) - spent

    return float(optimize.brentq(excess, LOWEST, LARGEST_Z, xtol=1e-10)) if excess(LOWEST) > 0 else LOWEST


class _Density(NamedTuple):
    """The statistics of studies that go on after a look: z at nodes, and density times quadrature weight."""

    z: Floats
    mass: Floats


@lru_cache(maxsize=4096)
def _continuing(spending: str, fractions: tuple[float, ...], alpha: float) -> _Density:
    before = _Density(np.zeros(1), np.ones(1)) if len(fractions) == 1 else _continuing(spending, fractions[:-1], alpha)
    start = 0.0 if len(fractions) == 1 else fractions[-2]
    return _advance(before, start, fractions[-1], boundary(spending, fractions, alpha))


def _standardised(density: _Density, before: float, fraction: float, z: Floats) -> Floats:
    """Return z[...] at `fraction` as the standardised increment since `before`, [..., node]."""
    increment = fraction - before
    moved = np.asarray(z)[..., None] * math.sqrt(fraction) - density.z * math.sqrt(before)
    return np.asarray(moved / math.sqrt(increment))


def _crossing(density: _Density, before: float, fraction: float, z: float) -> float:
    """Return the chance to go on until `before` and to exceed z at `fraction`."""
    return float(density.mass @ stats.norm.sf(_standardised(density, before, fraction, np.asarray(z))))


def _advance(density: _Density, before: float, fraction: float, upper: float) -> _Density:
    half = (max(upper, LOWEST + 1e-9) - LOWEST) / 2
    z = LOWEST + half * (1 + _NODES)
    kernel = np.exp(-(_standardised(density, before, fraction, z) ** 2) / 2) / math.sqrt(2 * math.pi)
    scale = math.sqrt(fraction / (fraction - before))
    return _Density(z, half * _WEIGHTS * scale * (kernel @ density.mass))


@lru_cache(maxsize=65536)
def _overall(look: Look, p: float) -> float:
    def excess(quantile: float) -> float:
        return boundary(look.spending, look.fractions, float(stats.norm.sf(quantile))) - float(stats.norm.isf(p))

    smallest, largest = float(stats.norm.isf(SMALLEST)), float(stats.norm.isf(LARGEST))
    if excess(smallest) <= 0:  # rejects even there
        return SMALLEST
    if excess(largest) >= 0:
        return 1.0
    return float(stats.norm.sf(optimize.brentq(excess, largest, smallest, xtol=1e-10)))
