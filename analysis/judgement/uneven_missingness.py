"""Uneven missingness: problems that ended without a grade in one arm and not in another."""

from typing import Any

import pandas as pd

from analysis.judgement.study_table import EXCLUDED, Study, is_ungraded
from protocol.formats.vocabulary import FULL


def uneven_rows(study: Study) -> list[dict[str, Any]]:
    """Return one row for each (model, task, budget, arm) with such problems, in grid order: the number of problems with
    an ungraded lane there and all lanes graded in another arm of the same model, task and budget.

    The full cache, which has no budget, is compared with the arms of all budgets.
    """
    if not is_ungraded(study.lanes).any():
        return []
    is_lost_by_arm = {labels: _lost_problems(lanes) for labels, lanes in study.by_arm().items()}
    rows = []
    for (model, task, budget, arm), is_lost in is_lost_by_arm.items():
        if not is_lost.any():
            continue
        others = [
            other
            for (other_model, other_task, other_budget, other_arm), other in is_lost_by_arm.items()
            if (other_model, other_task) == (model, task)
            and (other_budget, other_arm) != (budget, arm)
            and (FULL in (budget, other_budget) or budget == other_budget)
        ]
        is_uneven = pd.Series(False, index=is_lost.index)
        for other in others:
            is_uneven |= is_lost & ~other
        if count := int(is_uneven.sum()):
            labels = {"model": model, "task": task, "budget": budget, "arm": arm}
            rows.append(labels | {"problems": count, "of": len(is_lost)})
    return rows


def _lost_problems(lanes: pd.DataFrame) -> "pd.Series[bool]":
    """Return whether each problem has an ungraded lane, [problem]; excluded problems are left out."""
    included = lanes[lanes["state"] != EXCLUDED]
    return is_ungraded(included).groupby(included["problem"], sort=False).any()
