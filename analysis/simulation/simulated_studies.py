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

from analysis.judgement.study_table import LANE_COLUMNS, MEASURED_COLUMNS, NOT_RUN, OPTIONAL_COLUMNS, Study
from analysis.rules import full_cache_gate
from analysis.rules.rule import arm_pairs, is_against_full
from analysis.rules.self_test_cases import EndedLanes, Outcome, PlannedContrast, Scenario, Vacuous
from analysis.stats import above_chance
from protocol.formats.vocabulary import CURRENT_JUDGING, FULL, READS

SLOTS = 1000.0  # slots of every arm unless its memory is unmatched
FULL_SLOTS = 2000.0  # slots of the full cache, so that the curve has a slope
MISMATCH_FACTOR = 1.01  # how far unmatched caches of the subject exceed the registered tolerance
# state and grade in the record of a lane without a grade
ENDED_STATES = MappingProxyType({"not run": (NOT_RUN, None), "failed": ("failed", None), "no grade": ("ok", "error")})


class StudyPlan(NamedTuple):
    """A registration before it ran: the parts of its lock that the judge reads."""

    content: Mapping[str, Any]  # content of the protocol
    grid: Sequence[Sequence[Any]]  # model, task, budget, arm, seed
    items: Mapping[str, Mapping[str, Any]]
    judging: int = CURRENT_JUDGING  # the field of the lock
    chance: Mapping[str, str] = MappingProxyType({})  # the field of the lock


def planned_contrasts(plan: StudyPlan) -> list[PlannedContrast]:
    """Return the contrasts in the judge's order: by models, tasks, budgets, arm pairs."""
    content = plan.content
    tasks = [task["name"] for task in content["tasks"]]
    combinations = itertools.product(content["models"], tasks, content["budgets"], arm_pairs(content["decision"]))
    return [
        PlannedContrast(model, task, budget, comparator, len(plan.items[task]["confirm"]), subject)
        for model, task, budget, (subject, comparator) in combinations
    ]


def simulate_study(plan: StudyPlan, scenario: Scenario) -> Study:
    """Return the study whose records show `scenario`. Its protocol omits everything outside the rule, and its
    lanes omit neighbours, and arms outside the family except the full cache, which is correct in as many lanes as
    the gate requires. Raises Vacuous for a gate that no number of answers passes.

    Contrasts of one (model, task, budget) share the subject's answers: it is wrong in as many problems as the
    largest `lost` among them, and no other contrast gains there. Against the full cache, contrasts of one
    (model, task) share its answers: it is wrong in as many problems as the largest `gained`, and the gate is
    omitted unless the full cache is `unable`, since that many wins would make it fail.
    """
    decision = plan.content["decision"]
    excluded = {"sweep", "beside", "memory", "unmatched", "neighbours"} | (
        set() if _has_passing_gate(plan, scenario) else {"gate"}
    )
    content = {key: value for key, value in plan.content.items() if key not in excluded}
    content["decision"] = {key: value for key, value in decision.items() if key not in excluded}
    compared = set(itertools.chain(*arm_pairs(decision)))
    budgets = plan.content["budgets"]
    grid = [cell for cell in plan.grid if cell[2] == FULL or (cell[2] in budgets and cell[3] in compared)]
    cells = _CellTables(plan, scenario)
    tables = [cells.table(*cell) for cell in grid]
    lanes = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    lock = {
        "name": "synthetic",
        "judging": plan.judging,
        "chance": plan.chance,
        "protocol": {"content": content},
        "grid": grid,
        "items": plan.items,
        "data": {},
    }
    # Object columns: pandas' string columns are several times slower to read.
    columns = {name: pd.Series(values, dtype=values.dtype) for name, values in lanes.items()}
    return Study("0" * 64, lock, pd.DataFrame(columns))


CellContrasts: TypeAlias = Mapping[int, PlannedContrast]  # the contrasts of a cell, by their index in the family
Answers: TypeAlias = NDArray[np.bool_]  # [problem]


def _has_passing_gate(plan: StudyPlan, scenario: Scenario) -> bool:
    """Return whether the full cache's answers follow the gate. If it is a comparator, its answers follow the
    contrasts instead, and the gate is tested separately.
    """
    return "gate" in plan.content and (scenario.unable is not None or not is_against_full(plan.content["decision"]))


class _CellTables:
    """Builds the cells of one simulated study."""

    def __init__(self, plan: StudyPlan, scenario: Scenario) -> None:
        self.plan, self.scenario = plan, scenario
        self.decision, self.seeds = plan.content["decision"], plan.content["seeds"]
        self.mismatch = 1 + float(self.decision.get("cache_tolerance", 0))
        self.is_against_full = is_against_full(self.decision)
        self.lengths: dict[tuple[str, str], float] = {}
        self.cell_contrasts: dict[tuple[str, ...], dict[int, PlannedContrast]] = {}
        for index, contrast in enumerate(planned_contrasts(plan)):
            for budget in (contrast.budget, FULL):
                self.cell_contrasts.setdefault((contrast.model, contrast.task, budget), {})[index] = contrast

    def table(self, model: str, task: str, budget: str, arm: str, seed: int) -> dict[str, NDArray[Any]]:
        """Return the lanes of one cell, with the columns of `Study.lanes`."""
        problems = np.array(self.plan.items[task]["confirm"], dtype=object)
        contrasts = self.cell_contrasts[model, task, budget]
        full_correct, cut = self._full_cache_answers(model, task, seed, len(problems))
        if budget == FULL:
            correct, slots = full_correct, FULL_SLOTS
        elif self.is_against_full:
            correct, slots = self._answers_against_full(arm, contrasts, full_correct)
        else:
            correct, slots = self._policy_answers(arm, contrasts, len(problems))
            if self.scenario.guessing:
                correct &= np.arange(len(problems)) < self._most_guessed(task, len(problems))
        stop = np.full(len(problems), "eos", dtype=object)
        stop[cut & (budget == FULL)] = "length"
        state, grade = (np.full(len(problems), word, dtype=object) for word in ("ok", ""))
        grade[:] = np.where(correct, "correct", "wrong")
        graded = correct.astype(np.float64)
        measured = {name: np.ones(len(problems)) for name in MEASURED_COLUMNS}
        for name in ("mean_slots", "peak_slots", "mean_bytes", "evictable_bytes"):
            measured[name] = np.full(len(problems), slots)
        measured["state_bytes"] = np.zeros(len(problems))
        if self.decision.get("memory") == READS:
            measured["reads"] = measured["mean_slots"]
        # No two arms give the same answers, only the same grades.
        measured["tokens"] = np.full(len(problems), self.lengths.setdefault((budget, arm), 1.0 + len(self.lengths)))
        ended = self.scenario.ended
        if ended is not None and self._has_ended_lanes(arm, contrasts, ended):
            is_ended = np.arange(len(problems)) * len(self.seeds) + self.seeds.index(seed) < ended.lanes
            graded[is_ended] = math.nan
            state[is_ended], grade[is_ended] = ENDED_STATES[ended.how]
            if ended.how != "no grade":
                measured = {name: np.where(is_ended, math.nan, values) for name, values in measured.items()}
        key = [np.full(len(problems), part, dtype=object) for part in (model, task, budget, arm, seed)]
        optional = {name: np.full(len(problems), math.nan) for name in OPTIONAL_COLUMNS}
        row = {"state": state, "grade": grade, "correct": graded, "stop": stop} | optional
        return dict(zip(LANE_COLUMNS, [*key, problems], strict=True)) | row | measured

    def _policy_answers(self, arm: str, contrasts: CellContrasts, problems: int) -> tuple[Answers, float]:
        """Return which problems the arm solves, and its slots. contrasts: of its cell."""
        outcomes = {index: self.scenario.outcomes.get(index, Outcome()) for index in contrasts}
        ahead = problems - max((outcome.lost for outcome in outcomes.values()), default=0)
        number, indices = (
            np.arange(problems),
            [index for index, contrast in contrasts.items() if contrast.against == arm],
        )
        if not indices:
            return (number < ahead) | (arm != self.decision["subject"]), SLOTS
        gained, lost = outcomes[indices[0]]
        correct = np.where(number < ahead, number >= gained, number < ahead + lost)
        if indices[0] in self.scenario.fuller:
            return correct, SLOTS / self.mismatch
        return correct, SLOTS / (self.mismatch * MISMATCH_FACTOR if indices[0] in self.scenario.unmatched else 1.0)

    def _most_guessed(self, task: str, problems: int) -> int:
        """Return on how many problems an arm may be right that is not shown to do better than a guess."""
        level = float(self.decision["alpha"]) / 2
        return above_chance.fewest_above(problems, float(self.plan.chance.get(task, 0)), level) - 1

    def _answers_against_full(self, arm: str, contrasts: CellContrasts, full_correct: Answers) -> tuple[Answers, float]:
        """Return the same for a study against the full cache. full_correct: which problems the full cache
        solves.
        """
        number, indices = (
            np.arange(len(full_correct)),
            [index for index, contrast in contrasts.items() if contrast.subject == arm],
        )
        if not indices:
            return number >= 0, SLOTS
        gained, lost = self.scenario.outcomes.get(indices[0], Outcome())
        correct = (number < gained) | (full_correct & (number < len(full_correct) - lost))
        return correct, FULL_SLOTS / self.mismatch * MISMATCH_FACTOR if indices[0] in self.scenario.unmatched else SLOTS

    def _full_cache_answers(self, model: str, task: str, seed: int, problems: int) -> tuple[Answers, Answers]:
        """Return which problems the full cache solves with this seed, and which answers are truncated."""
        number = np.arange(problems)
        if _has_passing_gate(self.plan, self.scenario):
            lane = number * len(self.seeds) + self.seeds.index(seed)
            right, cut = self._gate_lanes(model, task, problems * len(self.seeds))
            return lane < right, lane >= cut
        contrasts = self.cell_contrasts[model, task, FULL] if self.is_against_full else ()
        lost_problems = max((self.scenario.outcomes.get(index, Outcome()).gained for index in contrasts), default=0)
        return number >= lost_problems, number < 0

    def _gate_lanes(self, model: str, task: str, lanes: int) -> tuple[int, int]:
        """Return how many of the full cache's first lanes are correct, and the first truncated lane."""
        requirement = full_cache_gate.gate_requirement(self.plan.content["gate"], model, task)
        target = Fraction(1) if requirement.published is None else requirement.published
        low, high = math.ceil(requirement.low * lanes), math.floor(requirement.high * lanes)
        if low > high:
            raise Vacuous(
                f"gate: {model} {task}: no number of correct answers among {lanes} passes "
                f"({requirement.text}); widen the margin"
            )
        right, cut = min(max(round(target * lanes), low), high), lanes
        if self.scenario.unable is not None and self.scenario.unable[:2] == (model, task):
            if self.scenario.unable.how == "wrong":
                return 0, cut
            cut = lanes - int(requirement.truncated * lanes) - 1
        return min(right, cut), cut

    def _has_ended_lanes(self, arm: str, contrasts: CellContrasts, ended: EndedLanes) -> bool:
        if ended.contrast not in contrasts:
            return False
        planned = contrasts[ended.contrast]
        return arm == (planned.subject if ended.subject else planned.against)
