"""Pairs of arms on the same problems, after the registered rule for lanes without a grade."""

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.judgement.judging_rules import is_judged_as_shipped
from analysis.judgement.study_table import NOT_RUN, Study
from analysis.judgement.untrusted_files import RecordError
from analysis.stats import resampled_units
from analysis.stats.memory_matching import Reference
from protocol.formats.vocabulary import FULL, READS

# The lanes of one arm in one cell, by column.
Lanes: TypeAlias = pd.DataFrame | Mapping[str, NDArray[Any]]
MISSING_RULES = ("inconclusive", "wrong")
MILLION = 10**6
# The columns whose sum is a lane's memory in studies that ship, by the registered `memory`; locks without it
# mean slots. Windows of sliding layers, equal in all arms, are left out: they would make different caches look
# similar. Bytes include the room that is reserved for tokens to come.
MEMORY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "slots": ("mean_slots",),
        "bytes": ("evictable_bytes",),
        "total": ("evictable_bytes", "state_bytes"),
        READS: ("reads",),
    }
)


class Pairing(NamedTuple):
    """Two arms on the problems that both have graded with every seed; axes [problem, seed]."""

    model: str
    task: str
    budget: str
    subject: str
    against: str
    problems: tuple[str, ...]
    subject_correct: NDArray[np.float64]  # 1.0 for correct, else 0.0; or a score between them
    comparator_correct: NDArray[np.float64]
    subject_memory: NDArray[np.float64]  # NaN for a failed lane that counts as not correct
    comparator_memory: NDArray[np.float64]
    full: bool = False  # the comparator is the full cache; memory is unequal on purpose
    clusters: tuple[str, ...] | None = None  # of each problem; None for a task without clusters

    @property
    def difference(self) -> NDArray[np.float64]:
        return self.subject_correct - self.comparator_correct

    @property
    def units(self) -> int:
        """The number of resampling units: clusters if there are any, else problems."""
        return resampled_units.count_units(self.clusters, len(self.subject_correct))

    @property
    def is_countable(self) -> bool:
        """Whether answers are right or wrong and problems independent: no scores and no clusters."""
        return self.units == len(self.subject_correct) and not self.has_scores

    @property
    def has_scores(self) -> bool:
        values = np.stack([self.subject_correct, self.comparator_correct])
        return bool(((values != 0) & (values != 1)).any())

    @property
    def net(self) -> int | Fraction:
        """The exact sum of the differences; scores have six decimals."""
        total = float(self.difference.sum())
        return Fraction(round(total * MILLION), MILLION) if self.has_scores else round(total)

    def measured_memory(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the memory of both arms on the problems with all lanes measured, in the registered unit."""
        is_measured = ~np.isnan([self.subject_memory, self.comparator_memory]).any(axis=(0, 2))
        return self.subject_memory[is_measured], self.comparator_memory[is_measured]


class GradedStudy(NamedTuple):
    study: Study
    decisive: pd.DataFrame  # the lanes without a grade that make the verdict INCONCLUSIVE


def apply_missing_rule(study: Study) -> GradedStudy:
    """Apply `decision.missing` to lanes without a grade. Raises RecordError for an unknown rule."""
    rule = study.lock["protocol"]["content"]["decision"]["missing"]
    if rule not in MISSING_RULES:
        raise RecordError(f"decision.missing: {rule!r} is unknown; write {' or '.join(MISSING_RULES)}")
    missing = study.missing
    if rule == "inconclusive":
        return GradedStudy(study, missing)
    not_run = missing["state"] == NOT_RUN
    wrong = study.lanes.index.isin(missing.index[~not_run])
    lanes = study.lanes.assign(correct=study.lanes["correct"].mask(wrong, 0.0))
    return GradedStudy(study._replace(lanes=lanes), missing[not_run])


def pair_arms(study: Study, sides: Sequence[tuple[str, str]]) -> list[Pairing]:
    """Return all pairs of arms by models, tasks, budgets, arm pairs. A comparator that never evicts is the
    same at every budget. Raises RecordError for an arm that is not in the grid there.
    """
    content = study.lock["protocol"]["content"]
    arms = study.columns_by_arm()

    def pair(model: str, task: str, budget: str, side: tuple[str, str]) -> Pairing:
        full = (model, task, budget, side[1]) not in arms
        return pair_cells(arms, study.lock, (model, task, budget, side[0]), (FULL if full else budget, side[1]))

    tasks = [task["name"] for task in content["tasks"]]
    return [pair(*cell) for cell in itertools.product(content["models"], tasks, content["budgets"], sides)]


def pair_cells(
    arms: Mapping[tuple[str, ...], Lanes], lock: Mapping[str, Any], cell: tuple[str, ...], other: tuple[str, str]
) -> Pairing:
    """Return the pair of the arm in `cell` (model, task, budget, arm) and that in `other` (budget, arm). Raises
    RecordError if the grid lacks either.
    """
    model, task, budget, subject = cell
    sides = cell, (model, task, *other)
    if any(side not in arms for side in sides):
        raise RecordError(f"lock: grid: {model} {task} {budget} lacks {subject} or {other[1]}")
    problems = lock["items"][task]["confirm"]
    correct = [problem_table(arms[side], "correct", problems) for side in sides]
    memory = [lane_memory(arms[side], lock, model, side[3], problems) for side in sides]
    is_complete = ~np.isnan(correct).any(axis=(0, 2))
    paired = tuple(problems[position] for position in np.flatnonzero(is_complete))
    own, others, own_memory, other_memory = (values[is_complete] for values in (*correct, *memory))
    return Pairing(
        model,
        task,
        budget,
        subject,
        other[1],
        paired,
        own,
        others,
        own_memory,
        other_memory,
        full=other[0] == FULL,
        clusters=problem_clusters(lock, task, paired),
    )


def problem_clusters(lock: Mapping[str, Any], task: str, problems: Sequence[str]) -> tuple[str, ...] | None:
    """Return the cluster of each problem, None for a task without. Raises RecordError if one is missing."""
    if (named := lock["items"][task].get("clusters")) is None:
        return None
    if lacking := [problem for problem in problems if problem not in named]:
        raise RecordError(f"lock: items.{task}.clusters: lacks {lacking[0]}")
    return tuple(named[problem] for problem in problems)


def reference_tables(
    pairing: Pairing,
    arms: Mapping[tuple[str, ...], Lanes],
    budgets: Sequence[str],
    problems: list[str],
    lock: Mapping[str, Any],
) -> tuple[list[Reference], list[str]]:
    """Return the subject at its budget and the comparator at each of `budgets`, on the problems that all of
    them finished with every seed; and these problems. arms: from `Study.by_arm`.
    """
    cells = [(pairing.budget, pairing.subject), *((budget, pairing.against) for budget in budgets)]
    tables = []
    for budget, arm in cells:
        lanes = arms[pairing.model, pairing.task, budget, arm]
        memory = lane_memory(lanes, lock, pairing.model, arm, problems)
        tables.append([problem_table(lanes, "correct", problems), memory])
    is_finished = ~np.isnan(tables).any(axis=(0, 1, 3))
    finished = [problems[position] for position in np.flatnonzero(is_finished)]
    return [Reference(*(part[is_finished] for part in table)) for table in tables], finished


def lane_memory(
    lanes: Lanes, lock: Mapping[str, Any], model: str, arm: str, problems: list[str]
) -> NDArray[np.float64]:
    """Return the registered memory of the lanes of an arm, [problem, seed]: means over the generation.

    Bytes are those of the slots held, by the size of a slot in the lock, and not the room reserved for tokens to come:
    a schedule reserves for its largest budget. Locks without sizes have slots of one size, so that slots replace bytes.
    """
    counts = lock["protocol"]["content"]["decision"].get("memory", "slots")
    columns, size = MEMORY[counts], None
    if counts in ("bytes", "total") and not is_judged_as_shipped(lock):
        size = (lock.get("slot_bytes") or {}).get(model)
        if size is not None or counts == "bytes":
            columns = ("mean_slots", *columns[1:])
    tables = [problem_table(lanes, column, problems) for column in columns]
    if size is not None:
        sweep = lock["protocol"]["content"].get("sweep", {})
        # The winner of a sweep counts as the candidate with the largest slots: it never seems to hold less than it did.
        stored_as = sweep["candidates"] if arm == sweep.get("name") else [arm]
        tables[0] = np.max([_held_bytes(tables[0], size, name) for name in stored_as], axis=0)
    total: NDArray[np.float64] = np.sum(tables, axis=0)
    return total


def _held_bytes(slots: NDArray[np.float64], size: Mapping[str, Any], arm: str) -> NDArray[np.float64]:
    """Return the bytes that lanes with so many mean slots hold, and those that they take besides. size: of a model."""
    facts = size["arms"][arm]
    held: NDArray[np.float64] = slots * size["heads"] * facts["bytes"] + size["heads"] * facts.get("recent", 0)
    return held


def problem_table(arm: Lanes, column: str, problems: list[str]) -> NDArray[np.float64]:
    """Return a column as [problem, seed], seeds sorted. pandas' pivot is much slower."""
    seeds, seed = np.unique(np.asarray(arm["seed"]), return_inverse=True)
    row = {problem: number for number, problem in enumerate(problems)}
    table = np.full((len(problems), len(seeds)), np.nan)
    table[[row[problem] for problem in np.asarray(arm["problem"])], seed] = np.asarray(arm[column])
    return table
