"""How many traces a correlation needs, counted two ways.

As EpiKV counts (arXiv:2606.26472, Appendix G), each trace is one pair of a correlation, and Fisher's z gives
the number. What is tested here is another thing: the mean of the traces' own correlations, whose error is
their spread over the root of their number. Where traces agree with one another that takes far fewer of them;
where they contradict one another, more.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from statsmodels.stats.power import TTestPower

from analysis.anatomy.over_traces import FEWEST
from analysis.stats.correlations import pairs_needed

__all__ = ["POWER", "RHO", "Needed", "found_with", "needed", "table"]

RHO = (0.1, 0.2, 0.3)
POWER = 0.8
MOST = 1_000_000  # traces; beyond it none is enough


class Needed(NamedTuple):
    """Traces for a true correlation `rho`: fisher: two-sided .05, each trace a pair; mean: of within-trace
    correlations with standard deviation `sd`, one-sided at `level`; None where the spread is not known.
    """

    rho: float
    fisher: int
    mean: int | None


def needed(sd: float, level: float, power: float = POWER) -> dict[str, int | None]:
    """rho, as two digits -> traces of a testing half with which the one-sided t test of the mean at `level`
    finds it, at least 8. None for a spread that is not known.
    """
    return {f"{rho:.1f}": _traces(rho, sd, level, power) for rho in RHO}


def table(sd: float, level: float, rho: Sequence[float] = RHO, power: float = POWER) -> list[Needed]:
    return [Needed(each, pairs_needed(each, 0.05, power), _traces(each, sd, level, power)) for each in rho]


def found_with(traces: int, rho: float, sd: float, level: float) -> float:
    """The power of the one-sided t test of a mean `rho` of so many traces."""
    return float(TTestPower().power(rho / sd, traces, level, alternative="larger"))


def _traces(rho: float, sd: float, level: float, power: float) -> int | None:
    if math.isnan(sd):
        return None
    if sd <= 0 or found_with(FEWEST, rho, sd, level) >= power:
        return FEWEST
    low, high = FEWEST, FEWEST
    while found_with(high, rho, sd, level) < power:
        low, high = high, 2 * high
        if high > MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if found_with(middle, rho, sd, level) >= power else (middle, high)
    return high
