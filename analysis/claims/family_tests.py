"""The effect of looking at several results: families of tests, and the best of several candidates."""

from collections.abc import Sequence

from scipy import stats
from statsmodels.stats.multitest import multipletests

CORRECTIONS = {"bonferroni": "bonferroni", "holm": "holm", "bh": "fdr_bh"}  # as a form says it -> statsmodels


def chance_of_best(candidates: int, right: int, problems: int, share: float) -> float:
    """Return the chance that the best of independent candidates solves at least `right` problems, if each solves a
    problem with probability `share`.

    `share` is printed for the other arm and taken as the truth. Candidates that share problems are
    correlated, and the chance is then smaller than this, though never smaller than that of one candidate.
    """
    if candidates < 1 or not 0 <= right <= problems or not 0 <= share <= 1:
        raise ValueError(f"lucky: {candidates} candidates, {right} of {problems} at {share} is impossible")
    return float(1 - stats.binom.cdf(right - 1, problems, share) ** candidates)


def count_passing(p: Sequence[float], method: str, alpha: float = 0.05) -> int:
    """Count how many of a family pass at `alpha`, by "bonferroni", "holm" or "bh" (Benjamini & Hochberg
    1995).
    """
    if method not in CORRECTIONS:
        raise ValueError(f"method: {method!r} is unknown; name bonferroni, holm or bh")
    return int(multipletests(p, alpha, CORRECTIONS[method])[0].sum())
