"""Each registered contrast by level: the length of a prompt, the depth of a fact, a difficulty.

A pooled difference can come from a single length. The lock names the levels in advance, by id of a problem;
tasks without levels have no row. Everything here is exploratory: a level has a part of the problems,
intervals are of one contrast at one level, and no level was registered as a question.
"""

import itertools
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from analysis.judgement.contrasts import Pairing, apply_missing_rule, pair_arms
from analysis.judgement.study_table import Study
from analysis.rules.rule import arm_pairs
from analysis.stats import resampled_units

LEVEL = 0.95
METHODS = ("auto", "t")  # for independent right-or-wrong answers, and for scores and clusters
DRAWS = 1  # neither method resamples


def contrasts_by_level(study: Study) -> list[dict[str, Any]]:
    """Return a row for each contrast and level, contrasts in the judge's order and levels ascending.

    Fields: problems `n`; those that only one of the two got right (of scores: more of); accuracies of both;
    their difference and its 95 % interval, None for fewer than two problems or clusters. Differences are as
    measured, whatever memory the two arms used.
    """
    content, items = study.lock["protocol"]["content"], study.lock["items"]
    if not any("levels" in items[task["name"]] for task in content["tasks"]):
        return []
    all_pairings = pair_arms(apply_missing_rule(study).study, arm_pairs(content["decision"]))
    return [
        row
        for pairing in all_pairings
        if (levels := items[pairing.task].get("levels"))
        for level in order_levels(levels[problem] for problem in pairing.problems)
        for row in [_level_row(pairing, level, levels)]
    ]


def read_levels(item: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the level of each problem, as the lock declares it: of a table of its `items`.

    The generator of chains declares none; its ids are chain/<steps>/<index>. Ids of other sources ("source" in
    the table) are their authors' and mean nothing.
    """
    if "levels" in item or "source" in item:
        return dict(item.get("levels", {}))
    parts = {problem: problem.split("/") for problem in (*item["dev"], *item["confirm"])}
    return {problem: str(int(part[1])) for problem, part in parts.items() if part[0] == "chain"}


def order_levels(levels: Iterable[str]) -> list[str]:
    """Return the distinct levels: ascending if all are numbers, else in the given order."""
    unique = list(dict.fromkeys(levels))
    try:
        return sorted(unique, key=Decimal)
    except InvalidOperation:
        return unique


def _level_row(pairing: Pairing, level: str, levels: Mapping[str, str]) -> dict[str, Any]:
    in_level = np.array([levels[problem] == level for problem in pairing.problems])
    subject_scores, comparator_scores = pairing.subject_correct[in_level], pairing.comparator_correct[in_level]
    clusters = None if pairing.clusters is None else list(itertools.compress(pairing.clusters, in_level))
    row: dict[str, Any] = {
        **dict(zip(("model", "task", "budget", "subject", "against"), pairing[:5], strict=True)),
        "level": level,
        "n": len(subject_scores),
        "gains": int((subject_scores > comparator_scores).sum()),
        "losses": int((subject_scores < comparator_scores).sum()),
        "own": float(subject_scores.mean()),
        "other": float(comparator_scores.mean()),
    }
    if resampled_units.count_units(clusters, len(subject_scores)) < 2:
        return row | dict.fromkeys(("difference", "low", "high"))
    method = METHODS[0] if pairing.is_countable else METHODS[1]
    (comparison,) = resampled_units.compare_at_levels(
        method, subject_scores - comparator_scores, clusters, [LEVEL], draws=DRAWS, rng=np.random.default_rng
    )
    return row | {"difference": comparison.mean, "low": comparison.low, "high": comparison.high}
