"""Whether the share of needed tokens that an arm retains predicts a right answer, over problems and over
policies.

The agreement of an arm on a trace is the share of the needed tokens that it retained, mean over layers and KV
heads. Traces in which no token is needed have no agreement and are counted. The oracle is built from the
labels and left out.

Over problems. Answers are right or wrong and several belong to one trace, so the model is logistic, fitted by
generalised estimating equations (Liang & Zeger 1986), exchangeable within a trace, with the bias-reduced
sandwich of Mancl and DeRouen (2001), since traces are few. A linear mixed model would give probabilities
outside [0, 1], and statsmodels fits logistic ones with random effects only by variational Bayes or a Laplace
approximation, whose spreads are known to be too small. Agreement is split: how far an arm lies above the mean
of all arms at the same trace and budget (`within`, the quantity of interest), and that mean (`between`: some
traces are easier to retain). If the fit does not converge, or the answers separate, the state says so, and
only the linear slope is reported, which exists whenever agreement varies.

Over policies. Spearman's rho of mean agreement and accuracy. The arms are fixed: only traces are resampled.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from statsmodels.genmod.cov_struct import Exchangeable
from statsmodels.genmod.families import Binomial
from statsmodels.genmod.generalized_estimating_equations import GEE

from analysis.anatomy.over_traces import FEWEST
from analysis.anatomy.reading import ORACLE, Anatomy, Pair
from analysis.stats import correlations
from analysis.stats.ranks import LEAST, spearman
from analysis.studies import study_files

__all__ = ["Answers", "answers", "held_out", "over_policies", "over_problems"]

Floats = NDArray[np.float64]
SEPARATED = 50.0  # log odds per whole share; a larger estimate means that the fit diverges


class Answers(NamedTuple):
    """Arrays [trace, arm, budget], NaN where an arm failed.

    kept: share of the needed tokens that were retained. auc: of the retained shares with the labels. right: 1
    or 0. without: number of traces in which no token is needed.
    """

    arms: tuple[str, ...]
    budgets: tuple[str, ...]
    clusters: tuple[str, ...]
    kept: Floats
    auc: Floats
    right: Floats
    without: int


def answers(anatomy: Anatomy, pair: Pair, reading: str | None = None) -> Answers:
    """Collect the answers of both halves, over traces with a needed token; reading: the registered one by
    default.
    """
    reading = reading or anatomy.reading
    measured = [one for one in anatomy.of(pair) if one.windows]
    traces = [one for one in measured if one.labels(reading).any()]
    places = [kept for one in traces for kept in one.kept if kept.arm != ORACLE]
    arms = tuple(dict.fromkeys(one.arm for one in places))
    budgets = tuple(dict.fromkeys(one.budget for one in places))
    kept, auc, right = (np.full((len(traces), len(arms), len(budgets)), np.nan) for _ in range(3))
    for at, one in enumerate(traces):
        start, stop = one.span
        label, shares = one.labels(reading), one.values().kept[:, start:stop].astype(np.float64)
        area = correlations.rows(shares, label).auc
        for row, each in enumerate(one.kept):
            if each.arm == ORACLE or each.correct is None:
                continue
            place = at, arms.index(each.arm), budgets.index(each.budget)
            kept[place] = shares[row, label == 1].mean()
            auc[place], right[place] = area[row], float(each.correct)
    clusters = tuple(one.cluster for one in traces)
    return Answers(arms, budgets, clusters, kept, auc, right, len(measured) - len(traces))


def over_problems(of: Answers, draws: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return the fit over problems.

    state: "fitted", or the reason why not. within, between: log odds of a right answer for each additional
    tenth of the needed tokens retained, with error, 95 % limits (Student, clusters less parameters) and p;
    null if not fitted. slope: change of the probability of a right answer for an additional tenth, among arms
    at the same trace and budget, with the 95 % limits of a bootstrap over traces; null if agreement does not
    vary.
    """
    known = np.isfinite(of.right) & np.isfinite(of.kept)
    trace, _, budget = np.nonzero(known)
    if not len(trace):
        return {"state": "no arm was asked", "within": None, "between": None, "slope": None, "answers": 0}
    names = list(dict.fromkeys(of.clusters))
    cluster = np.array([names.index(one) for one in of.clusters])[trace]
    kept, right = of.kept[known], of.right[known]
    cell = trace * len(of.budgets) + budget
    counts = np.bincount(cell)
    middle = (np.bincount(cell, kept) / np.maximum(counts, 1))[cell]
    within = kept - middle
    found: dict[str, Any] = {
        "answers": len(right),
        "traces": len(set(trace.tolist())),
        "slope": _slope(within, right, cell, cluster, len(names), draws, rng),
        "within": None,
        "between": None,
    }
    found["state"] = _why_not(within, right, len(set(cluster.tolist())))
    if found["state"] is not None:
        return found
    asked = [place for place in range(1, len(of.budgets)) if (budget == place).any()]
    dummies = [(budget == place).astype(float) for place in asked]
    columns = [np.ones(len(right)), within]
    columns += [middle] if np.ptp(middle) > 1e-9 else []
    return found | _fitted(right, np.column_stack([*columns, *dummies]), cluster, len(columns))


def _why_not(within: Floats, right: Floats, clusters: int) -> str | None:
    if clusters < FEWEST:
        return f"{clusters} traces or clusters are too few; it takes {FEWEST}"
    if np.ptp(right) == 0:
        return f"all answers are {'right' if right[0] else 'wrong'}"
    if np.ptp(within) < 1e-9:
        return "all arms keep the same share of the needed tokens"
    return None


def _fitted(right: Floats, design: Floats, cluster: NDArray[np.intp], named: int) -> dict[str, Any]:
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return {"state": "not fitted: agreement follows from the budget"}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            model = GEE(right, design, groups=cluster, family=Binomial(), cov_struct=Exchangeable())
            fit = model.fit(maxiter=200, cov_type="bias_reduced")
        except (np.linalg.LinAlgError, ValueError, FloatingPointError) as problem:
            return {"state": f"not fitted: {problem}"}
    values, errors = np.asarray(fit.params), np.asarray(fit.bse)
    if not getattr(fit, "converged", True) or not np.isfinite([values, errors]).all():
        why = said[0].message if said else "no finite error"
        return {"state": f"not fitted: it does not converge ({' '.join(str(why).split())})"}
    if np.abs(values).max() > SEPARATED:
        return {"state": "not fitted: right and wrong answers separate, and the odds run away"}
    free = max(1, len(set(cluster.tolist())) - design.shape[1])
    reach = float(stats.t.ppf(0.975, free))
    rows = {}
    for place, name in zip(range(1, named), ("within", "between"), strict=False):
        value, error = values[place] / 10, errors[place] / 10
        p = float(2 * stats.t.sf(abs(value / error), free)) if error > 0 else math.nan
        rows[name] = {
            "value": float(value),
            "error": float(error),
            "interval": (float(value - reach * error), float(value + reach * error)),
            "p": p,
        }
    return {"state": "fitted", **rows}


def _slope(
    within: Floats,
    right: Floats,
    cell: NDArray[np.intp],
    cluster: NDArray[np.intp],
    clusters: int,
    draws: int,
    rng: np.random.Generator,
) -> dict[str, Any] | None:
    counts = np.maximum(np.bincount(cell), 1)
    away = right - (np.bincount(cell, right) / counts)[cell]
    products = np.bincount(cluster, within * away, minlength=clusters)
    squares = np.bincount(cluster, within**2, minlength=clusters)
    if squares.sum() < 1e-12:
        return None
    copies = rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=draws)
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = (copies @ products) / (copies @ squares) / 10
    return {
        "value": float(products.sum() / squares.sum() / 10),
        "interval": _percentiles(drawn),
    }


def _percentiles(drawn: Floats) -> tuple[float, float] | None:
    known = drawn[np.isfinite(drawn)]
    if len(known) < len(drawn) / 2:
        return None
    low, high = np.quantile(known, [0.025, 0.975])
    return float(low), float(high)


def over_policies(of: Answers, draws: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return for each budget: every arm's mean share of needed tokens retained, AUC, accuracy and traces; rho
    of the shares with the accuracies, and of the AUCs with them; 95 % percentile limits over traces or
    clusters.

    rho is null for fewer than five arms, and if one side is constant. Resamples with a constant side are left
    out.
    """
    names = list(dict.fromkeys(of.clusters))
    belongs = np.array([[one == name for one in of.clusters] for name in names], dtype=float)
    copies = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws) if names else None
    found = []
    for place, budget in enumerate(of.budgets):
        sides = {name: getattr(of, name)[:, :, place] for name in ("kept", "auc", "right")}
        means = {name: _weighted(side, np.ones((1, len(side))))[0] for name, side in sides.items()}
        row: dict[str, Any] = {
            "budget": budget,
            "arms": [
                {
                    "arm": arm,
                    "kept": float(means["kept"][at]),
                    "auc": float(means["auc"][at]),
                    "accuracy": float(means["right"][at]),
                    "traces": int(np.isfinite(sides["right"][:, at]).sum()),
                }
                for at, arm in enumerate(of.arms)
            ],
        }
        for name in ("kept", "auc"):
            row[f"rho_{name}"], row[f"interval_{name}"] = None, None
            rho = _rho(means[name], means["right"])
            if copies is None or math.isnan(rho):
                continue
            weights = copies @ belongs
            own, right = _weighted(sides[name], weights), _weighted(sides["right"], weights)
            drawn = np.array([_rho(one, other) for one, other in zip(own, right, strict=True)])
            row[f"rho_{name}"], row[f"interval_{name}"] = rho, _percentiles(drawn)
        found.append(row)
    return found


def _weighted(side: Floats, weights: Floats) -> Floats:
    """Return [draw, arm]: weighted means over traces of side[trace, arm]."""
    known = np.isfinite(side)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: Floats = (weights @ np.where(known, side, 0)) / (weights @ known)
    return mean


def _rho(one: Floats, other: Floats) -> float:
    known = np.isfinite(one) & np.isfinite(other)
    # Rounded, so that means of the same answers in another order are equal.
    return spearman(np.round(one[known], 9), np.round(other[known], 9)) if known.sum() >= LEAST else math.nan


def held_out(folder: Path, pair: Pair, policies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """Return for each budget rho of every arm's mean share of needed tokens retained, on development
    problems, with its accuracy in the sealed confirmation; None if the study is not sealed.

    policies: the result of `correlate_over_policies`.
    """
    if not (folder / "seal.json").exists():
        return None
    lanes = study_files.read(folder).lanes
    means = lanes.groupby(["model", "task", "budget", "arm"])["correct"].mean().to_dict()
    found = []
    for row in policies:
        both = [(one["kept"], means.get((*pair, row["budget"], one["arm"]), math.nan)) for one in row["arms"]]
        table = np.array(both, dtype=np.float64).reshape(-1, 2)
        rho = _rho(table[:, 0], table[:, 1])
        arms = int(np.isfinite(table).all(axis=1).sum())
        found.append({"budget": row["budget"], "arms": arms, "rho": None if math.isnan(rho) else rho})
    return found
