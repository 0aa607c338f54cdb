"""Error rates of the decision: how often the committed rule decides under the null, or at its margin."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis import rules
from analysis.rules.rule import Contrast
from analysis.rules.self_test_cases import PlannedContrast
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.simulation import margin_tests, null_populations
from analysis.simulation.null_populations import Setting
from analysis.simulation.simulated_answers import simulate_gains
from analysis.simulation.simulated_studies import StudyPlan, planned_contrasts
from analysis.simulation.type_one_error import LIMIT, screened_p_values
from analysis.stats import max_t, multiplicity, power
from analysis.stats.comparison import Margins
from analysis.stats.interval import clopper_pearson
from analysis.stats.methods import METHODS
from protocol.formats.json_text import format_decimal

__all__ = ["DecisionErrors", "RateEstimate", "decision_errors", "errors_in_setting", "format_errors"]

STUDIES = 2_000
FIRST_STUDIES = 200  # studies simulated in every setting before the worst ones are simulated further
WORST_SETTINGS = 2  # settings that are simulated further
LATTICE = 1 << 24  # numbers transformed at most; larger families are simulated fewer times
FLIPS = 199  # sign flips of max-t, whose p is exact at any number of them


class RateEstimate(NamedTuple):
    """A share of the simulated studies, with its 95 % Clopper-Pearson limits."""

    share: float
    low: float
    high: float


class DecisionErrors(NamedTuple):
    confirmed: RateEstimate
    refuted: RateEstimate
    wrong: RateEstimate  # either verdict; with a margin the more frequent one, since each has its own level
    studies: int
    setting: Setting

    def exceeds(self, alpha: float, limit: float = LIMIT) -> bool:
        """Return whether the error is above `limit` times nominal beyond Monte Carlo error."""
        return self.wrong.low > limit * alpha


def decision_errors(
    plan: StudyPlan, rng: np.random.Generator, settings: Iterable[Setting] | None = None
) -> DecisionErrors:
    """Return how often the rule of `plan` gives CONFIRMED and REFUTED when all arms are equally good, in the
    setting with the largest error.

    Every setting is simulated with few studies, the worst ones with more. Raises ValueError for a task of
    fewer than two problems.
    """
    margin = "margin" in plan.content["decision"]
    candidates = list(settings or null_populations.settings(len(plan.content["seeds"]), margin=margin))
    if len(candidates) > WORST_SETTINGS:
        first_results = [errors_in_setting(plan, setting, FIRST_STUDIES, rng) for setting in candidates]
        candidates = [
            result.setting for result in sorted(first_results, key=lambda result: -result.wrong.share)[:WORST_SETTINGS]
        ]
    return max(
        (errors_in_setting(plan, setting, STUDIES, rng) for setting in candidates),
        key=lambda result: result.wrong.share,
    )


def errors_in_setting(plan: StudyPlan, setting: Setting, studies: int, rng: np.random.Generator) -> DecisionErrors:
    """Return the error rates in one setting. Caches match and every lane has a grade. An interval is below
    zero if the test rejects.

    A rule with a margin is simulated with the subject worse by exactly the margin. CONFIRMED is wrong there,
    and most frequent if only as many contrasts are at the margin as make it wrong (`Rule.lossy_indices`, one
    for most rules) and all other answers are equal; REFUTED is wrong too, and most frequent if all contrasts
    are at the margin.
    """
    planned, margin = planned_contrasts(plan), float(plan.content["decision"].get("margin") or 0)
    lanes = sum(2 * len(plan.content["seeds"]) * contrast.problems + 1 for contrast in planned)
    studies = max(200, min(studies, LATTICE // lanes))
    if not margin:
        verdicts = _verdicts(plan, simulate_gains(plan, setting, studies, rng), rng)
        confirmed, refuted = (_estimate_rate(verdicts, verdict) for verdict in (CONFIRMED, REFUTED))
        decided_rate = _estimate_rate([verdict if verdict == INCONCLUSIVE else "" for verdict in verdicts], "")
        return DecisionErrors(confirmed, refuted, decided_rate, studies, setting)
    all_gains = simulate_gains(plan, setting, studies, rng, margin)
    lossy = rules.RULES[plan.content["decision"]["rule"]].lossy_indices(planned)
    lossy_gains = [gains if index in lossy else np.zeros_like(gains) for index, gains in enumerate(all_gains)]
    confirmed = _estimate_rate(_verdicts(plan, lossy_gains, rng), CONFIRMED)
    refuted = _estimate_rate(_verdicts(plan, all_gains, rng), REFUTED)
    return DecisionErrors(confirmed, refuted, max(confirmed, refuted), studies, setting)


def _verdicts(plan: StudyPlan, gains: Sequence[NDArray[np.int64]], rng: np.random.Generator) -> list[str]:
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
            verdicts[index] = rule.verdict(contrasts, decision)
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
    about = {"discordance": f"{rates.setting.discordance:g}", "setting": str(rates.setting)}
    return {"studies": rates.studies, **about, **digits}


def _estimate_rate(verdicts: Sequence[str], verdict: str) -> RateEstimate:
    count = verdicts.count(verdict)
    return RateEstimate(count / len(verdicts), *clopper_pearson(count, len(verdicts)))
