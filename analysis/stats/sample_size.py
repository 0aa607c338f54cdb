"""How many problems would decide a paired difference of a measured spread, and what so many can detect."""

import math

from scipy import optimize, stats

__all__ = ["detectable", "needed"]

POWER = 0.8


def needed(mean: float, spread: float, level: float, margin: float | None = None) -> int | None:
    """Problems at which a paired difference would be decided at `level` with 80 % power.

    mean, spread: of the problems' differences, the spread with n - 1. margin: None to tell the difference
    from zero, two-sided; else to show that it lies within the margin (both one-sided tests) or, where the
    measured one does not, beyond it. Normal approximation, sound for a result above thirty.

    None where no number would do: no difference, one on the margin itself, or no spread to plan with. Where
    all problems agree, as many as bound the share of others by the margin.
    """
    if spread == 0:
        if margin is None or mean != 0:
            return None
        return math.ceil(math.log(level) / math.log1p(-margin))
    away = abs(mean) - (margin or 0)
    if round(away, 12) == 0:
        return None
    sure = float(stats.norm.isf(level / 2 if away > 0 else level))
    sizes = [float((sure + stats.norm.ppf(power)) * spread / away) ** 2 for power in (POWER, (1 + POWER) / 2)]
    if away > 0:
        return math.ceil(sizes[0])
    assert margin is not None

    def short(n: float) -> float:
        """Of the power, by which both tests of the margin fall short of it at n problems."""
        error = spread / math.sqrt(n)
        each = (stats.norm.cdf((margin + side * mean) / error - sure) for side in (-1, 1))
        return POWER + 1 - float(sum(each))

    # One margin near and the other far: one test decides. Both as near: each has half of the misses.
    return math.ceil(float(optimize.brentq(short, sizes[0] * 0.99, sizes[1] * 1.01)))


def detectable(problems: int, spread: float, level: float) -> float:
    """The smallest true difference (points) that so many problems tell from zero at `level`, two-sided, with
    80 % power; NaN where no spread was measured to plan with. spread: of the problems' differences, with
    n - 1. By the quantiles of Student's t, which of few problems or clusters are far wider than the normal
    ones of `needed`. It may lie above 1: no difference is found then.
    """
    if spread == 0:
        return math.nan
    sure = float(stats.t.isf(level / 2, problems - 1) + stats.t.ppf(POWER, problems - 1))
    return sure * spread / math.sqrt(problems)
