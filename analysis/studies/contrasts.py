"""The two arms of a contrast on the same problems, as the rule for lanes without a grade leaves them."""

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

# Those of one arm in one cell, by column.
Lanes: TypeAlias = pd.DataFrame | Mapping[str, NDArray[Any]]
MISSING = ("inconclusive", "wrong")
MILLION = 10**6
# The columns of a lane whose sum is its memory, by the registered `memory`; locks without it mean slots. The
# windows of sliding layers, the same in every arm, are left out: they would make unlike caches look alike.
MEMORY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"slots": ("mean_slots",), "bytes": ("evictable_bytes",), "total": ("evictable_bytes", "state_bytes")}
)


class Pairing(NamedTuple):
    """Two arms on the problems that both have a count for with every seed. Axes [problem, seed]."""

    model: str
    task: str
    budget: str
    subject: str
    against: str
    problems: tuple[str, ...]
    own: NDArray[np.float64]  # 1.0 correct, else 0.0; or a score between them
    other: NDArray[np.float64]
    own_memory: NDArray[np.float64]  # NaN for a lane that failed and counts as not correct
    other_memory: NDArray[np.float64]
    full: bool = False  # the comparator never evicts, so that memory is unequal on purpose
    clusters: tuple[str, ...] | None = None  # of each problem; None for a task without

    @property
    def difference(self) -> NDArray[np.float64]:
        return self.own - self.other

    @property
    def units(self) -> int:
        """What is resampled: clusters where there are some, else problems."""
        return resampled_units.number(self.clusters, len(self.own))

    @property
    def counts(self) -> bool:
        """Whether its answers are right or wrong, each problem for itself, and not scores or clusters."""
        return self.clusters is None and not self.scored

    @property
    def scored(self) -> bool:
        values = np.stack([self.own, self.other])
        return bool(((values != 0) & (values != 1)).any())

    @property
    def net(self) -> int | Fraction:
        """Exact: scores have six places."""
        total = float(self.difference.sum())
        return Fraction(round(total * MILLION), MILLION) if self.scored else round(total)

    def memory(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of both arms, on the problems whose every lane was measured; in slots or bytes, as registered."""
        whole = ~np.isnan([self.own_memory, self.other_memory]).any(axis=(0, 2))
        return self.own_memory[whole], self.other_memory[whole]


class Counted(NamedTuple):
    study: Study
    decisive: pd.DataFrame  # the lanes without a grade that leave the question open


def counted(study: Study) -> Counted:
    """What `decision.missing` makes of lanes without a grade. Raises RecordError for an unknown rule."""
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
    """The study with every lane of a comparator that ended without a grade correct, and those of other arms
    not: what the answers that nobody has could at most take from the subject.
    """
    missing = study.missing
    ended = study.lanes.index.isin(missing.index[missing["state"] != NOT_RUN])
    against = study.lanes["arm"].isin(study.lock["protocol"]["content"]["decision"]["against"])
    correct = study.lanes["correct"].mask(ended & against, 1.0).mask(ended & ~against, 0.0)
    return study._replace(lanes=study.lanes.assign(correct=correct))


def pairings(study: Study, sides: Sequence[tuple[str, str]]) -> list[Pairing]:
    """Every (subject, comparator) by models, tasks, budgets, sides. A comparator that never evicts is the
    same at every budget. Raises RecordError for an arm that the grid does not have there.
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
    """Of problems of a task; None where it has none. Raises RecordError for a problem without one."""
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
    """The subject at its budget, then the comparator at each of `budgets`, on the problems that every one of
    them finished with every seed; and these problems. arms: as `Study.by_arm` gives them. memory: what was
    registered as that.
    """
    place = pairing.model, pairing.task
    lanes = [arms[*place, pairing.budget, pairing.subject]]
    lanes += [arms[*place, budget, pairing.against] for budget in budgets]
    tables = [[by_problem(arm, "correct", problems), held_by(arm, memory, problems)] for arm in lanes]
    whole = ~np.isnan(tables).any(axis=(0, 1, 3))
    finished = [problems[place] for place in np.flatnonzero(whole)]
    return [Reference(*(part[whole] for part in table)) for table in tables], finished


def held_by(arm: Lanes, memory: str, problems: list[str]) -> NDArray[np.float64]:
    """[problem, seed], what lanes held of what is registered as `memory`."""
    found: NDArray[np.float64] = np.sum(
        [by_problem(arm, column, problems) for column in MEMORY[memory]], axis=0
    )
    return found


def by_problem(arm: Lanes, column: str, problems: list[str]) -> NDArray[np.float64]:
    """[problem, seed], problems in the given order and seeds in theirs. pandas' pivot is much slower."""
    seeds, seed = np.unique(np.asarray(arm["seed"]), return_inverse=True)
    row = {problem: number for number, problem in enumerate(problems)}
    table = np.full((len(problems), len(seeds)), np.nan)
    table[[row[problem] for problem in np.asarray(arm["problem"])], seed] = np.asarray(arm[column])
    return table


def verdict(folder: Path) -> dict[str, Any]:
    """What was judged of FOLDER. Raises RecordError without a verdict: nothing is derived from held-out
    records while a study runs.
    """
    plain_files.refuse_other(Path(folder))
    if not (Path(folder) / "verdict.json").exists():
        raise RecordError(f"{folder}: has no verdict; run: kv-prereg confirm {folder}")
    judged: dict[str, Any] = document(Path(folder) / "verdict.json")[1]["judged"]
    return judged
