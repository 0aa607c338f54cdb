"""Whether values of two independent groups differ."""

from collections.abc import Sequence

from scipy import stats


def rank_sum_p(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p of Mann and Whitney's test (1947), with the correction for ties; 1 if all values are
    equal.
    """
    if len({*first, *second}) < 2:
        return 1.0
    return float(stats.mannwhitneyu(first, second).pvalue)
