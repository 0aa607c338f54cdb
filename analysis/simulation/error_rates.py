"""Error rates of the decision: how often the committed rule decides under the null, or at its margin."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis import rules
from analysis.rules.rule import Contrast, PartialNull
from analysis.rules.self_test_cases import PlannedContrast
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.simulation import margin_tests, null_settings
from analysis.simulation.error_estimate import LIMIT
from analysis.simulation.null_settings import Setting
from analysis.simulation.simulated_answers import simulate_gains
from analysis.simulation.simulated_studies import StudyPlan, planned_contrasts
from analysis.simulation.study_pool import LOOK_LEVEL
from analysis.simulation.type_one_error import screened_p_values
from analysis.stats import max_t, multiplicity, power
from analysis.stats.comparison import Margins
from analysis.stats.interval import clopper_pearson
from analysis.stats.methods import METHODS
from protocol.formats.json_text import format_decimal

STUDIES, MOST_STUDIES = 2_000, 32_000  # simulated in the worst settings, and at most until an error is told
FIRST_STUDIES = 200  # studies simulated in every setting before the worst ones are simulated further
WORST_SETTINGS = 2  # settings that are simulated further
LATTICE = 1 << 24  # numbers transformed at a time; larger families are simulated in parts
FLIPS = 199  # sign flips of max-t, whose p is exact at any number of them
ONE_SIDED_LIMIT = 1.24  # times alpha / 2: CONFIRMED by a rule without a margin, 3.1 % at 0.05
WON = 0.3  # share of the problems that the subject wins with all seeds where it is truly better


class RateEstimate(NamedTuple):
    """A share of the simulated studies, with its Clopper-Pearson limits, 95 % over all looks."""

    share: float
    low: float
    high: float


class NullSetting(NamedTuple):
    """A null population, with the contrasts that are truly won in it and the verdicts that are wrong there."""

    population: Setting
    partial: PartialNull = PartialNull("", frozenset(), (CONFIRMED, REFUTED))

    def __str__(self) -> str:
        return f"{self.population}" + (f", and {self.partial.text}" if self.partial.text else "")


class DecisionErrors(NamedTuple):
    confirmed: RateEstimate
    refuted: RateEstimate
    wrong: RateEstimate  # all wrong verdicts; with a margin the most frequent one, since each has its own level
    studies: int
    setting: NullSetting
    has_margin: bool

    def exceeds(self, alpha: float) -> bool:
        """Return whether an error may be above its limit: the upper end of the simulation is."""
        return self._are_above(self.wrong.high, self.confirmed.high, alpha)

    def surely_exceeds(self, alpha: float) -> bool:
        """Return whether an error is above its limit beyond Monte Carlo error."""
        return self._are_above(self.wrong.low, self.confirmed.low, alpha)

    def _are_above(self, wrong: float, confirmed: float, alpha: float) -> bool:
        """Return whether one of these rates of wrong verdicts and of CONFIRMED is above its limit."""
        is_one_sided = not self.has_margin and CONFIRMED in self.setting.partial.wrong
        return wrong > LIMIT * alpha or (is_one_sided and confirmed > ONE_SIDED_LIMIT * alpha / 2)


def decision_errors(
    plan: StudyPlan, rng: np.random.Generator, settings: Iterable[Setting] | None = None
) -> DecisionErrors:
    """Return how often the rule of `plan` is wrong in the setting with the largest error: of all arms equally
    good, and of the partial nulls that the rule declares.

    Every setting is simulated with few studies, the worst ones with more, until it is known on which side of
    its limit the error is. Raises ValueError for a task of fewer than two problems.
    """
    decision = plan.content["decision"]
    rule, alpha, margin = rules.RULES[decision["rule"]], float(decision["alpha"]), "margin" in decision
    populations = list(settings or null_settings.settings(len(plan.content["seeds"]), margin=margin))
    partial_nulls = rule.partial_nulls(planned_contrasts(plan), decision)
    candidates = [NullSetting(population) for population in populations]
    candidates += [NullSetting(population, partial) for population in populations for partial in partial_nulls]
    if len(candidates) > WORST_SETTINGS:
        first = [errors_in_setting(plan, setting, FIRST_STUDIES, rng) for setting in candidates]
        candidates = [result.setting for result in sorted(first, key=_badness, reverse=True)[:WORST_SETTINGS]]
    results = []
    for setting in candidates:
        studies = STUDIES
        result = errors_in_setting(plan, setting, studies, rng)
        while result.exceeds(alpha) and not result.surely_exceeds(alpha) and studies < MOST_STUDIES:
            studies *= 4
            result = errors_in_setting(plan, setting, studies, rng)
        results.append(result)
    return max(results, key=_badness)


def _badness(result: DecisionErrors) -> float:
    """Return the larger of the error in all, and of CONFIRMED twice, whose level is half as large."""
    one_sided = 0.0 if result.has_margin or CONFIRMED not in result.setting.partial.wrong else result.confirmed.share
    return max(result.wrong.share, 2 * one_sided)


def errors_in_setting(plan: StudyPlan, setting: NullSetting, studies: int, rng: np.random.Generator) -> DecisionErrors:
    """Return the error rates in one setting. Caches match and every lane has a grade. An interval is below
    zero if the test rejects.

    A rule with a margin is simulated with the subject worse by exactly the margin. CONFIRMED is wrong there,
    and most frequent if only as many contrasts are at the margin as make it wrong (`Rule.lossy_indices`, one
    for most rules) and all other answers are equal; REFUTED is wrong too, and most frequent if all contrasts
    are at the margin.
    """
    planned, margin = planned_contrasts(plan), float(plan.content["decision"].get("margin") or 0)
    lanes = sum(2 * len(plan.content["seeds"]) * contrast.problems + 1 for contrast in planned)
    part = max(1, LATTICE // lanes)
    sizes = [min(part, studies - start) for start in range(0, studies, part)]
    counts = sum((_count_verdicts(plan, setting, margin, size, rng) for size in sizes), Counter())
    confirmed, refuted = (_estimate_rate(counts[verdict], studies) for verdict in (CONFIRMED, REFUTED))
    if margin:
        return DecisionErrors(confirmed, refuted, max(confirmed, refuted), studies, setting, True)
    wrong = _estimate_rate(sum(counts[verdict] for verdict in setting.partial.wrong), studies)
    return DecisionErrors(confirmed, refuted, wrong, studies, setting, False)


def _count_verdicts(
    plan: StudyPlan, setting: NullSetting, margin: float, studies: int, rng: np.random.Generator
) -> Counter[str]:
    """Return how often each verdict results; with a margin, CONFIRMED where it is wrong in few contrasts."""
    all_gains = simulate_gains(plan, setting.population, studies, rng, margin)
    if not margin:
        seeds = len(plan.content["seeds"])
        for index in setting.partial.won:
            all_gains[index] = np.where(rng.random(all_gains[index].shape) < WON, seeds, all_gains[index])
        return Counter(simulate_verdicts(plan, all_gains, rng))
    lossy = rules.RULES[plan.content["decision"]["rule"]].lossy_indices(planned_contrasts(plan))
    lossy_gains = [gains if index in lossy else np.zeros_like(gains) for index, gains in enumerate(all_gains)]
    confirmed, refuted = (simulate_verdicts(plan, gains, rng) for gains in (lossy_gains, all_gains))
    return Counter({CONFIRMED: confirmed.count(CONFIRMED), REFUTED: refuted.count(REFUTED)})


def simulate_verdicts(plan: StudyPlan, gains: Sequence[NDArray[np.int64]], rng: np.random.Generator) -> list[str]:
    """Return the verdict of each study, [study]. gains: of every contrast [study, problem]."""
    planned, decision = planned_contrasts(plan), plan.content["decision"]
    seeds, alpha = len(plan.content["seeds"]), float(decision["alpha"])
    is_family_method = METHODS[decision["method"]].family
    counts = [power.count_sums(values, seeds) for values in gains]
    p = _unadjusted_p("t" if is_family_method else decision["method"], counts, rng)
    adjusted = _max_t_p(planned, gains, rng) if is_family_method else np.minimum(1.0, len(planned) * p)
    net = np.stack([values.sum(axis=1) for values in gains], axis=1)
    high = np.where((net < 0) & (adjusted <= alpha), -1.0, 1.0)
    limits: Sequence[Sequence[Margins | None]] = [[None] * len(planned)] * len(net)
    if margin := decision.get("margin"):
        level = multiplicity.corrected_alpha(alpha, len(planned))
        simulated = [_margin_limits(decision["method"], values, float(margin), level) for values in counts]
        limits = [[Margins(*row) for row in study] for study in np.stack(simulated, axis=1).tolist()]
    templates = [
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
    is_open = np.full(len(net), bool(margin)) | (np.minimum(p, adjusted).min(axis=1) <= alpha)
    verdicts = [INCONCLUSIVE] * len(net)
    rows = zip(*(values.tolist() for values in (net, high, p, adjusted)), limits, strict=True)
    for index, study in enumerate(rows):
        if is_open[index]:
            contrasts = [
                contrast_of(delta=net / contrast_of.keywords["lanes"], high=high, p=p, adjusted=q, net=net, margins=m)
                for contrast_of, net, high, p, q, m in zip(templates, *study, strict=True)
            ]
            verdicts[index] = rule.decide(contrasts, decision, plan.judging)
    return verdicts


def _unadjusted_p(method: str, counts: Sequence[NDArray[np.int64]], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the p of each contrast, [study, contrast]; equal counts are tested once."""
    sizes = [int(value[0].sum()) for value in counts]
    p = np.empty((len(counts[0]), len(counts)))
    for size in set(sizes):
        members = [index for index, value in enumerate(sizes) if value == size]
        stacked = np.concatenate([counts[index] for index in members])
        distinct, positions = np.unique(stacked, axis=0, return_inverse=True)
        p[:, members] = screened_p_values(method, distinct, rng)[positions.ravel()].reshape(len(members), -1).T
    return p


def _margin_limits(method: str, counts: NDArray[np.int64], margin: float, level: float) -> NDArray[np.float64]:
    """Return columns as in `Margins`, [study, 5]; limits only say whether they are beyond the margin."""
    distinct, positions = np.unique(counts, axis=0, return_inverse=True)
    tests = margin_tests.margin_p_values(method, distinct, margin)
    high, low = np.where(tests.below <= level, -1.0, 1.0), np.where(tests.above <= level, 1.0, -1.0)
    return np.stack([np.zeros(len(low)), low, high, tests.worse, tests.better], axis=1)[positions.ravel()]


def _max_t_p(
    planned: Sequence[PlannedContrast], gains: Sequence[NDArray[np.int64]], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return p adjusted by max-t, [study, contrast]; the contrasts of a task are a group, as in the judge."""
    tasks: dict[str, list[int]] = {}
    for index, contrast in enumerate(planned):
        tasks.setdefault(contrast.task, []).append(index)
    groups = [np.stack([gains[member] for member in group], axis=2).astype(float) for group in tasks.values()]
    order = np.argsort([member for group in tasks.values() for member in group])
    return max_t.adjusted_p(groups, FLIPS, rng)[:, order]


def format_errors(rates: DecisionErrors) -> dict[str, Any]:
    """Format the error rates for a lock."""
    shares = {"confirmed": rates.confirmed, "refuted": rates.refuted}
    digits = {
        verdict: {name: format_decimal(value) for name, value in share._asdict().items()}
        for verdict, share in shares.items()
    }
    about = {"discordance": f"{rates.setting.population.discordance:g}", "setting": str(rates.setting)}
    return {"studies": rates.studies, **about, **digits}


def _estimate_rate(count: int, studies: int) -> RateEstimate:
    return RateEstimate(count / studies, *clopper_pearson(count, studies, LOOK_LEVEL))
