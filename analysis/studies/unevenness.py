"""Uneven missingness: problems that ended without a grade in one arm and not in another."""

from typing import Any

import pandas as pd

from analysis.rules.rule import FULL
from analysis.studies.study_files import EXCLUDED, Study, ungraded

__all__ = ["uneven"]


def uneven(study: Study) -> list[dict[str, Any]]:
    """Return one row for each (model, task, budget, arm) with such problems, in grid order: the number of
    problems with an ungraded lane there and all lanes graded in another arm of the same model, task and
    budget.

    The full cache, which has no budget, is compared with the arms of all budgets.
    """
    if not ungraded(study.lanes).any():
        return []
    lost = {place: _lost(lanes) for place, lanes in study.by_arm().items()}
    rows = []
    for (model, task, budget, arm), own in lost.items():
        if not own.any():
            continue
        others = [
            other
            for (of, what, at, name), other in lost.items()
            if (of, what) == (model, task) and (at, name) != (budget, arm) and _beside(budget, at)
        ]
        alone = pd.Series(False, index=own.index)
        for other in others:
            alone |= own & ~other
        if count := int(alone.sum()):
            place = {"model": model, "task": task, "budget": budget, "arm": arm}
            rows.append(place | {"problems": count, "of": len(own)})
    return rows


def _beside(budget: str, other: str) -> bool:
    return other in (budget, FULL) or budget == FULL


def _lost(lanes: pd.DataFrame) -> "pd.Series[bool]":
    """Return whether each problem has an ungraded lane, [problem]; excluded problems are left out."""
    kept = lanes[lanes["state"] != EXCLUDED]
    return ungraded(kept).groupby(kept["problem"], sort=False).any()
