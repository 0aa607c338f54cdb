"""How many traces a correlation needs, counted two ways.

As EpiKV counts (arXiv:2606.26472, Appendix G), each trace is one pair of a correlation, and Fisher's z gives
the number. What is tested here is another thing: the mean of the traces' own correlations, whose error is
their spread over the root of their number. Where traces agree with one another that takes far fewer of them;
where they contradict one another, more. And the row must be chosen first, from among many.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import integrate, stats
from statsmodels.stats.power import TTestPower

from analysis.anatomy.over_traces import FEWEST
from analysis.stats.correlations import pairs_needed

__all__ = ["POWER", "RHO", "Needed", "chosen_with", "found_with", "needed", "table"]

RHO = (0.1, 0.2, 0.3)
POWER = 0.8
REACH, STEPS = 9.0, 4001  # standard errors on either side, and points, that are summed over
MOST = 1_000_000  # traces; beyond it none is enough


class Needed(NamedTuple):
    """For a true correlation `rho`: traces as EpiKV counts, each a pair (two-sided .05); traces of a testing
    half with varying labels, where the right row was chosen; and traces of each half, choosing counted in.
    None where not even a million are enough, or the spread is not known.
    """

    rho: float
    fisher: int
    testing: int | None
    each_half: int | None


def table(sd: float, level: float, rows: int, power: float = POWER) -> list[Needed]:
    """sd: of the traces' own correlations. level: of the one-sided test, corrected. rows: to choose from."""

    def both(traces: int, rho: float) -> float:
        return chosen_with(traces, rho, sd, rows) * found_with(traces, rho, sd, level)

    def alone(traces: int, rho: float) -> float:
        return found_with(traces, rho, sd, level)

    return [
        Needed(rho, pairs_needed(rho, 0.05, power), *(_least(one, rho, power, sd) for one in (alone, both)))
        for rho in RHO
    ]


def needed(sd: float, level: float, rows: int) -> dict[str, dict[str, int | None]]:
    """`table` as verdict.json has it."""
    return {
        f"{one.rho:.1f}": {"fisher": one.fisher, "testing": one.testing, "each_half": one.each_half}
        for one in table(sd, level, rows)
    }


def found_with(traces: int, rho: float, sd: float, level: float) -> float:
    """The power of the one-sided t test of a mean `rho` of so many traces."""
    return float(TTestPower().power(rho / sd, traces, level, alternative="larger"))


def chosen_with(traces: int, rho: float, sd: float, rows: int) -> float:
    """The chance that a row with the mean `rho` has, over so many traces, the largest |mean| of all `rows`,
    and the right sign, where the others have none and each errs by itself: real rows err alike, and then the
    chance is larger.
    """
    z = rho * np.sqrt(traces) / sd  # of the planted mean
    mean = np.linspace(max(0.0, z - REACH), max(0.0, z) + REACH, STEPS)
    largest = stats.norm.pdf(mean - z) * (2 * stats.norm.cdf(mean) - 1) ** (rows - 1)
    return float(integrate.simpson(largest, x=mean))


def _least(found: Callable[[int, float], float], rho: float, power: float, sd: float) -> int | None:
    """The fewest traces, at least 8, with that power, which rises with them."""
    if math.isnan(sd):
        return None
    if sd <= 0 or found(FEWEST, rho) >= power:
        return FEWEST
    low = high = FEWEST
    while found(high, rho) < power:
        low, high = high, 2 * high
        if high > MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if found(middle, rho) >= power else (middle, high)
    return high
