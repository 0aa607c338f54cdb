"""How often the committed rule decides where nothing differs: the error of the whole decision."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis import decisions, multiplicity, power
from analysis.interval import exact
from analysis.printed import decimal
from analysis.worlds import Plan, places

__all__ = ["Errors", "Share", "errors", "printed"]

DISCORDANCE = 0.17  # the middle one of those under which a method has to hold its level
SHAPE = DISCORDANCE / (1 - 2 * DISCORDANCE)  # of the Beta distribution that a problem's chance comes from
STUDIES = 2_000
LATTICE = 1 << 24  # numbers that may be transformed; larger families are simulated fewer times


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
    test says so. Raises ValueError for a task of fewer than two problems.
    """
    family, decision = places(plan), plan.content["decision"]
    seeds = len(plan.content["seeds"])
    rows = sum(2 * seeds * place.problems + 1 for place in family)
    studies = max(200, min(STUDIES, LATTICE // rows))
    delta, p = (np.empty((studies, len(family))) for _ in range(2))
    chance: dict[tuple[str, str], NDArray[np.float64]] = {}
    subject: dict[tuple[str, str, str], NDArray[np.int64]] = {}
    for index, place in enumerate(family):
        if place[:2] not in chance:
            chance[place[:2]] = rng.beta(SHAPE, SHAPE, (studies, place.problems))
        if place[:3] not in subject:
            subject[place[:3]] = rng.binomial(seeds, chance[place[:2]])
        gained = subject[place[:3]] - rng.binomial(seeds, chance[place[:2]])
        counts = power.counted(gained, seeds)
        delta[:, index] = gained.mean(axis=1) / seeds
        p[:, index] = power.p_values(decision["method"], counts, decision["draws"], rng)
    below = (delta < 0) & (p <= multiplicity.corrected(float(decision["alpha"]), len(family)))
    models = [place.model for place in family]
    rule = decisions.RULES[decision["rule"]]
    said = [
        rule([decisions.Contrast(*one, matched=True) for one in zip(models, *study, strict=True)], decision)
        for study in zip(delta, np.where(below, -1.0, 1.0), p, strict=True)
    ]
    confirmed, refuted = (_share(said, word) for word in (decisions.CONFIRMED, decisions.REFUTED))
    return Errors(confirmed, refuted, studies)


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
