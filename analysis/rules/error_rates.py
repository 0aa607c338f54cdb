"""How often the committed rule decides where nothing differs, or at its margin: the error of the whole
decision.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.output.printed import decimal
from analysis.rules import decisions
from analysis.rules.simulated_studies import Place, Plan, places
from analysis.stats import equivalence, max_t, multiplicity, power
from analysis.stats.equivalence import Margins
from analysis.stats.interval import exact

__all__ = ["Errors", "Share", "errors", "printed"]

DISCORDANCE = 0.17  # the middle one of those under which a method has to hold its level
SHAPE = DISCORDANCE / (1 - 2 * DISCORDANCE)  # of the Beta distribution that a problem's chance comes from
STUDIES = 2_000
LATTICE = 1 << 24  # numbers that may be transformed; larger families are simulated fewer times


FLIPS = 999  # of max-t, whose p is exact at any number of them


class Share(NamedTuple):
    """Of the simulated studies, with its 95 % Clopper-Pearson limits."""

    share: float
    low: float
    high: float


class Errors(NamedTuple):
    confirmed: Share
    refuted: Share
    studies: int


def errors(plan: Plan, rng: np.random.Generator) -> Errors:
    """How often the rule of `plan` says CONFIRMED, and how often REFUTED, when all arms are equally good.

    As in `power.type_one`, at 17 % of discordant pairs: a problem has one chance to be solved, in all arms
    and at all budgets of a model, and its lanes are independent given that. So contrasts that share the
    subject are correlated. All caches match and every lane has a grade. An interval lies below zero where the
    test says so.

    A rule with a margin is simulated where the subject is worse by just the margin: each of its correct
    lanes is then lost with the chance 2 x margin. CONFIRMED is wrong there, and REFUTED not earned.

    Raises ValueError for a task of fewer than two problems.
    """
    family, decision = places(plan), plan.content["decision"]
    alpha = float(decision["alpha"])
    level = multiplicity.corrected(alpha, len(family))
    gained = _gained(plan, family, rng)
    means = [each.mean(axis=1) / len(plan.content["seeds"]) for each in gained]
    counts = [power.counted(each, len(plan.content["seeds"])) for each in gained]
    alone = "t" if decision["method"] == "max-t" else decision["method"]
    p = np.stack([power.p_values(alone, each, decision["draws"], rng) for each in counts], axis=1)
    adjusted = np.minimum(1.0, len(family) * p)
    if decision["method"] == "max-t":
        adjusted = _together(family, gained, rng)
    delta = np.stack(means, axis=1)
    high = np.where((delta < 0) & (adjusted <= alpha), -1.0, 1.0)
    limits: Sequence[Sequence[Margins | None]] = [[None] * len(family)] * len(delta)
    if decision["rule"] in decisions.LOSSLESS:
        margin = float(decision["margin"])
        found = np.stack([equivalence.simulated(each, margin, level) for each in counts], axis=1)
        limits = [[Margins(*one) for one in study] for study in found.tolist()]
    rule, models = decisions.RULES[decision["rule"]], [place.model for place in family]
    matched = [True] * len(family)
    said = [
        rule([decisions.Contrast(*one) for one in zip(models, *study, strict=True)], decision)
        for study in zip(*(delta, high, p, adjusted), [matched] * len(delta), limits, strict=True)
    ]
    confirmed, refuted = (_share(said, word) for word in (decisions.CONFIRMED, decisions.REFUTED))
    return Errors(confirmed, refuted, len(delta))


def _gained(plan: Plan, family: Sequence[Place], rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Of every contrast [study, problem]: seeds that the subject solved, less those of the comparator."""
    decision, seeds = plan.content["decision"], len(plan.content["seeds"])
    margin = float(decision["margin"]) if decision["rule"] in decisions.LOSSLESS else 0.0
    rows = sum(2 * seeds * place.problems + 1 for place in family)
    studies = max(200, min(STUDIES, LATTICE // rows))
    chance: dict[tuple[str, str], NDArray[np.float64]] = {}
    subject: dict[tuple[str, str, str], NDArray[np.int64]] = {}
    gained = []
    for place in family:
        if place[:2] not in chance:
            chance[place[:2]] = rng.beta(SHAPE, SHAPE, (studies, place.problems))
        if place[:3] not in subject:
            subject[place[:3]] = rng.binomial(seeds, chance[place[:2]] * (1 - 2 * margin))
        gained.append(subject[place[:3]] - rng.binomial(seeds, chance[place[:2]]))
    return gained


def _together(
    family: Sequence[Place], gained: Sequence[NDArray[np.int64]], rng: np.random.Generator
) -> NDArray[np.float64]:
    """[study, contrast]: p adjusted by max-t, the contrasts of a task in one group, as the judge has them."""
    tasks: dict[str, list[int]] = {}
    for index, place in enumerate(family):
        tasks.setdefault(place.task, []).append(index)
    groups = [np.stack([gained[at] for at in group], axis=2).astype(float) for group in tasks.values()]
    order = np.argsort([at for group in tasks.values() for at in group])
    return max_t.adjusted(groups, FLIPS, rng)[:, order]


def printed(found: Errors) -> dict[str, Any]:
    """As a lock holds it."""
    shares = {"confirmed": found.confirmed, "refuted": found.refuted}
    digits = {
        word: {name: decimal(value) for name, value in share._asdict().items()}
        for word, share in shares.items()
    }
    return {"studies": found.studies, "discordance": str(DISCORDANCE), **digits}


def _share(said: Sequence[str], word: str) -> Share:
    count = said.count(word)
    return Share(count / len(said), *exact(count, len(said)))
