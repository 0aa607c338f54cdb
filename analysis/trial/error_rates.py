"""Error rates of the decision: how often the committed rule decides under the null, or at its margin."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis import rules
from analysis.output.printed import decimal
from analysis.rules.gates import PlannedContrast
from analysis.rules.rule import Contrast
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.stats import max_t, multiplicity, power
from analysis.stats.comparison import Margins
from analysis.stats.interval import exact
from analysis.stats.methods import METHODS
from analysis.trial import margin_tests, populations
from analysis.trial.made_up_answers import gained
from analysis.trial.populations import Setting
from analysis.trial.simulated_studies import Plan, family
from analysis.trial.type_one import LIMIT, p_of

__all__ = ["Errors", "Share", "errors", "in_setting", "printed"]

STUDIES = 2_000
FIRST = 200  # studies simulated in every setting before the worst ones are simulated further
WORST = 2  # settings that are simulated further
LATTICE = 1 << 24  # numbers transformed at most; larger families are simulated fewer times
FLIPS = 199  # sign flips of max-t, whose p is exact at any number of them


class Share(NamedTuple):
    """A share of the simulated studies, with its 95 % Clopper-Pearson limits."""

    share: float
    low: float
    high: float


class Errors(NamedTuple):
    confirmed: Share
    refuted: Share
    wrong: Share  # either verdict; with a margin the more frequent one, since each has its own level
    studies: int
    setting: Setting

    def exceeds(self, alpha: float, limit: float = LIMIT) -> bool:
        """Return whether the error is above `limit` times nominal beyond Monte Carlo error."""
        return self.wrong.low > limit * alpha


def errors(plan: Plan, rng: np.random.Generator, settings: Iterable[Setting] | None = None) -> Errors:
    """Return how often the rule of `plan` gives CONFIRMED and REFUTED when all arms are equally good, in the
    setting with the largest error.

    Every setting is simulated with few studies, the worst ones with more. Raises ValueError for a task of
    fewer than two problems.
    """
    margin = "margin" in plan.content["decision"]
    of = list(settings or populations.settings(len(plan.content["seeds"]), margin=margin))
    if len(of) > WORST:
        first = [in_setting(plan, setting, FIRST, rng) for setting in of]
        of = [one.setting for one in sorted(first, key=lambda one: -one.wrong.share)[:WORST]]
    return max((in_setting(plan, setting, STUDIES, rng) for setting in of), key=lambda one: one.wrong.share)


def in_setting(plan: Plan, setting: Setting, studies: int, rng: np.random.Generator) -> Errors:
    """Return the error rates in one setting. Caches match and every lane has a grade. An interval is below
    zero if the test rejects.

    A rule with a margin is simulated with the subject worse by exactly the margin. CONFIRMED is wrong there,
    and most frequent if only as many contrasts are at the margin as make it wrong (`Rule.lossy_indices`, one
    for most rules) and all other answers are equal; REFUTED is wrong too, and most frequent if all contrasts
    are at the margin.
    """
    planned, margin = family(plan), float(plan.content["decision"].get("margin") or 0)
    lanes = sum(2 * len(plan.content["seeds"]) * contrast.problems + 1 for contrast in planned)
    studies = max(200, min(studies, LATTICE // lanes))
    if not margin:
        words = _words(plan, gained(plan, setting, studies, rng), rng)
        confirmed, refuted = (_share(words, word) for word in (CONFIRMED, REFUTED))
        decided = _share([word if word == INCONCLUSIVE else "" for word in words], "")
        return Errors(confirmed, refuted, decided, studies, setting)
    every = gained(plan, setting, studies, rng, margin)
    lossy = rules.RULES[plan.content["decision"]["rule"]].lossy(planned)
    one = [each if index in lossy else np.zeros_like(each) for index, each in enumerate(every)]
    confirmed = _share(_words(plan, one, rng), CONFIRMED)
    refuted = _share(_words(plan, every, rng), REFUTED)
    return Errors(confirmed, refuted, max(confirmed, refuted), studies, setting)


def _words(plan: Plan, gained: Sequence[NDArray[np.int64]], rng: np.random.Generator) -> list[str]:
    """Return the verdict of each study, [study]. gains: of every contrast [study, problem]."""
    planned, decision = family(plan), plan.content["decision"]
    seeds, alpha = len(plan.content["seeds"]), float(decision["alpha"])
    together = METHODS[decision["method"]].family
    counts = [power.counted(each, seeds) for each in gained]
    p = _alone("t" if together else decision["method"], counts, rng)
    adjusted = _together(planned, gained, rng) if together else np.minimum(1.0, len(planned) * p)
    net = np.stack([each.sum(axis=1) for each in gained], axis=1)
    high = np.where((net < 0) & (adjusted <= alpha), -1.0, 1.0)
    limits: Sequence[Sequence[Margins | None]] = [[None] * len(planned)] * len(net)
    if margin := decision.get("margin"):
        level = multiplicity.corrected(alpha, len(planned))
        simulated = [_margins(decision["method"], each, float(margin), level) for each in counts]
        limits = [[Margins(*row) for row in study] for study in np.stack(simulated, axis=1).tolist()]
    named = [
        partial(
            Contrast,
            **{name: getattr(contrast, name) for name in ("model", "task", "budget", "subject", "against")},
            matched=True,
            lanes=contrast.problems * seeds,
        )
        for contrast in planned
    ]
    rule = rules.RULES[decision["rule"]]
    # Rules without a margin decide no study in which nothing is significant.
    open_ = np.full(len(net), bool(margin)) | (np.minimum(p, adjusted).min(axis=1) <= alpha)
    words = [INCONCLUSIVE] * len(net)
    rows = zip(*(each.tolist() for each in (net, high, p, adjusted)), limits, strict=True)
    for index, study in enumerate(rows):
        if open_[index]:
            contrasts = [
                one(delta=net / one.keywords["lanes"], high=high, p=p, adjusted=q, net=net, margins=m)
                for one, net, high, p, q, m in zip(named, *study, strict=True)
            ]
            words[index] = rule.verdict(contrasts, decision)
    return words


def _alone(method: str, counts: Sequence[NDArray[np.int64]], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the p of each contrast, [study, contrast]; equal counts are tested once."""
    sizes = [int(each[0].sum()) for each in counts]
    p = np.empty((len(counts[0]), len(counts)))
    for size in set(sizes):
        at = [index for index, each in enumerate(sizes) if each == size]
        stacked = np.concatenate([counts[index] for index in at])
        distinct, place = np.unique(stacked, axis=0, return_inverse=True)
        p[:, at] = p_of(method, distinct, rng)[place.ravel()].reshape(len(at), -1).T
    return p


def _margins(method: str, counts: NDArray[np.int64], margin: float, level: float) -> NDArray[np.float64]:
    """Return columns as in `Margins`, [study, 5]; limits only say whether they are beyond the margin."""
    distinct, place = np.unique(counts, axis=0, return_inverse=True)
    tests = margin_tests.tested(method, distinct, margin)
    high, low = np.where(tests.below <= level, -1.0, 1.0), np.where(tests.above <= level, 1.0, -1.0)
    return np.stack([np.zeros(len(low)), low, high, tests.worse, tests.better], axis=1)[place.ravel()]


def _together(
    planned: Sequence[PlannedContrast], gained: Sequence[NDArray[np.int64]], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return p adjusted by max-t, [study, contrast]; the contrasts of a task are a group, as in the judge."""
    tasks: dict[str, list[int]] = {}
    for index, contrast in enumerate(planned):
        tasks.setdefault(contrast.task, []).append(index)
    groups = [np.stack([gained[at] for at in group], axis=2).astype(float) for group in tasks.values()]
    order = np.argsort([at for group in tasks.values() for at in group])
    return max_t.adjusted(groups, FLIPS, rng)[:, order]


def printed(rates: Errors) -> dict[str, Any]:
    """Format the error rates for a lock."""
    shares = {"confirmed": rates.confirmed, "refuted": rates.refuted}
    digits = {
        word: {name: decimal(value) for name, value in share._asdict().items()}
        for word, share in shares.items()
    }
    about = {"discordance": f"{rates.setting.discordance:g}", "setting": str(rates.setting)}
    return {"studies": rates.studies, **about, **digits}


def _share(verdicts: Sequence[str], word: str) -> Share:
    count = verdicts.count(word)
    return Share(count / len(verdicts), *exact(count, len(verdicts)))
