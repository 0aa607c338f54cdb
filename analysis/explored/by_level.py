"""Each registered contrast by level: the length of a prompt, the depth of a fact, a difficulty.

A pooled difference can come from a single length. The lock names the levels in advance, by id of a problem;
tasks without levels have no row. Everything here is exploratory: a level has a part of the problems,
intervals are of one contrast at one level, and no level was registered as a question.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from analysis.rules.rule import sides
from analysis.stats import resampled_units
from analysis.studies.contrasts import Pairing, counted, pairings
from analysis.studies.study_files import Study

__all__ = ["METHODS", "by_level", "ordered"]

LEVEL = 0.95
METHODS = ("auto", "t")  # for independent right-or-wrong answers, and for scores and clusters
DRAWS = 1  # neither method resamples


def by_level(study: Study) -> list[dict[str, Any]]:
    """Return a row for each contrast and level, contrasts in the judge's order and levels ascending.

    Fields: problems `n`; those that only one of the two got right (of scores: more of); accuracies of both;
    their difference and its 95 % interval, None for fewer than two problems or clusters. Differences are as
    measured, whatever memory the two arms used.
    """
    content, items = study.lock["protocol"]["content"], study.lock["items"]
    if not any("levels" in items[task["name"]] for task in content["tasks"]):
        return []
    found = pairings(counted(study).study, sides(content["decision"]))
    return [
        row
        for pairing in found
        if (levels := items[pairing.task].get("levels"))
        for level in ordered(levels[problem] for problem in pairing.problems)
        for row in [_row(pairing, level, levels)]
    ]


def ordered(levels: Any) -> list[str]:
    """Return the distinct levels: ascending if all are numbers, else in the given order."""
    each = list(dict.fromkeys(levels))
    try:
        return sorted(each, key=Decimal)
    except InvalidOperation:
        return each


def _row(pairing: Pairing, level: str, levels: Mapping[str, str]) -> dict[str, Any]:
    here = np.array([levels[problem] == level for problem in pairing.problems])
    own, other = pairing.own[here], pairing.other[here]
    clusters = _at(pairing.clusters, here)
    row: dict[str, Any] = {
        **dict(zip(("model", "task", "budget", "subject", "against"), pairing[:5], strict=True)),
        "level": level,
        "n": len(own),
        "gains": int((own > other).sum()),
        "losses": int((own < other).sum()),
        "own": float(own.mean()),
        "other": float(other.mean()),
    }
    if resampled_units.number(clusters, len(own)) < 2:
        return row | dict.fromkeys(("difference", "low", "high"))
    method = METHODS[0] if pairing.counts else METHODS[1]
    (one,) = resampled_units.compare_at(
        method, own - other, clusters, [LEVEL], draws=DRAWS, rng=np.random.default_rng
    )
    return row | {"difference": one.mean, "low": one.low, "high": one.high}


def _at(clusters: Sequence[str] | None, here: Any) -> list[str] | None:
    return None if clusters is None else [one for one, stands in zip(clusters, here, strict=True) if stands]
