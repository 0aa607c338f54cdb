"""The self-test of a rule before it is locked: it must reach every verdict, and lose it when it should.

The judge is run on simulated studies of the planned size whose verdict is known. A rule that cannot confirm
has no power; one that cannot refute cannot fail; and one that still confirms when it must not (caches do not
match, one win is missing, a lane has no grade, ...) lacks that check.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis import rules
from analysis.output import headline
from analysis.rules.gates import EVEN, Gate, Outcome, PlannedContrast, Truth, Unable, Vacuous
from analysis.rules.rule import against_full
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.stats import equivalence, multiplicity, power
from analysis.stats.equal_memory import LEAST
from analysis.stats.methods import draws
from analysis.studies.judgement import judged
from analysis.trial.simulated_studies import Plan, family, study

__all__ = ["Vacuous", "tried"]

MOST = 64  # discordant problems tried for a p close to a level; 2^-64 is below any level


def tried(plan: Plan) -> dict[str, Any]:
    """Return the rule's verdict in each simulated study: `verdicts` and `gates`, by case name.

    The method draws as registered, at the planned number of problems and seeds. A case that cannot be
    distinguished in this family or at this size is left out, such as a contrast that is worse at the
    uncorrected level if every contrast has to be won. Raises Vacuous, which names the verdict that cannot be
    reached or the case that gets a wrong verdict.
    """
    rule = plan.content["decision"]["rule"]
    gates = rules.RULES[rule].gates(_Family(plan))
    gates |= _of_the_full_cache(plan, gates) | _bought(plan, gates)
    given: dict[str, str] = {}
    for name, gate in gates.items():
        given[name] = _verdict(plan, gate.truth)
        if given[name] != gate.verdict:
            raise Vacuous(f"{rule}: {name}: says {given[name]}, not {gate.verdict}")
    verdicts = list(given)[:3]
    return {
        "verdicts": {name: given[name] for name in verdicts},
        "gates": {name: word for name, word in given.items() if name not in verdicts},
    }


def _of_the_full_cache(plan: Plan, gates: Mapping[str, Gate]) -> dict[str, Gate]:
    """Return studies that would be decided if the full cache passed its gate; none without a gate."""
    if "gate" not in plan.content:
        return {}
    models, tasks = plan.content["models"], [task["name"] for task in plan.content["tasks"]]
    first, last = (models[0], tasks[0]), (models[-1], tasks[-1])
    truth = {gate.verdict: gate.truth for gate in reversed(list(gates.values()))}
    return {
        "the full cache cannot do the task": Gate(
            truth[CONFIRMED]._replace(unable=Unable(*last, "wrong")), INCONCLUSIVE
        ),
        "the full cache cannot do the task, and contrasts are lost": Gate(
            truth[REFUTED]._replace(unable=Unable(*first, "wrong")), INCONCLUSIVE
        ),
        "the answers of the full cache are cut": Gate(
            truth[CONFIRMED]._replace(unable=Unable(*first, "cut")), INCONCLUSIVE
        ),
    }


def _bought(plan: Plan, gates: Mapping[str, Gate]) -> dict[str, Gate]:
    """Return studies that would be confirmed if the subject did not have the largest excess of memory that
    the tolerance allows: a win, or a margin, that this memory may explain at the highest price per slot.
    """
    decision, planned = plan.content["decision"], family(plan)
    if against_full(decision):  # memory is unequal on purpose
        return {}
    reach = float(decision["cache_tolerance"]) * LEAST

    def small(truth: Truth) -> frozenset[int]:
        nets = {index: (one.gained - one.lost) for index, one in truth.outcomes.items()}
        return frozenset(index for index, net in nets.items() if 0 < net < reach * planned[index].problems)

    within = frozenset(range(len(planned))) if float(decision.get("margin", 1)) < reach else None
    found = {
        f"{name}, with more memory": Gate(gate.truth._replace(fuller=small(gate.truth)), INCONCLUSIVE)
        for name, gate in gates.items()
        if gate.verdict == CONFIRMED and small(gate.truth)
    }
    if within is not None and EVEN in gates:
        found[f"{EVEN}, with more memory"] = Gate(Truth({}, fuller=within), INCONCLUSIVE)
    return found


def _verdict(plan: Plan, truth: Truth) -> str:
    try:
        verdict = headline.says(judged(study(plan, truth)))  # of a screening too
    except ValueError as refused:
        raise Vacuous(str(refused)) from None
    return verdict


class _Family:
    """The `self_test_cases.PlannedFamily` of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.decision = plan.content["decision"]
        self.seeds = len(plan.content["seeds"])
        self.contrasts = family(plan)
        self.alpha = float(self.decision["alpha"])
        self.corrected = multiplicity.corrected(self.alpha, len(self.contrasts))

    def at(self, model: str) -> list[int]:
        return [index for index, contrast in enumerate(self.contrasts) if contrast.model == model]

    def whole(self, index: int) -> Outcome:
        return Outcome(gained=self.contrasts[index].problems)

    def best(self, index: int) -> float:
        contrast = self.contrasts[index]
        return float(self._p(contrast, [self.whole(index)])[0]) if contrast.problems > 1 else 1.0

    def between(self, index: int, low: float, high: float) -> Outcome | None:
        contrast, middle, margin = self.contrasts[index], np.sqrt(low * high), (high / low) ** 0.25
        for lost in range(4):
            most = min(contrast.problems - 1, MOST) - lost
            wins = [Outcome(gained, lost) for gained in range(lost + 1, most + 1)]
            if not wins:
                return None
            p = self._p(contrast, wins)
            nearest = int(np.argmin(np.abs(np.log(p / middle))))
            if middle / margin < p[nearest] < middle * margin:
                return wins[nearest]
        return None

    def equal(self, margin: float) -> tuple[int, float]:
        least = min(contrast.problems for contrast in self.contrasts)
        return least, float(equivalence.at_the_margin(np.array([[0, least, 0]]), margin)[0])

    def _p(self, contrast: PlannedContrast, wins: Sequence[Outcome]) -> NDArray[np.float64]:
        counts = np.array([[lost, contrast.problems - gained - lost, gained] for gained, lost in wins])
        times, rng = draws(self.decision)[0], np.random.default_rng(0)
        p: NDArray[np.float64] = power.p_values(self.decision["method"], counts, times, rng)
        return p
