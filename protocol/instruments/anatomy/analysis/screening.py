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

from analysis.judgement import study_files
from analysis.stats import correlations
from analysis.stats.ranks import MIN_PAIRS, spearman
from protocol.instruments.anatomy.analysis import trace_statistics
from protocol.instruments.anatomy.analysis.trace_statistics import FEWEST
from protocol.instruments.anatomy.analysis.traces import Anatomy, Pair
from protocol.instruments.anatomy.fields import ORACLE

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


def collect_answers(anatomy: Anatomy, pair: Pair) -> Answers:
    """Collect the answers of both halves, over traces with a needed token in the registered reading."""
    labelled = [item for item in anatomy.traces_of(pair) if item.windows]
    traces = [item for item in labelled if item.labels(anatomy.reading).any()]
    outcomes = [retained for item in traces for retained in item.outcomes if retained.arm != ORACLE]
    arms = tuple(dict.fromkeys(item.arm for item in outcomes))
    budgets = tuple(dict.fromkeys(item.budget for item in outcomes))
    retained, auc, right = (np.full((len(traces), len(arms), len(budgets)), np.nan) for _ in range(3))
    for index, item in enumerate(traces):
        start, stop = item.span
        label, shares = item.labels(anatomy.reading), item.values().retained[:, start:stop].astype(np.float64)
        area = correlations.correlate_rows(shares, label).auc
        for row, outcome in enumerate(item.outcomes):
            if outcome.arm == ORACLE or outcome.correct is None:
                continue
            position = index, arms.index(outcome.arm), budgets.index(outcome.budget)
            retained[position] = shares[row, label == 1].mean()
            auc[position], right[position] = area[row], float(outcome.correct)
    clusters = tuple(item.cluster for item in traces)
    return Answers(arms, budgets, clusters, retained, auc, right, len(labelled) - len(traces))


class PolicyAgreement(NamedTuple):
    """One arm at one budget of one (model, task), over the traces of both halves in which some token was
    needed and the arm did not fail.

    kept: mean share of the needed tokens that the arm retained. auc: mean over traces with varying labels, of
    the retained shares with the labels; .5 if needed tokens are retained as often as others. interval: 95 %,
    Student over traces or clusters, None for fewer than two. accuracy: of its answers at the cut.
    """

    model: str
    task: str
    budget: str
    arm: str
    traces: int
    kept: float
    auc: float
    interval: tuple[float, float] | None
    accuracy: float


def measure_policies(anatomy: Anatomy) -> list[PolicyAgreement]:
    """Return the agreements in registered order. Raises RecordError for a side file that is missing or damaged."""
    agreements = []
    for pair in anatomy.pairs:
        answers = collect_answers(anatomy, pair)
        for row, arm in enumerate(answers.arms):
            for column, budget in enumerate(answers.budgets):
                right = answers.right[:, row, column]
                if not np.isfinite(right).any():
                    continue
                auc = trace_statistics.aggregate_units(answers.auc[:, row, column][:, None], answers.clusters)
                means = trace_statistics.means(auc)
                low, high = (float(end[0]) for end in trace_statistics.t_limits(means, 0.95))
                agreements.append(
                    PolicyAgreement(
                        *pair,
                        budget,
                        arm,
                        int(np.isfinite(right).sum()),
                        float(np.nanmean(answers.kept[:, row, column])),
                        float(means.mean[0]),
                        None if math.isnan(low) else (low, high),
                        float(np.nanmean(right)),
                    )
                )
    return agreements


def fit_over_problems(answers: Answers, draws: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return the fit over problems.

    state: "fitted", or the reason why not. within, between: log odds of a right answer for each additional tenth of the
    needed tokens retained, with error, 95 % limits (Student, clusters less parameters) and p; null if not fitted.
    slope: change of the probability of a right answer for an additional tenth, among arms at the same trace and budget,
    with the 95 % limits of a bootstrap over traces; null if agreement does not vary.
    """
    known = np.isfinite(answers.right) & np.isfinite(answers.kept)
    trace, _, budget = np.nonzero(known)
    if not len(trace):
        return {"state": "no arm was asked", "within": None, "between": None, "slope": None, "answers": 0}
    names = list(dict.fromkeys(answers.clusters))
    cluster = np.array([names.index(cluster_name) for cluster_name in answers.clusters])[trace]
    retained, right = answers.kept[known], answers.right[known]
    cell = trace * len(answers.budgets) + budget
    counts = np.bincount(cell)
    cell_mean = (np.bincount(cell, retained) / np.maximum(counts, 1))[cell]
    within = retained - cell_mean
    result: dict[str, Any] = {
        "answers": len(right),
        "traces": len(set(trace.tolist())),
        "slope": _linear_slope(within, right, cell, cluster, len(names), draws, rng),
        "within": None,
        "between": None,
    }
    result["state"] = _reason_not_fitted(within, right, len(set(cluster.tolist())))
    if result["state"] is not None:
        return result
    budget_indices = [index for index in range(1, len(answers.budgets)) if (budget == index).any()]
    dummies = [(budget == index).astype(float) for index in budget_indices]
    columns = [np.ones(len(right)), within]
    columns += [cell_mean] if np.ptp(cell_mean) > 1e-9 else []
    return result | _fit_gee(right, np.column_stack([*columns, *dummies]), cluster, len(columns))


def _reason_not_fitted(within: Floats, right: Floats, clusters: int) -> str | None:
    if clusters < FEWEST:
        return f"{clusters} traces or clusters are too few; it takes {FEWEST}"
    if np.ptp(right) == 0:
        return f"all answers are {'right' if right[0] else 'wrong'}"
    if np.ptp(within) < 1e-9:
        return "all arms keep the same share of the needed tokens"
    return None


def _fit_gee(right: Floats, design: Floats, cluster: NDArray[np.intp], term_count: int) -> dict[str, Any]:
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return {"state": "not fitted: agreement follows from the budget"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = GEE(right, design, groups=cluster, family=Binomial(), cov_struct=Exchangeable())
            fit = model.fit(maxiter=200, cov_type="bias_reduced")
        except (np.linalg.LinAlgError, ValueError, FloatingPointError) as problem:
            return {"state": f"not fitted: {problem}"}
    values, errors = np.asarray(fit.params), np.asarray(fit.bse)
    if not getattr(fit, "converged", True) or not np.isfinite([values, errors]).all():
        reason = caught[0].message if caught else "no finite error"
        return {"state": f"not fitted: it does not converge ({' '.join(str(reason).split())})"}
    if np.abs(values).max() > SEPARATED:
        return {"state": "not fitted: right and wrong answers separate, and the odds run away"}
    degrees = max(1, len(set(cluster.tolist())) - design.shape[1])
    quantile = float(stats.t.ppf(0.975, degrees))
    terms = {}
    for index, name in zip(range(1, term_count), ("within", "between"), strict=False):
        value, error = values[index] / 10, errors[index] / 10
        p = float(2 * stats.t.sf(abs(value / error), degrees)) if error > 0 else math.nan
        terms[name] = {
            "value": float(value),
            "error": float(error),
            "interval": (float(value - quantile * error), float(value + quantile * error)),
            "p": p,
        }
    return {"state": "fitted", **terms}


def _linear_slope(
    within: Floats,
    right: Floats,
    cell: NDArray[np.intp],
    cluster: NDArray[np.intp],
    clusters: int,
    draws: int,
    rng: np.random.Generator,
) -> dict[str, Any] | None:
    counts = np.maximum(np.bincount(cell), 1)
    deviation = right - (np.bincount(cell, right) / counts)[cell]
    products = np.bincount(cluster, within * deviation, minlength=clusters)
    squares = np.bincount(cluster, within**2, minlength=clusters)
    if squares.sum() < 1e-12:
        return None
    copies = rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=draws)
    with np.errstate(invalid="ignore", divide="ignore"):
        slopes = (copies @ products) / (copies @ squares) / 10
    return {"value": float(products.sum() / squares.sum() / 10), "interval": _percentile_interval(slopes)}


def _percentile_interval(values: Floats) -> tuple[float, float] | None:
    known = values[np.isfinite(values)]
    if len(known) < len(values) / 2:
        return None
    low, high = np.quantile(known, [0.025, 0.975])
    return float(low), float(high)


def correlate_over_policies(answers: Answers, draws: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return for each budget: every arm's mean share of needed tokens retained, AUC, accuracy and traces; rho of the
    shares with the accuracies, and of the AUCs with them; 95 % percentile limits over traces or clusters.

    rho is null for fewer than five arms, and if one side is constant. Resamples with a constant side are left out.
    """
    names = list(dict.fromkeys(answers.clusters))
    belongs = np.array([[value == name for value in answers.clusters] for name in names], dtype=float)
    copies = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws) if names else None
    rows = []
    for index, budget in enumerate(answers.budgets):
        sides = {name: getattr(answers, name)[:, :, index] for name in ("kept", "auc", "right")}
        means = {name: _weighted_means(side, np.ones((1, len(side))))[0] for name, side in sides.items()}
        row: dict[str, Any] = {
            "budget": budget,
            "arms": [
                {
                    "arm": arm,
                    "kept": float(means["kept"][arm_index]),
                    "auc": float(means["auc"][arm_index]),
                    "accuracy": float(means["right"][arm_index]),
                    "traces": int(np.isfinite(sides["right"][:, arm_index]).sum()),
                }
                for arm_index, arm in enumerate(answers.arms)
            ],
        }
        for name in ("kept", "auc"):
            row[f"rho_{name}"], row[f"interval_{name}"] = None, None
            rho = _rank_correlation(means[name], means["right"])
            if copies is None or math.isnan(rho):
                continue
            weights = copies @ belongs
            resampled, right = _weighted_means(sides[name], weights), _weighted_means(sides["right"], weights)
            rhos = np.array([_rank_correlation(value, other) for value, other in zip(resampled, right, strict=True)])
            row[f"rho_{name}"], row[f"interval_{name}"] = rho, _percentile_interval(rhos)
        rows.append(row)
    return rows


def _weighted_means(side: Floats, weights: Floats) -> Floats:
    """Return [draw, arm]: weighted means over traces of side[trace, arm]."""
    known = np.isfinite(side)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: Floats = (weights @ np.where(known, side, 0)) / (weights @ known)
    return mean


def _rank_correlation(first: Floats, second: Floats) -> float:
    known = np.isfinite(first) & np.isfinite(second)
    # Rounded, so that means of the same answers in another order are equal.
    return spearman(np.round(first[known], 9), np.round(second[known], 9)) if known.sum() >= MIN_PAIRS else math.nan


def correlate_held_out(folder: Path, pair: Pair, policies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """Return for each budget rho of every arm's mean share of needed tokens retained, on development
    problems, with its accuracy in the sealed confirmation; None if the study is not sealed.

    policies: the result of `correlate_over_policies`.
    """
    if not (folder / "seal.json").exists():
        return None
    lanes = study_files.read_study(folder).lanes
    means = lanes.groupby(["model", "task", "budget", "arm"])["correct"].mean().to_dict()
    rows = []
    for row in policies:
        pairs = [
            (arm_row["kept"], means.get((*pair, row["budget"], arm_row["arm"]), math.nan)) for arm_row in row["arms"]
        ]
        table = np.array(pairs, dtype=np.float64).reshape(-1, 2)
        rho = _rank_correlation(table[:, 0], table[:, 1])
        arms = int(np.isfinite(table).all(axis=1).sum())
        rows.append({"budget": row["budget"], "arms": arms, "rho": None if math.isnan(rho) else rho})
    return rows
