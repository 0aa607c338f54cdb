"""Statistics over traces of one value for each trace and column: means, one-sided p, intervals, and
family-wise p.

A trace is the unit: tokens of one trace share a problem, an answer and windows, so they are not independent.
If the task names clusters of problems, clusters are the units, by the values of `analysis.stats.clusters`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

__all__ = ["FEWEST", "Means", "bootstrap_t", "family_p", "limits", "means", "one_sided", "units"]

Floats = NDArray[np.float64]
FEWEST = 8  # units below which nothing is chosen, tested or marked: 2^-8 is the least p that signs can give
SPREAD = 1e-9  # standard deviation below which the units of a column count as equal
BLOCK = 1 << 24  # numbers in memory at a time


class Means(NamedTuple):
    """Statistics by [column]. units: how many have a value; mean is NaN without units, sd for fewer than two.
    """

    mean: Floats
    sd: Floats
    units: NDArray[np.int64]


def units(table: Floats, clusters: Sequence[str]) -> Floats:
    """Return [unit, column] of table[trace, column], NaN where a trace or cluster has no value.

    clusters: of each trace. If every trace is its own cluster the table is returned. Else z[c] = mean + (G /
    n) * (sum over its traces of value - mean): the mean of z is that of the traces, and its standard error
    the cluster-robust one (Liang & Zeger 1986), with G clusters and n traces that have a value in that
    column.
    """
    names = list(dict.fromkeys(clusters))
    if len(names) == len(table):
        return table
    place = {name: at for at, name in enumerate(names)}
    belongs = np.zeros((len(names), len(table)))
    belongs[[place[name] for name in clusters], np.arange(len(table))] = 1
    known = np.isfinite(table)
    count = known.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, table, 0).sum(axis=0) / count
        held = belongs @ known
        sums = belongs @ np.where(known, table - mean, 0)
        found: Floats = np.where(held > 0, mean + (held > 0).sum(axis=0) / count * sums, np.nan)
    return found


def means(table: Floats) -> Means:
    """Return the mean, spread and number of units of each column of table[unit, column]."""
    known = np.isfinite(table)
    count = known.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(count > 0, np.where(known, table, 0).sum(axis=0) / count, np.nan)
        away = np.where(known, table - mean, 0)
        sd = np.where(count > 1, np.sqrt((away**2).sum(axis=0) / (count - 1)), np.nan)
    return Means(mean, sd, count)


def one_sided(of: Means, sign: int) -> Floats:
    """Return [column]: Student's one-sided p of a mean on the side of `sign`.

    Units that are all equal have no spread; their p is the sign test's 2^-n, and 1 on the other side or at
    zero.
    """
    found = np.full(len(of.mean), np.nan)
    for column, (mean, sd, n) in enumerate(zip(*of, strict=True)):
        if n < 2:
            continue
        if sd <= SPREAD:
            found[column] = 2.0**-n if sign * mean > SPREAD else 1.0
        else:
            found[column] = stats.t.sf(sign * mean / (sd / np.sqrt(n)), n - 1)
    return found


def limits(of: Means, level: float) -> tuple[Floats, Floats]:
    """Return two-sided limits by Student's t, cut at -1 and 1; NaN for fewer than two units."""
    with np.errstate(invalid="ignore", divide="ignore"):
        reach = stats.t.ppf((1 + level) / 2, np.maximum(of.units - 1, 1)) * of.sd / np.sqrt(of.units)
    return np.maximum(-1.0, of.mean - reach), np.minimum(1.0, of.mean + reach)


def bootstrap_t(table: Floats, level: float, draws: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return two-sided limits [column] by resampling whole units of table[unit, column], studentised (Efron &
    Tibshirani 1993, section 12.5), cut at -1 and 1.

    A resample without spread in a column has no t and is left out of that column. A column of fewer than two
    units, or of equal ones, has no limits (NaN).
    """
    count, width = table.shape
    low, high = np.full(width, np.nan), np.full(width, np.nan)
    if count < 2:
        return low, high
    of = means(table)
    copies = rng.multinomial(count, np.full(count, 1 / count), size=draws).astype(np.float64)
    rows = max(1, BLOCK // draws)
    for start in range(0, width, rows):
        part = slice(start, start + rows)
        known = np.isfinite(table[:, part])
        centred = np.where(known, table[:, part] - of.mean[part], 0)
        held = copies @ known
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = copies @ centred / held
            error = np.sqrt(np.maximum(copies @ centred**2 / held - mean**2, 0) / (held - 1))
            t = np.where((held > 1) & (error > SPREAD), mean / error, np.nan)
        usable = (of.units[part] > 1) & (of.sd[part] > SPREAD) & np.isfinite(t).any(axis=0)
        if not usable.any():
            continue
        at = np.flatnonzero(usable) + start
        ends = np.nanquantile(t[:, usable], [(1 + level) / 2, (1 - level) / 2], axis=0)
        own = of.sd[at] / np.sqrt(of.units[at])
        low[at], high[at] = of.mean[at] - ends[0] * own, of.mean[at] - ends[1] * own
    return np.maximum(-1.0, low), np.minimum(1.0, high)


def family_p(table: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """Return two-sided p [column], adjusted for all columns of table[unit, column].

    Whole units flip their signs in all columns together, and each column is compared with the largest |t| of
    all (Westfall & Young 1993, section 2.3), as in `analysis.stats.max_t`, but with missing values. Exact if
    a unit's values are as likely as their opposites, and right in the limit of many units if only their means
    are zero. A column of fewer than FEWEST units is NaN.
    """
    found = np.full(table.shape[1], np.nan)
    known = np.isfinite(table)
    taking = np.flatnonzero(known.sum(axis=0) >= FEWEST)
    if not len(taking):
        return found
    own, count = np.where(known, table, 0)[:, taking], known.sum(axis=0)[taking]
    squares = (own**2).sum(axis=0)

    def t(sums: Floats) -> Floats:
        spread = np.maximum(squares - sums**2 / count, 1e-12)
        of: Floats = np.round(np.abs(sums) / np.sqrt(spread * count / (count - 1)), 9)
        return of

    observed = t(own.sum(axis=0))
    largest = np.empty(draws)
    rows = max(1, BLOCK // max(own.shape))
    for start in range(0, draws, rows):
        signs = rng.integers(0, 2, (min(rows, draws - start), len(own))).astype(np.float64) * 2 - 1
        largest[start : start + len(signs)] = t(signs @ own).max(axis=1)
    largest.sort()
    reached = draws - np.searchsorted(largest, observed)
    found[taking] = (reached + 1) / (draws + 1)
    return found
