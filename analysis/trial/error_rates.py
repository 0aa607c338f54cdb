"""How often the committed rule decides where nothing differs, or at its margin: the error of the whole
decision.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis import rules
from analysis.output.printed import decimal
from analysis.rules.gates import PlannedContrast
from analysis.rules.rule import Contrast
from analysis.rules.verdicts import CONFIRMED, REFUTED
from analysis.stats import equivalence, max_t, multiplicity, power
from analysis.stats.comparison import Margins
from analysis.stats.interval import exact
from analysis.stats.methods import METHODS, draws
from analysis.trial.simulated_studies import Plan, family

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
    planned, decision = family(plan), plan.content["decision"]
    alpha, together = float(decision["alpha"]), METHODS[decision["method"]].family
    level = multiplicity.corrected(alpha, len(planned))
    gained = _gained(plan, planned, rng)
    counts = [power.counted(each, len(plan.content["seeds"])) for each in gained]
    alone = "t" if together else decision["method"]
    p = np.stack([power.p_values(alone, each, draws(decision)[0], rng) for each in counts], axis=1)
    adjusted = _together(planned, gained, rng) if together else np.minimum(1.0, len(planned) * p)
    net = np.stack([each.sum(axis=1) for each in gained], axis=1)
    high = np.where((net < 0) & (adjusted <= alpha), -1.0, 1.0)
    limits: Sequence[Sequence[Margins | None]] = [[None] * len(planned)] * len(net)
    if margin := decision.get("margin"):
        simulated = [equivalence.simulated(each, float(margin), level) for each in counts]
        limits = [[Margins(*row) for row in study] for study in np.stack(simulated, axis=1).tolist()]
    rule = rules.RULES[decision["rule"]]
    named = [
        partial(
            Contrast,
            **{name: getattr(contrast, name) for name in ("model", "task", "budget", "against")},
            subject=decision["subject"],
            matched=True,
            lanes=contrast.problems * len(plan.content["seeds"]),
        )
        for contrast in planned
    ]
    verdicts = [
        rule.verdict(
            [
                contrast(
                    delta=net / contrast.keywords["lanes"], high=high, p=p, adjusted=q, net=net, margins=m
                )
                for contrast, net, high, p, q, m in zip(named, *study, strict=True)
            ],
            decision,
        )
        for study in zip(*(each.tolist() for each in (net, high, p, adjusted)), limits, strict=True)
    ]
    confirmed, refuted = (_share(verdicts, word) for word in (CONFIRMED, REFUTED))
    return Errors(confirmed, refuted, len(net))


def _gained(
    plan: Plan, planned: Sequence[PlannedContrast], rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Of every contrast [study, problem]: seeds that the subject solved, less those of the comparator."""
    decision, seeds = plan.content["decision"], len(plan.content["seeds"])
    margin = float(decision.get("margin") or 0)
    rows = sum(2 * seeds * contrast.problems + 1 for contrast in planned)
    studies = max(200, min(STUDIES, LATTICE // rows))
    chance: dict[tuple[str, str], NDArray[np.float64]] = {}
    subject: dict[tuple[str, str, str], NDArray[np.int64]] = {}
    gained = []
    for contrast in planned:
        task, cell = contrast[:2], contrast[:3]
        if task not in chance:
            chance[task] = rng.beta(SHAPE, SHAPE, (studies, contrast.problems))
        if cell not in subject:
            subject[cell] = rng.binomial(seeds, chance[task] * (1 - 2 * margin))
        gained.append(subject[cell] - rng.binomial(seeds, chance[task]))
    return gained


def _together(
    planned: Sequence[PlannedContrast], gained: Sequence[NDArray[np.int64]], rng: np.random.Generator
) -> NDArray[np.float64]:
    """[study, contrast]: p adjusted by max-t, the contrasts of a task in one group, as the judge has them."""
    tasks: dict[str, list[int]] = {}
    for index, contrast in enumerate(planned):
        tasks.setdefault(contrast.task, []).append(index)
    groups = [np.stack([gained[at] for at in group], axis=2).astype(float) for group in tasks.values()]
    order = np.argsort([at for group in tasks.values() for at in group])
    return max_t.adjusted(groups, FLIPS, rng)[:, order]


def printed(rates: Errors) -> dict[str, Any]:
    """As a lock holds it."""
    shares = {"confirmed": rates.confirmed, "refuted": rates.refuted}
    digits = {
        word: {name: decimal(value) for name, value in share._asdict().items()}
        for word, share in shares.items()
    }
    return {"studies": rates.studies, "discordance": str(DISCORDANCE), **digits}


def _share(verdicts: Sequence[str], word: str) -> Share:
    count = verdicts.count(word)
    return Share(count / len(verdicts), *exact(count, len(verdicts)))
