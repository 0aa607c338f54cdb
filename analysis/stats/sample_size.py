"""Sample size for a paired difference of known spread, and the difference that a sample size can detect."""

import math

from scipy import optimize, stats

POWER = 0.8


def problems_needed(mean: float, spread: float, level: float, margin: float | None = None) -> int | None:
    """Return the number of problems that decide a paired difference at `level` with 80 % power.

    mean, spread: of the problems' differences; the spread is the standard deviation with n - 1. margin: None
    to test the difference against zero, two-sided; else to show that it lies within the margin (both
    one-sided tests) or, if the measured one does not, beyond it. Normal approximation, sound above thirty.

    None if no number suffices: no difference, one on the margin itself, or no spread to plan with. If all
    problems agree, the number that bounds the share of differing problems by the margin.
    """
    if spread == 0:
        if margin is None or mean != 0:
            return None
        return math.ceil(math.log(level) / math.log1p(-margin))
    distance = abs(mean) - (margin or 0)
    if round(distance, 12) == 0:
        return None
    level_quantile = float(stats.norm.isf(level / 2 if distance > 0 else level))
    sizes = [
        float((level_quantile + stats.norm.ppf(power)) * spread / distance) ** 2 for power in (POWER, (1 + POWER) / 2)
    ]
    if distance > 0:
        return math.ceil(sizes[0])
    assert margin is not None

    def power_shortfall(n: float) -> float:
        """Return by how much the power of both margin tests at n problems falls short of the target."""
        error = spread / math.sqrt(n)
        tails = (stats.norm.cdf((margin + side * mean) / error - level_quantile) for side in (-1, 1))
        return POWER + 1 - float(sum(tails))

    # If one margin is near, one test decides; if both are equally near, each has half of the misses.
    return math.ceil(float(optimize.brentq(power_shortfall, sizes[0] * 0.99, sizes[1] * 1.01)))


def detectable_difference(problems: int, spread: float, level: float) -> float:
    """Return the smallest true difference (points) that this many problems detect at `level`, two-sided, with
    80 % power; NaN without a measured spread. spread: of the problems' differences, with n - 1. Uses
    Student's t, whose quantiles for few problems or clusters are far wider than the normal ones of
    `problems_needed`. The result may be above 1: no difference is detectable then.
    """
    if spread == 0:
        return math.nan
    quantile = float(stats.t.isf(level / 2, problems - 1) + stats.t.ppf(POWER, problems - 1))
    return quantile * spread / math.sqrt(problems)
