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

Floats = NDArray[np.float64]
FEWEST = 8  # units below which nothing is chosen, tested or marked: 2^-8 is the least p that signs can give
SPREAD = 1e-9  # standard deviation below which the units of a column count as equal
BLOCK = 1 << 24  # numbers in memory at a time


class Means(NamedTuple):
    """Statistics by [column]. units: how many have a value; mean is NaN without units, sd for fewer than two."""

    mean: Floats
    sd: Floats
    units: NDArray[np.int64]


def aggregate_units(table: Floats, clusters: Sequence[str]) -> Floats:
    """Return [unit, column] of table[trace, column], NaN where a trace or cluster has no value.

    clusters: of each trace. If every trace is its own cluster the table is returned. Else z[c] = mean + (G / n) * (sum
    over its traces of value - mean): the mean of z is that of the traces, and its standard error the cluster-robust one
    (Liang & Zeger 1986), with G clusters and n traces that have a value in that column.
    """
    names = list(dict.fromkeys(clusters))
    if len(names) == len(table):
        return table
    row_of = {name: index for index, name in enumerate(names)}
    belongs = np.zeros((len(names), len(table)))
    belongs[[row_of[name] for name in clusters], np.arange(len(table))] = 1
    known = np.isfinite(table)
    count = known.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, table, 0).sum(axis=0) / count
        trace_counts = belongs @ known
        sums = belongs @ np.where(known, table - mean, 0)
        values: Floats = np.where(trace_counts > 0, mean + (trace_counts > 0).sum(axis=0) / count * sums, np.nan)
    return values


def means(table: Floats) -> Means:
    """Return the mean, spread and number of units of each column of table[unit, column]."""
    known = np.isfinite(table)
    count = known.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(count > 0, np.where(known, table, 0).sum(axis=0) / count, np.nan)
        deviation = np.where(known, table - mean, 0)
        sd = np.where(count > 1, np.sqrt((deviation**2).sum(axis=0) / (count - 1)), np.nan)
    return Means(mean, sd, count)


def one_sided_p(summary: Means, sign: int) -> Floats:
    """Return [column]: Student's one-sided p of a mean on the side of `sign`.

    Units that are all equal have no spread; their p is the sign test's 2^-n, and 1 on the other side or at zero.
    """
    p_values = np.full(len(summary.mean), np.nan)
    for column, (mean, sd, n) in enumerate(zip(*summary, strict=True)):
        if n < 2:
            continue
        if sd <= SPREAD:
            p_values[column] = 2.0**-n if sign * mean > SPREAD else 1.0
        else:
            p_values[column] = stats.t.sf(sign * mean / (sd / np.sqrt(n)), n - 1)
    return p_values


def t_limits(summary: Means, level: float) -> tuple[Floats, Floats]:
    """Return two-sided limits by Student's t, cut at -1 and 1; NaN for fewer than two units."""
    with np.errstate(invalid="ignore", divide="ignore"):
        reach = stats.t.ppf((1 + level) / 2, np.maximum(summary.units - 1, 1)) * summary.sd / np.sqrt(summary.units)
    return np.maximum(-1.0, summary.mean - reach), np.minimum(1.0, summary.mean + reach)


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
    summary = means(table)
    copies = rng.multinomial(count, np.full(count, 1 / count), size=draws).astype(np.float64)
    rows = max(1, BLOCK // draws)
    for start in range(0, width, rows):
        part = slice(start, start + rows)
        known = np.isfinite(table[:, part])
        centred = np.where(known, table[:, part] - summary.mean[part], 0)
        weights = copies @ known
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = copies @ centred / weights
            error = np.sqrt(np.maximum(copies @ centred**2 / weights - mean**2, 0) / (weights - 1))
            t = np.where((weights > 1) & (error > SPREAD), mean / error, np.nan)
        usable = (summary.units[part] > 1) & (summary.sd[part] > SPREAD) & np.isfinite(t).any(axis=0)
        if not usable.any():
            continue
        columns = np.flatnonzero(usable) + start
        quantiles = np.nanquantile(t[:, usable], [(1 + level) / 2, (1 - level) / 2], axis=0)
        standard_error = summary.sd[columns] / np.sqrt(summary.units[columns])
        low[columns], high[columns] = (
            summary.mean[columns] - quantiles[0] * standard_error,
            summary.mean[columns] - quantiles[1] * standard_error,
        )
    return np.maximum(-1.0, low), np.minimum(1.0, high)


def family_p(table: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """Return two-sided p [column], adjusted for all columns of table[unit, column].

    Whole units flip their signs in all columns together, and each column is compared with the largest |t| of
    all (Westfall & Young 1993, section 2.3), as in `analysis.stats.max_t`, but with missing values. Exact if
    a unit's values are as likely as their opposites, and right in the limit of many units if only their means
    are zero. A column of fewer than FEWEST units is NaN.
    """
    p_values = np.full(table.shape[1], np.nan)
    known = np.isfinite(table)
    eligible = np.flatnonzero(known.sum(axis=0) >= FEWEST)
    if not len(eligible):
        return p_values
    values, count = np.where(known, table, 0)[:, eligible], known.sum(axis=0)[eligible]
    squares = (values**2).sum(axis=0)

    def t_statistics(sums: Floats) -> Floats:
        spread = np.maximum(squares - sums**2 / count, 1e-12)
        statistics: Floats = np.round(np.abs(sums) / np.sqrt(spread * count / (count - 1)), 9)
        return statistics

    observed = t_statistics(values.sum(axis=0))
    largest = np.empty(draws)
    rows = max(1, BLOCK // max(values.shape))
    for start in range(0, draws, rows):
        signs = rng.integers(0, 2, (min(rows, draws - start), len(values))).astype(np.float64) * 2 - 1
        largest[start : start + len(signs)] = t_statistics(signs @ values).max(axis=1)
    largest.sort()
    exceeding = draws - np.searchsorted(largest, observed)
    p_values[eligible] = (exceeding + 1) / (draws + 1)
    return p_values
