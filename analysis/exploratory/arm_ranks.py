"""The ranks that arms of one model, task and budget may have, by the intervals of all pairs together.

Exploratory: a rule compares a subject with its comparators and asks for no order.
"""

from typing import NamedTuple

import numpy as np

from analysis.judgement.contrasts import apply_missing_rule
from analysis.judgement.study_table import Study
from analysis.stats.interval import DegenerateDifference
from analysis.stats.rank_intervals import RankedArms, RankInterval, rank_arms

LEAST_ARMS = 3
DRAWS, SEED = 2_000, 0


class RankedCell(NamedTuple):
    """arms: of one model, task and budget, best first, each with its interval of ranks. n: problems that all have."""

    model: str
    task: str
    budget: str
    n: int
    arms: list[tuple[str, RankInterval]]

    @property
    def tied_for_best(self) -> list[str]:
        """The arms that may have the first rank."""
        return [arm for arm, rank in self.arms if rank.first == 1]


def rank_study(study: Study) -> list[RankedCell]:
    """Rank the arms wherever three or more evict to one budget, on the problems that all of them have a grade for.

    All ranks of the study are to hold together with probability 1 - alpha of its decision; max-t, which registering
    refuses for clusters and scores, falls short of it where clusters are few or scores skewed. A cell of fewer than
    two problems has no ranks, nor have registered neighbours of a budget, where the subject does not run.
    """
    content = study.lock["protocol"]["content"]
    lanes = apply_missing_rule(study).study.lanes
    names, cells, groups = [], [], []
    for cell, rows in lanes.groupby(["model", "task", "budget"], sort=False):
        scores = rows.pivot(index="problem", columns=["arm", "seed"], values="correct").dropna()
        arms = [arm for arm in dict.fromkeys(rows["arm"]) if arm in scores]
        if len(arms) < LEAST_ARMS or len(scores) < 2 or cell[2] in content.get("neighbours", ()):
            continue
        clusters = None
        if "cluster" in rows and rows["cluster"].nunique() < rows["problem"].nunique():
            by_problem = rows.drop_duplicates("problem").set_index("problem")["cluster"]
            clusters = tuple(by_problem.loc[scores.index])
        names.append(arms)
        cells.append((*cell, len(scores)))
        groups.append(RankedArms([scores[arm].to_numpy() for arm in arms], clusters))
    if not groups:
        return []
    level = 1 - float(content["decision"]["alpha"])
    try:
        ranks = rank_arms(groups, level=level, draws=DRAWS, rng=np.random.default_rng(SEED))
    except DegenerateDifference:  # a single cluster
        return []
    return [
        RankedCell(
            model, task, budget, n, sorted(zip(arms, intervals, strict=True), key=lambda ranked: -ranked[1].mean)
        )
        for (model, task, budget, n), arms, intervals in zip(cells, names, ranks, strict=True)
    ]
