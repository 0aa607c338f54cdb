"""Simulated finished studies, in memory, of the planned size and with known results."""

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.rules import full_cache
from analysis.rules.gates import Ended, Outcome, PlannedContrast, Truth, Vacuous
from analysis.rules.rule import FULL, against_full, sides
from analysis.studies.study_files import LANE, MEASURED, NOT_RUN, NOTED, Study

__all__ = ["Plan", "family", "study"]

SLOTS = 1000.0  # slots of every arm unless its memory is unmatched
WHOLE = 2000.0  # slots of the full cache, so that the curve has a slope
BEYOND = 1.01  # how far unmatched caches exceed the registered tolerance
# state and grade in the record of a lane without a grade
ENDS = MappingProxyType({"not run": (NOT_RUN, None), "failed": ("failed", None), "no grade": ("ok", "error")})


class Plan(NamedTuple):
    """A registration before it ran: the parts of its lock that the judge reads."""

    content: Mapping[str, Any]  # content of the protocol
    grid: Sequence[Sequence[Any]]  # model, task, budget, arm, seed
    items: Mapping[str, Mapping[str, Any]]


def family(plan: Plan) -> list[PlannedContrast]:
    """Return the contrasts in the judge's order: by models, tasks, budgets, arm pairs."""
    content = plan.content
    tasks = [task["name"] for task in content["tasks"]]
    every = itertools.product(content["models"], tasks, content["budgets"], sides(content["decision"]))
    return [
        PlannedContrast(model, task, budget, other, len(plan.items[task]["confirm"]), own)
        for model, task, budget, (own, other) in every
    ]


def study(plan: Plan, truth: Truth) -> Study:
    """Return the study whose records show `scenario`. Its protocol omits everything outside the rule, and its
    lanes omit arms outside the family except the full cache, which is correct in as many lanes as the gate
    requires. Raises Vacuous for a gate that no number of answers passes.

    Contrasts of one (model, task, budget) share the subject's answers: it is wrong in as many problems as the
    largest `lost` among them, and no other contrast gains there. Against the full cache, contrasts of one
    (model, task) share its answers: it is wrong in as many problems as the largest `gained`, and the gate is
    omitted unless the full cache is `unable`, since that many wins would make it fail.
    """
    decision = plan.content["decision"]
    outside = {"sweep", "beside", "memory"} | (set() if _gated(plan, truth) else {"gate"})
    content = {key: value for key, value in plan.content.items() if key not in outside}
    content["decision"] = {key: value for key, value in decision.items() if key not in outside}
    named = set(itertools.chain(*sides(decision)))
    grid = [cell for cell in plan.grid if cell[2] == FULL or cell[3] in named]
    cells = _Cells(plan, truth)
    tables = [cells.table(*cell) for cell in grid]
    lanes = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    lock = {
        "name": "synthetic",
        "protocol": {"content": content},
        "grid": grid,
        "items": plan.items,
        "data": {},
    }
    # Object columns: pandas' string columns are several times slower to read.
    columns = {name: pd.Series(values, dtype=values.dtype) for name, values in lanes.items()}
    return Study("0" * 64, lock, pd.DataFrame(columns))


Here: TypeAlias = Mapping[int, PlannedContrast]  # the contrasts of a cell, by their index in the family
Answers: TypeAlias = NDArray[np.bool_]  # [problem]


def _gated(plan: Plan, truth: Truth) -> bool:
    """Return whether the full cache's answers follow the gate. If it is a comparator, its answers follow the
    contrasts instead, and the gate is tested separately.
    """
    return "gate" in plan.content and (truth.unable is not None or not against_full(plan.content["decision"]))


class _Cells:
    """Builds the cells of one simulated study."""

    def __init__(self, plan: Plan, truth: Truth) -> None:
        self.plan, self.truth = plan, truth
        self.decision, self.seeds = plan.content["decision"], plan.content["seeds"]
        self.apart = 1 + float(self.decision["cache_tolerance"])
        self.full = against_full(self.decision)
        self.here: dict[tuple[str, ...], dict[int, PlannedContrast]] = {}
        for index, one in enumerate(family(plan)):
            for budget in (one.budget, FULL):
                self.here.setdefault((one.model, one.task, budget), {})[index] = one

    def table(self, model: str, task: str, budget: str, arm: str, seed: int) -> dict[str, NDArray[Any]]:
        """Return the lanes of one cell, with the columns of `Study.lanes`."""
        problems = np.array(self.plan.items[task]["confirm"], dtype=object)
        here = self.here[model, task, budget]
        whole, cut = self._full(model, task, seed, len(problems))
        if budget == FULL:
            correct, slots = whole, WHOLE
        elif self.full:
            correct, slots = self._beside_full(arm, here, whole)
        else:
            correct, slots = self._results(arm, here, len(problems))
        stop = np.full(len(problems), "eos", dtype=object)
        stop[cut & (budget == FULL)] = "length"
        state, grade = (np.full(len(problems), word, dtype=object) for word in ("ok", ""))
        grade[:] = np.where(correct, "correct", "wrong")
        graded = correct.astype(np.float64)
        measured = {name: np.ones(len(problems)) for name in MEASURED}
        for name in ("mean_slots", "peak_slots", "mean_bytes", "evictable_bytes"):
            measured[name] = np.full(len(problems), slots)
        measured["state_bytes"] = np.zeros(len(problems))
        ended = self.truth.ended
        if ended is not None and self._ends(arm, here, ended):
            out = np.arange(len(problems)) * len(self.seeds) + self.seeds.index(seed) < ended.lanes
            graded[out] = math.nan
            state[out], grade[out] = ENDS[ended.how]
            if ended.how != "no grade":
                measured = {name: np.where(out, math.nan, values) for name, values in measured.items()}
        key = [np.full(len(problems), part, dtype=object) for part in (model, task, budget, arm, seed)]
        noted = {name: np.full(len(problems), math.nan) for name in NOTED}
        row = {"state": state, "grade": grade, "correct": graded, "stop": stop} | noted
        return dict(zip(LANE, [*key, problems], strict=True)) | row | measured

    def _results(self, arm: str, here: Here, problems: int) -> tuple[Answers, float]:
        """Return which problems the arm solves, and its slots. contrasts: of its cell."""
        outcomes = {index: self.truth.outcomes.get(index, Outcome()) for index in here}
        ahead = problems - max((outcome.lost for outcome in outcomes.values()), default=0)
        number, own = np.arange(problems), [index for index, one in here.items() if one.against == arm]
        if not own:
            return (number < ahead) | (arm != self.decision["subject"]), SLOTS
        gained, lost = outcomes[own[0]]
        correct = np.where(number < ahead, number >= gained, number < ahead + lost)
        if own[0] in self.truth.fuller:
            return correct, SLOTS / self.apart
        return correct, SLOTS * (self.apart * BEYOND if own[0] in self.truth.unmatched else 1.0)

    def _beside_full(self, arm: str, here: Here, whole: Answers) -> tuple[Answers, float]:
        """Return the same for a study against the full cache. full_correct: which problems the full cache
        solves.
        """
        number, own = np.arange(len(whole)), [index for index, one in here.items() if one.subject == arm]
        if not own:
            return number >= 0, SLOTS
        gained, lost = self.truth.outcomes.get(own[0], Outcome())
        correct = (number < gained) | (whole & (number < len(whole) - lost))
        return correct, WHOLE / self.apart * BEYOND if own[0] in self.truth.unmatched else SLOTS

    def _full(self, model: str, task: str, seed: int, problems: int) -> tuple[Answers, Answers]:
        """Return which problems the full cache solves with this seed, and which answers are truncated."""
        number = np.arange(problems)
        if _gated(self.plan, self.truth):
            lane = number * len(self.seeds) + self.seeds.index(seed)
            right, cut = self._enough(model, task, problems * len(self.seeds))
            return lane < right, lane >= cut
        here = self.here[model, task, FULL] if self.full else ()
        behind = max((self.truth.outcomes.get(index, Outcome()).gained for index in here), default=0)
        return number >= behind, number < 0

    def _enough(self, model: str, task: str, lanes: int) -> tuple[int, int]:
        """Return how many of the full cache's first lanes are correct, and the first truncated lane."""
        asked = full_cache.needed(self.plan.content["gate"], model, task)
        aimed = Fraction(1) if asked.published is None else asked.published
        low, high = math.ceil(asked.low * lanes), math.floor(asked.high * lanes)
        if low > high:
            raise Vacuous(
                f"gate: {model} {task}: no number of {lanes} answers passes ({asked.words}); widen the margin"
            )
        right, cut = min(max(round(aimed * lanes), low), high), lanes
        if self.truth.unable is not None and self.truth.unable[:2] == (model, task):
            if self.truth.unable.how == "wrong":
                return 0, cut
            cut = lanes - int(asked.truncated * lanes) - 1
        return min(right, cut), cut

    def _ends(self, arm: str, here: Here, ended: Ended) -> bool:
        if ended.contrast not in here:
            return False
        planned = here[ended.contrast]
        return arm == (planned.subject if ended.subject else planned.against)
