"""Pairs of arms on the same problems, after the registered rule for lanes without a grade."""

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.rules.rule import FULL
from analysis.stats import resampled_units
from analysis.stats.isocache import Reference
from analysis.studies import plain_files
from analysis.studies.study_files import NOT_RUN, RecordError, Study, document

__all__ = [
    "MEMORY",
    "MISSING",
    "Counted",
    "Lanes",
    "Pairing",
    "by_problem",
    "charitable",
    "clusters_of",
    "counted",
    "held_by",
    "pairings",
    "references",
    "verdict",
]

# The lanes of one arm in one cell, by column.
Lanes: TypeAlias = pd.DataFrame | Mapping[str, NDArray[Any]]
MISSING = ("inconclusive", "wrong")
MILLION = 10**6
# The columns whose sum is a lane's memory, by the registered `memory`; locks without it mean slots. Windows
# of sliding layers, equal in all arms, are left out: they would make different caches look similar.
MEMORY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"slots": ("mean_slots",), "bytes": ("evictable_bytes",), "total": ("evictable_bytes", "state_bytes")}
)


class Pairing(NamedTuple):
    """Two arms on the problems that both have graded with every seed; axes [problem, seed]."""

    model: str
    task: str
    budget: str
    subject: str
    against: str
    problems: tuple[str, ...]
    own: NDArray[np.float64]  # 1.0 for correct, else 0.0; or a score between them
    other: NDArray[np.float64]
    own_memory: NDArray[np.float64]  # NaN for a failed lane that counts as not correct
    other_memory: NDArray[np.float64]
    full: bool = False  # the comparator is the full cache; memory is unequal on purpose
    clusters: tuple[str, ...] | None = None  # of each problem; None for a task without clusters

    @property
    def difference(self) -> NDArray[np.float64]:
        return self.own - self.other

    @property
    def units(self) -> int:
        """The number of resampling units: clusters if there are any, else problems."""
        return resampled_units.number(self.clusters, len(self.own))

    @property
    def counts(self) -> bool:
        """Whether answers are right or wrong and problems independent: no scores and no clusters."""
        return self.clusters is None and not self.scored

    @property
    def scored(self) -> bool:
        values = np.stack([self.own, self.other])
        return bool(((values != 0) & (values != 1)).any())

    @property
    def net(self) -> int | Fraction:
        """The exact sum of the differences; scores have six decimals."""
        total = float(self.difference.sum())
        return Fraction(round(total * MILLION), MILLION) if self.scored else round(total)

    def memory(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the memory of both arms on the problems with all lanes measured, in the registered unit."""
        whole = ~np.isnan([self.own_memory, self.other_memory]).any(axis=(0, 2))
        return self.own_memory[whole], self.other_memory[whole]


class Counted(NamedTuple):
    study: Study
    decisive: pd.DataFrame  # the lanes without a grade that make the verdict INCONCLUSIVE


def counted(study: Study) -> Counted:
    """Apply `decision.missing` to lanes without a grade. Raises RecordError for an unknown rule."""
    rule = study.lock["protocol"]["content"]["decision"]["missing"]
    if rule not in MISSING:
        raise RecordError(f"decision.missing: {rule!r} is unknown; it is {' or '.join(MISSING)}")
    missing = study.missing
    if rule == "inconclusive":
        return Counted(study, missing)
    not_run = missing["state"] == NOT_RUN
    wrong = study.lanes.index.isin(missing.index[~not_run])
    lanes = study.lanes.assign(correct=study.lanes["correct"].mask(wrong, 0.0))
    return Counted(study._replace(lanes=lanes), missing[not_run])


def charitable(study: Study) -> Study:
    """Return the study in which ungraded lanes are correct for comparators and wrong for other arms: the
    worst case for the subject.
    """
    missing = study.missing
    ended = study.lanes.index.isin(missing.index[missing["state"] != NOT_RUN])
    against = study.lanes["arm"].isin(study.lock["protocol"]["content"]["decision"]["against"])
    correct = study.lanes["correct"].mask(ended & against, 1.0).mask(ended & ~against, 0.0)
    return study._replace(lanes=study.lanes.assign(correct=correct))


def pairings(study: Study, sides: Sequence[tuple[str, str]]) -> list[Pairing]:
    """Return all pairs of arms by models, tasks, budgets, arm pairs. A comparator that never evicts is the
    same at every budget. Raises RecordError for an arm that is not in the grid there.
    """
    content = study.lock["protocol"]["content"]
    arms, counts = study.columns_by_arm(), content["decision"].get("memory", "slots")

    def pairing(model: str, task: str, budget: str, side: tuple[str, str]) -> Pairing:
        own, other = (arms.get((model, task, budget, arm)) for arm in side)
        full = other is None
        if full:
            other = arms.get((model, task, FULL, side[1]))
        if own is None or other is None:
            raise RecordError(f"lock: grid: {model} {task} {budget} lacks {' or '.join(side)}")
        problems = study.lock["items"][task]["confirm"]
        correct = [by_problem(arm, "correct", problems) for arm in (own, other)]
        memory = [held_by(arm, counts, problems) for arm in (own, other)]
        both = ~np.isnan(correct).any(axis=(0, 2))
        own_correct, other_correct, own_held, other_held = (values[both] for values in (*correct, *memory))
        kept = tuple(problems[place] for place in np.flatnonzero(both))
        measured = own_correct, other_correct, own_held, other_held
        return Pairing(model, task, budget, *side, kept, *measured, full, clusters_of(study.lock, task, kept))

    tasks = [task["name"] for task in content["tasks"]]
    return [
        pairing(*place) for place in itertools.product(content["models"], tasks, content["budgets"], sides)
    ]


def clusters_of(lock: Mapping[str, Any], task: str, problems: Sequence[str]) -> tuple[str, ...] | None:
    """Return the cluster of each problem, None for a task without. Raises RecordError if one is missing."""
    if (named := lock["items"][task].get("clusters")) is None:
        return None
    if lacking := [problem for problem in problems if problem not in named]:
        raise RecordError(f"lock: items.{task}.clusters: lacks {lacking[0]}")
    return tuple(named[problem] for problem in problems)


def references(
    pairing: Pairing,
    arms: Mapping[tuple[str, ...], Lanes],
    budgets: Sequence[str],
    problems: list[str],
    memory: str = "slots",
) -> tuple[list[Reference], list[str]]:
    """Return the subject at its budget and the comparator at each of `budgets`, on the problems that all of
    them finished with every seed; and these problems. arms: from `Study.by_arm`. memory: the registered
    measure.
    """
    place = pairing.model, pairing.task
    lanes = [arms[*place, pairing.budget, pairing.subject]]
    lanes += [arms[*place, budget, pairing.against] for budget in budgets]
    tables = [[by_problem(arm, "correct", problems), held_by(arm, memory, problems)] for arm in lanes]
    whole = ~np.isnan(tables).any(axis=(0, 1, 3))
    finished = [problems[place] for place in np.flatnonzero(whole)]
    return [Reference(*(part[whole] for part in table)) for table in tables], finished


def held_by(arm: Lanes, memory: str, problems: list[str]) -> NDArray[np.float64]:
    """Return the registered memory of lanes, [problem, seed]."""
    found: NDArray[np.float64] = np.sum(
        [by_problem(arm, column, problems) for column in MEMORY[memory]], axis=0
    )
    return found


def by_problem(arm: Lanes, column: str, problems: list[str]) -> NDArray[np.float64]:
    """Return a column as [problem, seed], seeds sorted. pandas' pivot is much slower."""
    seeds, seed = np.unique(np.asarray(arm["seed"]), return_inverse=True)
    row = {problem: number for number, problem in enumerate(problems)}
    table = np.full((len(problems), len(seeds)), np.nan)
    table[[row[problem] for problem in np.asarray(arm["problem"])], seed] = np.asarray(arm[column])
    return table


def verdict(folder: Path) -> dict[str, Any]:
    """Return the stored judgement of FOLDER. Raises RecordError without a verdict: nothing is derived from
    held-out records while a study runs.
    """
    plain_files.refuse_other(Path(folder))
    if not (Path(folder) / "verdict.json").exists():
        raise RecordError(f"{folder}: has no verdict; run: kv-prereg confirm {folder}")
    judged: dict[str, Any] = document(Path(folder) / "verdict.json")[1]["judged"]
    return judged
