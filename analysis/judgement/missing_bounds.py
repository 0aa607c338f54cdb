"""Bounds of a judgement over what the lanes without a grade would have been.

Where `decision.missing` is "wrong", such a lane counts as not correct. Which arm that helps depends on which arm
ended more lanes so: a subject that fails where it alone would have been right looks like its comparators, and one
that fails by chance looks worse. So a verdict, a win or a loss has to result in both extremes: every such lane of the
subject correct and every one of its comparators wrong, and the other way round.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from analysis.judgement.family import LIMIT_FIELDS, P_FIELDS, FamilyComparison
from analysis.judgement.study_table import NOT_RUN, Study
from analysis.rules.rule import Contrast, is_better, is_worse
from analysis.stats import memory_charge


def extreme_studies(study: Study) -> list[Study]:
    """Return the study with every lane that ended without a grade as good as it could be for the subject, and as
    good as it could be for its comparators.
    """
    missing = study.missing
    is_ended = study.lanes.index.isin(missing.index[missing["state"] != NOT_RUN])
    is_comparator = study.lanes["arm"].isin(study.lock["protocol"]["content"]["decision"]["against"])
    return [
        study._replace(lanes=study.lanes.assign(correct=_fill(study.lanes["correct"], is_ended, is_favoured)))
        for is_favoured in (~is_comparator, is_comparator)
    ]


def _fill(correct: "pd.Series[float]", is_ended: Any, is_favoured: "pd.Series[bool]") -> "pd.Series[float]":
    return correct.mask(is_ended & is_favoured, 1.0).mask(is_ended & ~is_favoured, 0.0)


def widen_family(families: Sequence[FamilyComparison], alpha: float) -> FamilyComparison:
    """Return the first family with the contrasts and the rows that hold in all of them: the widest simultaneous limits
    and limits about a margin, the largest p, and a win or a loss only where all have it. families: as counted, and
    in both extremes.
    """
    contrasts: list[Contrast | None] = []
    rows = []
    for index, row in enumerate(families[0].rows):
        members = [family.contrasts[index] for family in families]
        present = [member for member in members if member is not None]
        merged = _merge(present) if len(present) == len(members) else None
        contrasts.append(merged)
        rows.append(
            row if merged is None else row | _widen_row([family.rows[index] for family in families], merged, alpha)
        )
    return families[0]._replace(contrasts=contrasts, rows=rows)


def _merge(members: Sequence[Contrast]) -> Contrast:
    """Return the contrast of which a rule may use what holds in all members. Where they have different signs, nothing
    is won or lost.
    """
    weakest = max(members, key=lambda member: member.p)
    if not (all(member.net > 0 for member in members) or all(member.net < 0 for member in members)):
        weakest = weakest._replace(net=0, delta=0.0, p=1.0, adjusted=1.0)
    uncharged = [member.uncharged_p for member in members if member.uncharged_p is not None]
    limits = [member.margins for member in members if member.margins is not None]
    return weakest._replace(
        high=max(member.high for member in members),
        adjusted=max(weakest.adjusted, *(member.adjusted for member in members)),
        uncharged_p=max(uncharged) if uncharged else None,
        margins=memory_charge.widen_margins(limits) if limits else None,
        informative=all(member.informative for member in members),
    )


def _widen_row(rows: Sequence[dict[str, Any]], merged: Contrast, alpha: float) -> dict[str, Any]:
    widest: dict[str, Callable[..., Any]] = {
        **{name: min if name.startswith("low") else max for name in LIMIT_FIELDS},
        **dict.fromkeys(P_FIELDS, max),
    }
    values = {name: [row[name] for row in rows] for name in widest if rows[0].get(name) is not None}
    extremes = {name: widest[name](each, key=float) for name, each in values.items()}
    if merged.net == 0:  # in one extreme the subject is ahead, in the other it is not
        extremes |= {name: "1.000000" for name in extremes if name in P_FIELDS and name not in ("p_worse", "p_better")}
    below_floor = next((row["floor"] for row in rows if row["floor"]["uninformative"]), rows[0]["floor"])
    differences = sorted((row["difference"] for row in rows), key=float)
    return extremes | {
        "better": is_better(merged, alpha),
        "worse": is_worse(merged, alpha),
        "floor": below_floor,
        "unanswered": {"low": differences[0], "high": differences[-1]},
    }
