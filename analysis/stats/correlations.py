"""Rank correlation and partial rank correlation of many rows with one label, and the area under the curve.

Spearman's rho is Pearson's correlation of mid-ranks. With a binary label it is the area under the curve,
shifted and scaled: rho = (2 AUC - 1) sqrt(3 n1 n0 / (n^2 - 1)) where no values tie. The area is the share of
pairs (label 1, label 0) in which the first has the larger value, ties counting one half (Mann & Whitney
1947).
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Floats = NDArray[np.float64]
MIN_RESIDUAL_SHARE = 1e-9  # a row has no residual if control rows explain all but this share of its spread


class RowCorrelations(NamedTuple):
    """Correlations of each row, [row]; NaN if the row or the label has a single value on the row's tokens.

    partial: the correlation of the residuals of both ranks after least squares on the ranks of the control
    rows; with one control row it is (r_xy - r_xh r_yh) / sqrt((1 - r_xh^2) (1 - r_yh^2)). It removes linear
    relations between ranks only. NaN also if a row or the label is a linear function of the controls.
    """

    rho: Floats
    partial: Floats
    auc: Floats  # NaN also if the label has values other than 0 and 1
    tokens: NDArray[np.int64]  # number of tokens that have a value


def correlate_rows(values: ArrayLike, label: ArrayLike, controls: ArrayLike | None = None) -> RowCorrelations:
    """Return Spearman's rho, the partial rho and the area under the curve of each row with the label.

    values: [row, token]; a token whose value is not finite is left out of its row. label: [token], finite.
    controls: [control, token], finite; without them `partial` is rho. Raises ValueError for other shapes and
    for a label or a control row that is not finite.
    """
    table, labels = np.asarray(values, dtype=np.float64), np.asarray(label, dtype=np.float64)
    if table.ndim != 2 or labels.shape != table.shape[1:]:
        raise ValueError(
            f"values: has shape {table.shape}, but label has shape {labels.shape}; pass [row, token] and [token]"
        )
    if not np.isfinite(labels).all():
        raise ValueError("label: a token has no label; leave it out first")
    control_rows = np.zeros((0, len(labels))) if controls is None else np.asarray(controls, dtype=np.float64)
    if control_rows.ndim != 2 or control_rows.shape[1] != len(labels) or not np.isfinite(control_rows).all():
        raise ValueError(
            f"held: has shape {control_rows.shape}; pass finite rows [other, token] for {len(labels)} tokens"
        )
    rho, partial, auc = (np.full(len(table), np.nan) for _ in range(3))
    is_finite = np.isfinite(table)
    for indices, token_mask in _group_by_mask(is_finite):
        if token_mask.sum() < 2:
            continue
        token_labels = labels[token_mask]
        ranks = stats.rankdata(table[np.ix_(indices, token_mask)], axis=1)
        first, second = _centre(ranks), _centre(stats.rankdata(token_labels)[None])
        rho[indices] = partial[indices] = _pearson(first, second)
        if len(control_rows):
            base = _basis(_centre(stats.rankdata(control_rows[:, token_mask], axis=1)).T)
            partial[indices] = _pearson(_residuals(first, base), _residuals(second, base))
        positives = token_labels == 1
        if np.isin(token_labels, (0.0, 1.0)).all() and 0 < positives.sum() < len(token_labels):
            count = int(positives.sum())
            rank_excess = ranks[:, positives].sum(axis=1) - count * (count + 1) / 2
            auc[indices] = rank_excess / (count * (len(token_labels) - count))
    return RowCorrelations(rho, partial, auc, is_finite.sum(axis=1))


def fisher_interval(rho: float, n: int, level: float = 0.95) -> tuple[float, float] | None:
    """Return two-sided limits of a correlation of n random pairs: tanh(atanh(rho) -+ z / sqrt(n - 3))
    (Fisher 1921; EpiKV, arXiv:2606.26472, Appendix G, with n the traces). None for fewer than four pairs.
    """
    if n < 4 or math.isnan(rho):
        return None
    half_width = float(stats.norm.ppf((1 + level) / 2)) / math.sqrt(n - 3)
    z = math.atanh(rho) if abs(rho) < 1 else math.copysign(math.inf, rho)
    return math.tanh(z - half_width), math.tanh(z + half_width)


def pairs_needed(rho: float, alpha: float, power: float) -> int:
    """Return how many pairs Fisher's z, two-sided, needs to detect a true correlation:
    ((z_alpha + z_power) / atanh rho)^2 + 3, rounded up.

    Raises ValueError unless 0 < abs(rho) < 1.
    """
    if not 0 < abs(rho) < 1:
        raise ValueError(f"rho: {rho} is not between 0 and 1; pass a correlation above 0 and below 1")
    reach = float(stats.norm.isf(alpha / 2) + stats.norm.ppf(power))
    return math.ceil((reach / math.atanh(abs(rho))) ** 2 + 3)


def weighted_rho(values: Floats, label: Floats, weights: Floats) -> Floats:
    """Return Spearman's rho for each draw, [draw], where draw d has weights[d, token] copies of a token.

    A bootstrap of whole traces gives all tokens of a trace one weight. NaN if a side is constant.

    values, label: [token], finite.
    """
    ranks = [_weighted_ranks(side, weights) for side in (values, label)]
    total = weights.sum(axis=1)
    first, second = (side - (side * weights).sum(axis=1)[:, None] / total[:, None] for side in ranks)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.sqrt((first**2 * weights).sum(axis=1) * (second**2 * weights).sum(axis=1))
        correlations: Floats = np.where(spread > 0, (first * second * weights).sum(axis=1) / spread, np.nan)
    return correlations


def _weighted_ranks(values: Floats, weights: Floats) -> Floats:
    """Return the mid-rank of each token among all copies, [draw, token]."""
    distinct, positions = np.unique(values, return_inverse=True)
    copies = np.zeros((len(weights), len(distinct)))
    order = np.argsort(positions, kind="stable")
    starts = np.searchsorted(positions[order], np.arange(len(distinct)))
    copies[:] = np.add.reduceat(weights[:, order], starts, axis=1)
    below = np.cumsum(copies, axis=1) - copies
    mid_ranks: Floats = (below + (copies + 1) / 2)[:, positions]
    return mid_ranks


def _group_by_mask(is_finite: NDArray[np.bool_]) -> list[tuple[NDArray[np.intp], NDArray[np.bool_]]]:
    """Group rows that have values for the same tokens: (row indices, token mask) of each group."""
    if is_finite.all():
        return [(np.arange(len(is_finite)), np.ones(is_finite.shape[1], dtype=bool))] if is_finite.size else []
    patterns, positions = np.unique(is_finite, axis=0, return_inverse=True)
    return [(np.flatnonzero(positions.ravel() == number), pattern) for number, pattern in enumerate(patterns)]


def _centre(ranks: Floats) -> Floats:
    centred: Floats = ranks - ranks.mean(axis=1, keepdims=True)
    return centred


def _pearson(table: Floats, other: Floats) -> Floats:
    """Return Pearson's correlation of centred rows [row, token] with one centred row [1, token]."""
    spread = np.sqrt((table**2).sum(axis=1) * (other**2).sum())
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations: Floats = np.where(spread > 0, (table @ other[0]) / spread, np.nan)
    return np.clip(correlations, -1.0, 1.0)


def _basis(design: Floats) -> Floats:
    """Return orthonormal columns that span the controls [token, column], without dependent ones."""
    left, sizes, _ = np.linalg.svd(design, full_matrices=False)
    basis: Floats = left[:, sizes > MIN_RESIDUAL_SHARE * max(1.0, float(sizes.max(initial=0.0)))]
    return basis


def _residuals(table: Floats, basis: Floats) -> Floats:
    """Return the residuals of centred rows; zero where they are negligible."""
    residuals = table - (table @ basis) @ basis.T
    is_negligible = (residuals**2).sum(axis=1) <= MIN_RESIDUAL_SHARE * (table**2).sum(axis=1)
    residuals[is_negligible] = 0.0
    return residuals
