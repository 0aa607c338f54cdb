"""What registered looks promise, printed at registration: their boundaries, and how many problems a study takes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.judgement.looks import list_deciding
from analysis.stats import betting
from analysis.stats.sequential import ANYTIME, Look

STUDIES = 4_000  # simulated for a mean number of problems, whose standard error is then about 1 %
DISCORDANCE = 0.2  # share of problems on which two arms differ, the smaller one for which power is printed


class LookPlan(NamedTuple):
    """A design with looks. levels: one-sided, at each look that may stop the study, at which a contrast decides for
    and against the subject. needed: contrasts that have to decide for it. margin: 0 without one.
    """

    looks: tuple[int, ...]
    spending: str
    levels: tuple[tuple[float, float], ...]
    contrasts: int
    needed: int
    margin: float


def plan_looks(decision: Mapping[str, Any], contrasts: int) -> LookPlan:
    """Return the design of a registered decision with looks and so many contrasts."""
    looks, spending = list_deciding(tuple(decision["looks"])), decision.get("spending") or ANYTIME
    alpha, margin = float(decision["alpha"]), float(decision.get("margin") or 0)
    gain, loss = (alpha, alpha / contrasts) if margin else (alpha / contrasts / 2,) * 2
    fractions = tuple(look / looks[-1] for look in looks)
    levels = tuple(
        (Look(spending, fractions[:number]).level(gain), Look(spending, fractions[:number]).level(loss))
        for number in range(1, len(looks) + 1)
    )
    return LookPlan(tuple(looks), spending, levels, contrasts, int(decision.get("at_least") or contrasts), margin)


def expected_problems(plan: LookPlan, difference: float, rng: np.random.Generator) -> float:
    """Return the mean number of problems of each task until a study stops, of independent contrasts with this true
    difference, where two arms differ on `DISCORDANCE` of the problems, or on as many as the difference needs.
    """
    differing = max(DISCORDANCE, abs(difference))
    chances = [(differing - difference) / 2, 1 - differing, (differing + difference) / 2]
    counts = np.zeros((STUDIES, plan.contrasts, 3), dtype=np.int64)
    problems, is_running, before = 0.0, np.ones(STUDIES, dtype=bool), 0
    for look, (gain, loss) in zip(plan.looks, plan.levels, strict=True):
        problems += float(is_running.mean()) * (look - before)
        counts += rng.multinomial(look - before, chances, size=(STUDIES, plan.contrasts))
        p_gain, p_loss = _one_sided_p(plan, counts)
        is_running &= ~_stops(plan, p_gain <= gain, p_loss <= loss)
        before = look
    return problems


def _one_sided_p(plan: LookPlan, counts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the p of each contrast for and against the subject, [study, contrast], from its counts of -1, 0 and 1."""
    if plan.spending == ANYTIME:
        p = betting.p_of_counts(counts.reshape(-1, 3), -plan.margin).reshape(*counts.shape[:2], 2)
        return p[..., 0], p[..., 1]
    total = counts.sum(axis=-1)
    mean = (counts[..., 2] - counts[..., 0]) / total
    error = np.sqrt(((counts[..., 0] + counts[..., 2]) / total - mean**2) / total)
    z = (mean + plan.margin) / np.maximum(error, 1e-9)
    return stats.norm.sf(z), stats.norm.sf(-z)


def _stops(plan: LookPlan, gains: NDArray[np.bool_], losses: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return whether the rule decides, [study]: enough gains, or a loss."""
    stops: NDArray[np.bool_] = (losses.sum(axis=1) > 0) | (gains.sum(axis=1) >= plan.needed)
    return stops


def describe_looks(lock: Mapping[str, Any]) -> list[str]:
    """Return the lines for people; none without looks."""
    decision, checks = lock["protocol"]["content"]["decision"], lock["checks"]
    if not decision.get("looks"):
        return []
    looks, plan = decision["looks"], plan_looks(decision, checks["tests"])
    early = [look for look in looks if look not in plan.looks]
    boundaries = ", ".join(
        f"{look} problems z {stats.norm.isf(gain):.3f} (one-sided p {gain:.2g})"
        for look, (gain, _) in zip(plan.looks, plan.levels, strict=True)
    )
    lines = [f"looks: a contrast decides at {boundaries}"]
    if early:
        lines.append(
            f"looks: {', '.join(map(str, early))} problems are only a screening: this look cannot stop the "
            "study and spends no alpha"
        )
    expected = [
        f"{expected_problems(plan, difference, np.random.default_rng(0)):.0f} {text}"
        for difference, text in _list_differences(plan, checks)
    ]
    return [
        *lines,
        f"looks: of {looks[-1]} problems a study takes on average {', '.join(expected)} (simulated, where arms differ "
        f"on {DISCORDANCE:.0%} of the problems)",
    ]


def _list_differences(plan: LookPlan, checks: Mapping[str, Any]) -> Sequence[tuple[float, str]]:
    """Return the true differences for which the number of problems is printed."""
    if plan.margin:
        return [(-plan.margin, "where the subject is worse by the margin"), (0.0, "where nothing differs")]
    differences = [(0.0, "where nothing differs")]
    (effects,) = [check["minimal_detectable_effect"] for check in checks["problems"].values()]
    if (effect := effects[f"{DISCORDANCE:.1f}"]) != "none":
        points = float(effect)
        differences += [(factor * points, f"at {100 * factor * points:.1f} points") for factor in (1, 2)]
    return differences
