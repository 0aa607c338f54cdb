"""Agreement of the slots that each policy retains with the tokens that answers need, from registrations."""

from typing import NamedTuple

import numpy as np

from protocol.instruments.anatomy.analysis import trace_statistics
from protocol.instruments.anatomy.analysis.screening import collect_answers
from protocol.instruments.anatomy.analysis.traces import Anatomy

LEVEL = 0.95


class PolicyAgreement(NamedTuple):
    """One arm at one budget of one (model, task), over the traces of both halves in which some token was
    needed and the arm did not fail.

    kept: mean share of the needed tokens that the arm retained. auc: mean over traces with varying labels, of
    the retained shares with the labels; .5 if needed tokens are retained as often as others. low, high: 95 %,
    Student over traces or clusters, None for fewer than two. accuracy: of its answers at the cut.
    """

    model: str
    task: str
    budget: str
    arm: str
    traces: int
    kept: float
    auc: float
    low: float | None
    high: float | None
    accuracy: float


def measure_policies(anatomy: Anatomy) -> list[PolicyAgreement]:
    """Return the agreements in registered order. Raises RecordError for a side file that is missing or
    damaged.
    """
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
                low, high = (_finite_or_none(end[0]) for end in trace_statistics.t_limits(means, LEVEL))
                agreements.append(
                    PolicyAgreement(
                        *pair,
                        budget,
                        arm,
                        int(np.isfinite(right).sum()),
                        float(np.nanmean(answers.kept[:, row, column])),
                        float(means.mean[0]),
                        low,
                        high,
                        float(np.nanmean(right)),
                    )
                )
    return agreements


def _finite_or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
