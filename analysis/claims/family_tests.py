"""The effect of looking at several results: families of tests, and the best of several candidates."""

from collections.abc import Sequence
from fractions import Fraction
from math import comb
from typing import NamedTuple

from statsmodels.stats.multitest import multipletests

from analysis.stats import multiplicity


class Best(NamedTuple):
    """chance: that the best of the candidates has at least this many right if none is better than the other
    arm. expected: its mean share right, which exceeds the true one (the winner's curse).
    """

    chance: float
    expected: float


def best_of(candidates: int, right: int, problems: int, share: Fraction) -> Best:
    """Return the distribution of the best of independent candidates that each solve a problem with
    probability `share`.

    `share` is printed for the other arm and taken as the truth. Candidates that share problems are
    correlated, and the chance is then smaller than this, though never smaller than that of one candidate.
    """
    if candidates < 1 or not 0 <= right <= problems or not 0 <= share <= 1:
        raise ValueError(f"best_of: {candidates} candidates, {right} of {problems} at {share} is impossible")
    exact = [comb(problems, k) * share**k * (1 - share) ** (problems - k) for k in range(problems + 1)]
    cumulative = [float(sum(exact[:k])) ** candidates for k in range(problems + 2)]
    expected = sum(k * (cumulative[k + 1] - cumulative[k]) for k in range(problems + 1)) / problems
    return Best(1 - cumulative[right], expected)


def count_passing(p: Sequence[float], method: str, alpha: float = 0.05) -> int:
    """Count how many of a family pass at `alpha`, by "bonferroni", "holm" or "bh" (Benjamini & Hochberg
    1995).
    """
    adjusted = multiplicity.adjust(p)
    if method == "bh":
        return int((multipletests(p, method="fdr_bh")[1] <= alpha).sum())
    if method not in ("bonferroni", "holm"):
        raise ValueError(f"method: {method!r} is unknown; name bonferroni, holm or bh")
    return sum(value <= alpha for value in getattr(adjusted, method))
