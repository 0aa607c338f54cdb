"""Try a rule before it is locked: it has to be able to say each verdict, and to notice what takes one away.

The judge is run on made-up studies of the planned size whose verdict is known. A rule that cannot confirm
cannot see; one that cannot refute cannot fail; and one that still confirms when a gate is closed (caches that
do not match, a win too few, a lane without a grade, ...) does not have the gate.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.judge import judged
from analysis.rules.decisions import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.rules.simulated_studies import Ended, Outcome, Place, Plan, World, places, study
from analysis.stats import equivalence, multiplicity, power
from analysis.studies.study_files import NOT_RUN

__all__ = ["Vacuous", "tried"]

MOST = 64  # discordant problems that are looked at for a p just at a level; 2^-64 is below any level


class Vacuous(ValueError):
    """A rule that cannot say a verdict at the planned size, or that says one whatever happened."""


class Gate(NamedTuple):
    world: World
    verdict: str  # that is due


def tried(plan: Plan) -> dict[str, Any]:
    """What the registered rule says of each made-up study: `verdicts` and `gates`, each by name of the study.

    The method draws as registered, at the planned number of problems and seeds. A gate that cannot be told
    apart in this family or at this size is not there: a contrast that is worse at the uncorrected level, say,
    where every contrast has to be won. Raises Vacuous, which names the verdict that cannot be given or the
    gate that does not bite.
    """
    content = plan.content
    arranged = RULES[content["decision"]["rule"]](_Family(plan))
    found: dict[str, str] = {}
    for name, gate in arranged.items():
        found[name] = _verdict(plan, gate.world)
        if found[name] != gate.verdict:
            raise Vacuous(f"{content['decision']['rule']}: {name}: says {found[name]}, not {gate.verdict}")
    verdicts = list(found)[:3]
    return {
        "verdicts": {name: found[name] for name in verdicts},
        "gates": {name: word for name, word in found.items() if name not in verdicts},
    }


WON, EVEN, LOST = "what the rule asks for is won", "nothing differs", "every contrast is lost"


def _verdict(plan: Plan, world: World) -> str:
    try:
        verdict: str = judged(study(plan, world))["verdict"]
    except ValueError as refused:
        raise Vacuous(str(refused)) from None
    return verdict


class _Family:
    """The contrasts of a plan, and the outcomes that have a wanted p at their size."""

    def __init__(self, plan: Plan) -> None:
        self.decision = plan.content["decision"]
        self.seeds = len(plan.content["seeds"])
        self.places = places(plan)
        self.alpha = float(self.decision["alpha"])
        self.corrected = multiplicity.corrected(self.alpha, len(self.places))

    def at(self, *models: str) -> list[int]:
        return [index for index, place in enumerate(self.places) if place.model in models]

    def whole(self, index: int) -> Outcome:
        """The largest win there is: every problem."""
        return Outcome(gained=self.places[index].problems)

    def best(self, index: int) -> float:
        """p of the largest win there is, 1 for too few problems to compare."""
        place = self.places[index]
        return float(self._p(place, [self.whole(index)])[0]) if place.problems > 1 else 1.0

    def between(self, index: int, low: float, high: float) -> Outcome | None:
        """A win whose p lies well between two levels, with as few losses as possible; None where there is no
        such number of problems.
        """
        place, middle, margin = self.places[index], np.sqrt(low * high), (high / low) ** 0.25
        for lost in range(4):
            most = min(place.problems - 1, MOST) - lost
            wins = [Outcome(gained, lost) for gained in range(lost + 1, most + 1)]
            if not wins:
                return None
            p = self._p(place, wins)
            nearest = int(np.argmin(np.abs(np.log(p / middle))))
            if middle / margin < p[nearest] < middle * margin:
                return wins[nearest]
        return None

    def _p(self, place: Place, wins: Sequence[Outcome]) -> NDArray[np.float64]:
        counts = np.array([[lost, place.problems - gained - lost, gained] for gained, lost in wins])
        rng = np.random.default_rng(0)
        p: NDArray[np.float64] = power.p_values(self.decision["method"], counts, self.decision["draws"], rng)
        return p


def _superior(family: _Family) -> dict[str, Gate]:
    """Winners come first in the family, so that the last contrast may lose while they win, where there is one
    to spare.
    """
    every, needed = range(len(family.places)), family.decision["at_least"]
    alpha, corrected = family.alpha, family.corrected
    if needed < 1:
        raise Vacuous("superior: at_least: no win is asked for; a rule must be able to fail")
    winners = [index for index in every if family.best(index) <= corrected][:needed]
    if len(winners) < needed:
        raise Vacuous(_unseen(family, every, needed, corrected))
    spare = [index for index in every if index not in winners]
    won = {index: family.whole(index) for index in winners}
    one, other = winners[-1], (spare or winners)[-1]
    gates = {
        WON: Gate(World(won), CONFIRMED),
        **_ordinary(family),
        "a win too few": Gate(World(won | {one: Outcome()}), INCONCLUSIVE),
        "a contrast that is won has unmatched caches": Gate(World(won, frozenset({one})), INCONCLUSIVE),
        **_ungraded(family, won, one),
    }
    if spare:
        gates["a contrast that is not won has unmatched caches"] = Gate(
            World(won, frozenset({other})), INCONCLUSIVE
        )
    if just := family.between(one, corrected / 8, corrected):
        gates["a win just reaches the corrected level"] = Gate(World(won | {one: just}), CONFIRMED)
    # Contrasts without a difference cost max-t nothing, and made-up ones have none: p has to be above alpha.
    alone = len(every) == 1 or family.decision["method"] == "max-t"
    if short := family.between(one, *((alpha, 4 * alpha) if alone else (corrected, alpha))):
        gates["a win falls short of the corrected level"] = Gate(World(won | {one: short}), INCONCLUSIVE)
    if loss := family.between(other, corrected / 8, corrected):
        lost = World((won if spare else {}) | {other: _lost(loss)})
        gates["a contrast is lost"] = Gate(lost, REFUTED)
        gates["a contrast is lost with unmatched caches"] = Gate(
            lost._replace(unmatched=frozenset({other})), INCONCLUSIVE
        )
    if spare and not alone and (harm := family.between(other, corrected, alpha)):
        gates["a contrast is worse at the uncorrected level"] = Gate(
            World(won | {other: _lost(harm)}), INCONCLUSIVE
        )
    return gates


def _branch(family: _Family) -> dict[str, Gate]:
    alpha = family.alpha
    primary, transfer = (family.at(family.decision[f"{role}_model"]) for role in ("primary", "transfer"))
    seen = [index for index in primary if family.best(index) < alpha]
    if not seen:
        raise Vacuous(_unseen(family, primary, 1, alpha))
    one, other = seen[0], max(transfer, key=lambda index: family.places[index].problems)
    won = {one: family.whole(one), other: family.whole(other)}
    lost = won | {index: _lost(family.whole(index)) for index in primary}
    gates = {
        WON: Gate(World(won), CONFIRMED),
        **_ordinary(family),
        "no primary contrast is won": Gate(World(won | {one: Outcome()}), INCONCLUSIVE),
        "the transfer contrasts show no difference": Gate(World(won | {other: Outcome()}), INCONCLUSIVE),
        "the sign of the transfer contrasts is flipped": Gate(
            World(won | {other: Outcome(lost=1)}), INCONCLUSIVE
        ),
        "the primary contrasts are lost": Gate(World(lost), REFUTED),
        "the primary contrasts are lost with unmatched caches": Gate(
            World(lost, frozenset(primary)), INCONCLUSIVE
        ),
        "a primary contrast that is won has unmatched caches": Gate(
            World(won, frozenset({one})), INCONCLUSIVE
        ),
        "a transfer contrast has unmatched caches": Gate(World(won, frozenset({other})), INCONCLUSIVE),
        **_ungraded(family, won, one),
    }
    if family.best(other) < alpha:
        flipped = World(won | {other: _lost(family.whole(other))})
        gates["a transfer contrast is lost"] = Gate(flipped, REFUTED)
        gates["a transfer contrast is lost with unmatched caches"] = Gate(
            flipped._replace(unmatched=frozenset({other})), INCONCLUSIVE
        )
    if just := family.between(one, max(family.corrected, alpha / 8), alpha):
        gates["a primary win just reaches alpha"] = Gate(World(won | {one: just}), CONFIRMED)
    if short := family.between(one, alpha, 4 * alpha):
        gates["a primary win falls short of alpha"] = Gate(World(won | {one: short}), INCONCLUSIVE)
    of_one, of_other = (alpha / len(cells) for cells in (primary, transfer))
    if len(primary) > 1 and (harm := family.between(one, of_one, alpha)):
        gates["a primary loss falls short of the level of a loss"] = Gate(
            World({one: _lost(harm)}), INCONCLUSIVE
        )
    spare = [index for index in transfer if index != other]
    if spare and (loss := family.between(spare[-1], of_other / 8, of_other)):
        gates["a transfer contrast is lost while another is won by more"] = Gate(
            World(won | {spare[-1]: _lost(loss)}), REFUTED
        )
    return gates


def _lossless(family: _Family) -> dict[str, Gate]:
    """CONFIRMED comes first: it is what these rules say of equal answers."""
    margin, every = float(family.decision["margin"]), range(len(family.places))
    least, sure = min(
        (place.problems, equivalence.at_the_margin(np.array([[0, place.problems, 0]]), margin)[0])
        for place in family.places
    )
    if sure > family.alpha:
        raise Vacuous(
            f"{family.decision['rule']}: cannot say {CONFIRMED}: equal answers to {least} problems have p = "
            f"{sure:.6f} at margin {margin:g} and alpha {family.alpha:g}; plan more problems or a wider "
            "margin"
        )
    one = every[-1]
    other = Outcome(lost=int(margin * family.places[one].problems))  # at least one, or p was above alpha
    lost = {index: _lost(family.whole(index)) for index in every}
    won = {index: family.whole(index) for index in every}
    wins = REFUTED if family.decision["rule"] == "equivalent" else CONFIRMED
    return {
        EVEN: Gate(World({}), CONFIRMED),
        "one contrast is lost by the margin": Gate(World({one: other}), INCONCLUSIVE),
        LOST: Gate(World(lost), REFUTED),
        "every contrast is won": Gate(World(won), wins),
        "one contrast is lost": Gate(World({one: lost[one]}), REFUTED),
        "one contrast is lost with unmatched caches": Gate(
            World({one: lost[one]}, frozenset({one})), INCONCLUSIVE
        ),
        "a contrast has unmatched caches": Gate(World({}, frozenset({one})), INCONCLUSIVE),
        **_ungraded(family, {}, one),
    }


def _ordinary(family: _Family) -> dict[str, Gate]:
    lost = {index: _lost(family.whole(index)) for index in range(len(family.places))}
    return {EVEN: Gate(World({}), INCONCLUSIVE), LOST: Gate(World(lost), REFUTED)}


def _ungraded(family: _Family, won: Mapping[int, Outcome], one: int) -> dict[str, Gate]:
    """One lane of the subject, in a contrast that is won; what it does is `decision.missing`."""
    gates = {"one lane is not run": Gate(World(won, ended=Ended(one, True, NOT_RUN)), INCONCLUSIVE)}
    if family.decision["missing"] == "inconclusive":
        for name, state in (("one lane fails", "failed"), ("one lane has no grade", "ok")):
            gates[name] = Gate(World(won, ended=Ended(one, True, state)), INCONCLUSIVE)
        return gates
    lanes = family.places[one].problems * family.seeds
    gates["the subject's lanes have no grade"] = Gate(World({}, ended=Ended(one, True, "ok", lanes)), REFUTED)
    return gates


def _lost(win: Outcome) -> Outcome:
    return Outcome(gained=win.lost, lost=win.gained)


def _unseen(family: _Family, indices: Sequence[int], needed: int, level: float) -> str:
    blind = [(family.best(index), family.places[index]) for index in indices]
    p, place = max(blind, key=lambda each: each[0])
    return (
        f"{family.decision['rule']}: cannot say {CONFIRMED}: {needed} of {len(blind)} contrasts have to be "
        f"won, and a win on all {place.problems} problems of {place.task} has p = {p:.6f} at level "
        f"{level:.6f}; plan more problems or fewer contrasts"
    )


RULES: Mapping[str, Callable[[_Family], dict[str, Gate]]] = MappingProxyType(
    {"superior": _superior, "branch": _branch, "equivalent": _lossless, "non_inferior": _lossless}
)
