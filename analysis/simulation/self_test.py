"""The self-test of a rule before it is locked: it must reach every verdict, and lose it when it should.

The judge is run on simulated studies of the planned size whose verdict is known, and each verdict has to have its
sentences. A rule that cannot confirm has no power; one that cannot refute cannot fail; and one that still confirms
when it must not (caches do not match, one win is missing, a lane has no grade, ...) lacks that check.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis import rules
from analysis.judgement.judgement import judge_study
from analysis.rules import verdict_line
from analysis.rules.rule import is_against_full, measures_memory
from analysis.rules.self_test_cases import EVEN, Case, FailedGate, Outcome, PlannedContrast, Scenario, Vacuous
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.simulation import margin_tests
from analysis.simulation.simulated_studies import StudyPlan, planned_contrasts, simulate_study
from analysis.stats import above_chance, multiplicity, power
from analysis.stats.memory_charge import MIN_PRICE
from analysis.stats.methods import draws_and_seed

CLEAR = 4.0  # standard errors of a drawn p; the judge draws by the seed of the protocol, and may draw another p
MAX_DISCORDANT = 64  # discordant problems tried for a p close to a level; 2^-64 is below any level


def run_self_test(plan: StudyPlan) -> dict[str, Any]:
    """Return the rule's verdict in each simulated study: `verdicts` and `gates`, by case name.

    The method draws as registered, at the planned number of problems and seeds. A case that cannot be
    distinguished in this family or at this size is left out, such as a contrast that is worse at the
    uncorrected level if every contrast has to be won. Raises Vacuous, which names the verdict that cannot be
    reached or the case that gets a wrong verdict.
    """
    rule = plan.content["decision"]["rule"]
    cases = rules.RULES[rule].cases(_PlannedFamily(plan))
    if not measures_memory(plan.content["decision"]):
        cases = {name: case for name, case in cases.items() if not case.scenario.unmatched}
    cases |= _gate_cases(plan, cases) | _memory_cases(plan, cases) | _floor_cases(plan)
    verdict_by_case: dict[str, str] = {}
    verdicts = list(cases)[:3]
    for name, case in cases.items():
        judged = _judge(plan, case.scenario)
        verdict_by_case[name] = verdict_line.rule_verdict(judged)  # of a screening too
        if verdict_by_case[name] != case.expected:
            raise Vacuous(f"{rule}: {name}: says {verdict_by_case[name]}, not {case.expected}")
        if name in verdicts:
            _require_sentences(judged, case.expected, plan.content["decision"])
    return {
        "verdicts": {name: verdict_by_case[name] for name in verdicts},
        "gates": {name: verdict for name, verdict in verdict_by_case.items() if name not in verdicts},
    }


def _gate_cases(plan: StudyPlan, cases: Mapping[str, Case]) -> dict[str, Case]:
    """Return studies that would be decided if the full cache passed its gate; none without a gate."""
    if "gate" not in plan.content:
        return {}
    models, tasks = plan.content["models"], [task["name"] for task in plan.content["tasks"]]
    first, last = (models[0], tasks[0]), (models[-1], tasks[-1])
    scenarios = {case.expected: case.scenario for case in reversed(list(cases.values()))}
    return {
        "the full cache cannot do the task": Case(
            scenarios[CONFIRMED]._replace(unable=FailedGate(*last, "wrong")), INCONCLUSIVE
        ),
        "the full cache cannot do the task, and contrasts are lost": Case(
            scenarios[REFUTED]._replace(unable=FailedGate(*first, "wrong")), INCONCLUSIVE
        ),
        "the answers of the full cache are cut": Case(
            scenarios[CONFIRMED]._replace(unable=FailedGate(*first, "cut")), INCONCLUSIVE
        ),
    }


def _memory_cases(plan: StudyPlan, cases: Mapping[str, Case]) -> dict[str, Case]:
    """Return studies that would be confirmed if the subject did not have the largest excess of memory that
    the tolerance allows: a win, or a margin, that this memory may explain at the highest price per slot.
    """
    decision, planned = plan.content["decision"], planned_contrasts(plan)
    if is_against_full(decision) or not measures_memory(decision):  # memory is unequal on purpose, or unknown
        return {}
    max_purchase = float(decision["cache_tolerance"]) * MIN_PRICE

    def small_wins(scenario: Scenario) -> frozenset[int]:
        nets = {index: (outcome.gained - outcome.lost) for index, outcome in scenario.outcomes.items()}
        return frozenset(index for index, net in nets.items() if 0 < net < max_purchase * planned[index].problems)

    all_indices = frozenset(range(len(planned))) if float(decision.get("margin", 1)) < max_purchase else None
    memory_cases = {
        f"{name}, with more memory": Case(case.scenario._replace(fuller=small_wins(case.scenario)), INCONCLUSIVE)
        for name, case in cases.items()
        if case.expected == CONFIRMED and small_wins(case.scenario)
    }
    if all_indices is not None and EVEN in cases:
        memory_cases[f"{EVEN}, with more memory"] = Case(Scenario({}, fuller=all_indices), INCONCLUSIVE)
    return memory_cases


def _floor_cases(plan: StudyPlan) -> dict[str, Case]:
    """Return a study in which the subject wins all that it may over comparators that answer nothing: of a rule with a
    margin everything, of any other as much as may be a guess.
    """
    if plan.judging == 1:
        return {}
    wins = {index: Outcome(gained=contrast.problems) for index, contrast in enumerate(planned_contrasts(plan))}
    if "margin" in plan.content["decision"]:
        return {"no comparator does better than a guess": Case(Scenario(wins), INCONCLUSIVE)}
    return {"no arm does better than a guess": Case(Scenario(wins, guessing=True), INCONCLUSIVE)}


def _judge(plan: StudyPlan, scenario: Scenario) -> dict[str, Any]:
    try:
        return judge_study(simulate_study(plan, scenario))
    except ValueError as refused:
        raise Vacuous(str(refused)) from None


def _require_sentences(judged: dict[str, Any], verdict: str, decision: Mapping[str, Any]) -> None:
    """Raise Vacuous if a sentence about this verdict cannot be composed: it would fail after the study has run."""
    text = rules.RULES[judged["rule"]].text
    sentences: dict[str, Callable[[], object]] = {
        "answer": lambda: text.answer(judged, verdict, decision),
        "proves": lambda: text.proves(judged | {"verdict": verdict}),
        "limits": lambda: text.limits(judged),
        "line": lambda: text.line(judged),
    }
    for name, compose in sentences.items():
        try:
            compose()
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            raise Vacuous(
                f"{judged['rule']}: its RuleText.{name} of a study that is {verdict} fails: {type(error).__name__}: "
                f"{error} ({Path(place.filename).name}:{place.lineno})"
            ) from error


class _PlannedFamily:
    """The `self_test_cases.PlannedFamily` of a plan."""

    def __init__(self, plan: StudyPlan) -> None:
        self.judging, self.chance = plan.judging, plan.chance
        self.decision = plan.content["decision"]
        self.seeds = len(plan.content["seeds"])
        self.draws = draws_and_seed(self.decision)[0]
        self.contrasts = planned_contrasts(plan)
        self.alpha = float(self.decision["alpha"])
        self.corrected = multiplicity.corrected_alpha(self.alpha, len(self.contrasts))

    def model_indices(self, model: str) -> list[int]:
        return [index for index, contrast in enumerate(self.contrasts) if contrast.model == model]

    def largest_win(self, index: int) -> Outcome:
        return Outcome(gained=self._largest_gain(self.contrasts[index]))

    def _largest_gain(self, contrast: PlannedContrast) -> int:
        """Return on how many problems a comparator may be wrong that does better than a guess, where it has to."""
        if self.judging == 1:
            return contrast.problems
        has_wins = "margin" not in self.decision
        bar = float(self.chance.get(contrast.task, 0)) + float(self.decision.get("margin") or 0)
        needed = above_chance.fewest_above(contrast.problems, bar, self.alpha / 2 if has_wins else self.alpha)
        if needed > contrast.problems:
            raise Vacuous(
                f"{self.decision['rule']}: cannot give {CONFIRMED}: with {contrast.problems} problems of "
                f"{contrast.task}, no number of correct answers is shown to be above {bar:g}, the share "
                "that a guess gets right; plan more problems"
            )
        return contrast.problems if has_wins else contrast.problems - needed

    def smallest_p(self, index: int) -> float:
        contrast = self.contrasts[index]
        return float(self._p(contrast, [self.largest_win(index)], self.draws)[0]) if contrast.problems > 1 else 1.0

    def win_between(self, index: int, low: float, high: float) -> Outcome | None:
        contrast, middle, margin = self.contrasts[index], np.sqrt(low * high), (high / low) ** 0.25
        clearances: dict[Outcome, float] = {}
        for lost in range(4):
            max_wins = min(contrast.problems - 1, self._largest_gain(contrast), MAX_DISCORDANT) - lost
            wins = [Outcome(gained, lost) for gained in range(lost + 1, max_wins + 1)]
            if not wins:
                break
            p = self._p(contrast, wins, self.draws)
            nearest = int(np.argmin(np.abs(np.log(p / middle))))
            if middle / margin < p[nearest] < middle * margin:
                clearances[wins[nearest]] = self._clearance(contrast, wins[nearest], low, high)
                if clearances[wins[nearest]] >= CLEAR:
                    break
        return max(clearances, key=lambda win: min(clearances[win], CLEAR), default=None)

    def _clearance(self, contrast: PlannedContrast, win: Outcome, low: float, high: float) -> float:
        """Return how many standard errors of a drawn p lie between the p of a win and the nearer of two levels."""
        p, drawn_p = (float(self._p(contrast, [win], draws)[0]) for draws in (None, self.draws))
        if p == drawn_p:  # the method draws nothing, or all signs
            return CLEAR
        return min(p - low, high - p) / (2 * float(np.sqrt(p / 2 * (1 - p / 2) / self.draws)))

    def equal_answers_p(self, margin: float) -> tuple[int, float]:
        least = min(contrast.problems for contrast in self.contrasts)
        tests = margin_tests.margin_p_values(self.decision["method"], np.array([[0, least, 0]]), margin)
        return least, float(tests.worse[0])

    def _p(self, contrast: PlannedContrast, wins: Sequence[Outcome], draws: int | None) -> NDArray[np.float64]:
        """Return the p of each win. draws: None for the limit of p for many draws."""
        counts = np.array([[lost, contrast.problems - gained - lost, gained] for gained, lost in wins])
        p: NDArray[np.float64] = power.p_values(self.decision["method"], counts, draws, np.random.default_rng(0))
        return p
