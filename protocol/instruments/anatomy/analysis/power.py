"""How many traces a correlation needs, counted in two ways.

EpiKV (arXiv:2606.26472, Appendix G) counts each trace as one pair of a correlation, and Fisher's z gives the
number. The test here is another one: the mean of the traces' own correlations, whose error is their spread
over the root of their number. It takes far fewer traces if they agree with one another, and more if they
contradict one another. And the row must first be chosen from among many.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy import integrate, stats
from statsmodels.stats.power import TTestPower

from analysis.stats.correlations import pairs_needed
from protocol.instruments.anatomy.analysis.trace_statistics import FEWEST

RHO = (0.1, 0.2, 0.3)
POWER = 0.8
REACH, STEPS = 9.0, 4001  # integration: standard errors on either side, and points
MOST = 1_000_000  # traces; None beyond it


def needed_traces(sd: float, level: float, rows: int) -> dict[str, dict[str, int | None]]:
    """Return the traces that a true correlation needs for POWER, by each of RHO, as verdict.json has them.

    sd: of the traces' own correlations. level: of the one-sided test, corrected. rows: to choose from.
    fisher: as EpiKV counts, each trace a pair (two-sided .05). testing: traces of a testing half with varying labels,
    if the right row was chosen. each_half: traces of each half, with the choice taken into account. None if a million
    are not enough, or if the spread is not known.
    """

    def power_alone(traces: int, rho: float) -> float:
        return power_of_test(traces, rho, sd, level)

    def power_with_choice(traces: int, rho: float) -> float:
        return choice_probability(traces, rho, sd, rows) * power_alone(traces, rho)

    return {
        f"{rho:.1f}": {
            "fisher": pairs_needed(rho, 0.05, POWER),
            "testing": _fewest_traces(power_alone, rho, sd),
            "each_half": _fewest_traces(power_with_choice, rho, sd),
        }
        for rho in RHO
    }


def power_of_test(traces: int, rho: float, sd: float, level: float) -> float:
    """Return the power of the one-sided t test of a mean `rho` over this number of traces."""
    return float(TTestPower().power(rho / sd, traces, level, alternative="larger"))


def choice_probability(traces: int, rho: float, sd: float, rows: int) -> float:
    """Return the probability that choosing picks the right row: over this number of traces, a row with the
    mean `rho` has the largest |mean| of all `rows`, and the right sign.

    The other rows have mean 0 and independent errors. Real rows have correlated errors, and then the
    probability is larger.
    """
    z = rho * np.sqrt(traces) / sd  # of the true mean
    mean = np.linspace(max(0.0, z - REACH), max(0.0, z) + REACH, STEPS)
    largest = stats.norm.pdf(mean - z) * (2 * stats.norm.cdf(mean) - 1) ** (rows - 1)
    return float(integrate.simpson(largest, x=mean))


def _fewest_traces(power_of: Callable[[int, float], float], rho: float, sd: float) -> int | None:
    """Return the fewest traces, at least 8, of this power, which rises with them."""
    if math.isnan(sd):
        return None
    if sd <= 0 or power_of(FEWEST, rho) >= POWER:
        return FEWEST
    low = high = FEWEST
    while power_of(high, rho) < POWER:
        low, high = high, 2 * high
        if high > MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_of(middle, rho) >= POWER else (middle, high)
    return high
