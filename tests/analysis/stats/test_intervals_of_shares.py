"""Limits of shares and of their differences, against printed examples, statsmodels and plain loops."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from analysis.stats.interval import DegenerateDifference, clopper_pearson, newcombe


@pytest.mark.parametrize(
    ("counts", "limits"),
    [  # Newcombe 1998, Statistics in Medicine 17:873, table II, method 10
        ((56, 70, 48, 80), (0.0524, 0.3339)),
        ((9, 10, 3, 10), (0.1705, 0.8090)),
        ((6, 7, 2, 7), (0.0582, 0.8062)),
        ((5, 56, 0, 29), (-0.0381, 0.1926)),
        ((0, 10, 0, 20), (-0.1611, 0.2775)),
        ((0, 10, 0, 10), (-0.2775, 0.2775)),
        ((10, 10, 0, 20), (0.6791, 1.0000)),
        ((10, 10, 0, 10), (0.6075, 1.0000)),
    ],
)
def test_newcombes_limits_are_those_he_printed(counts, limits):
    assert newcombe(*counts) == pytest.approx(limits, abs=5e-5)


def plain_wilson(count: int, of: int, level: float) -> tuple[float, float]:
    """The shares p at which |count/of - p| is z standard errors at p, by bisection."""
    z, share = stats.norm.ppf((1 + level) / 2), count / of

    def apart(p: float) -> bool:
        return (share - p) ** 2 > z * z * p * (1 - p) / of

    ends = []
    for near, far in ((share, 0.0), (share, 1.0)):
        inside, outside = near, far
        for _ in range(60):
            middle = (inside + outside) / 2
            inside, outside = (inside, middle) if apart(middle) else (middle, outside)
        ends.append(inside)
    return ends[0], ends[1]


def test_random_shares_have_the_limits_of_statsmodels():
    draw = np.random.default_rng(0)
    for _ in range(60):
        of = int(draw.integers(1, 400))
        count, level = int(draw.integers(0, of + 1)), float(draw.uniform(0.8, 0.999))
        beta = proportion_confint(count, of, alpha=1 - level, method="beta")
        assert clopper_pearson(count, of, level) == pytest.approx(beta, abs=1e-9)


def test_random_differences_are_joined_from_wilsons_limits():
    draw = np.random.default_rng(1)
    for _ in range(60):
        of, of_other = (int(n) for n in draw.integers(1, 300, 2))
        count, other = int(draw.integers(0, of + 1)), int(draw.integers(0, of_other + 1))
        first, second = count / of, other / of_other
        (low1, high1), (low2, high2) = plain_wilson(count, of, 0.95), plain_wilson(other, of_other, 0.95)
        low = first - second - np.hypot(first - low1, high2 - second)
        high = first - second + np.hypot(high1 - first, second - low2)
        assert newcombe(count, of, other, of_other) == pytest.approx((low, high), abs=1e-9)
        theirs = confint_proportions_2indep(count, of, other, of_other, method="newcomb", compare="diff")
        assert newcombe(count, of, other, of_other) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize(
    ("count", "of", "says"),
    [(0, 0, "at least one"), (3, 2, "3 of 2 problems is impossible"), (-1, 2, "-1 of 2 problems is impossible")],
)
def test_what_is_no_share_is_refused_by_name(count, of, says):
    with pytest.raises(DegenerateDifference, match=says):
        clopper_pearson(count, of)


def test_an_empty_arm_is_refused_by_name():
    with pytest.raises(DegenerateDifference, match="0 problems"):
        newcombe(3, 10, 0, 0)
