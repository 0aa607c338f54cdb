"""Every registered method with every rule over the null populations that registering looks at: how often the
whole rule decides, and which of them registering refuses. Part of `benchmarks.validity`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis import rules
from analysis.simulation import error_rates, error_table, null_populations, type_one_error
from analysis.simulation.null_populations import DISCORDANCES, GAINS, LOSSES, SYMMETRIC
from analysis.simulation.simulated_studies import StudyPlan
from analysis.simulation.study_pool import make_pool
from analysis.stats.methods import METHODS
from analysis.stats.paired_tests import compare
from benchmarks.report import table

__all__ = ["Row", "attainable", "attainable_table", "coverage_table", "grid_table", "pairs", "row"]

ALPHA = 0.05
MARGIN = 0.05
CELLS = 2  # contrasts of each of two models
BELOW = 0.03
ARMS = ("subject", "other", "full")


class Row(NamedTuple):
    """One method and rule at one size. shares: wrong decisions by setting; refused: why, or nothing."""

    rule: str
    method: str
    problems: int
    seeds: int
    shares: Mapping[null_populations.Setting, error_rates.DecisionErrors]
    refused: str


def pairs() -> list[tuple[str, str]]:
    """(rule, method) of every pair that may be registered."""
    return [
        (rule, method)
        for rule in rules.RULES
        for method in METHODS
        if rules.RULES[rule].refusal(decision(rule, method), 2 * CELLS) is None
    ]


def decision(rule: str, method: str) -> dict[str, Any]:
    """What the rule asks for, of two models and `CELLS` budgets; a lossless rule against the full cache."""
    asked = {field.name for field in rules.RULES[rule].fields}
    values: dict[str, Any] = {
        "primary_model": "first",
        "transfer_model": "second",
        "at_least": 1,
        "margin": str(MARGIN),
    }
    against = "full" if rule == "smallest_lossless" else "other"
    return {name: value for name, value in values.items() if name in asked} | {
        "rule": rule,
        "method": method,
        "subject": "subject",
        "against": [against],
        "alpha": str(ALPHA),
        "cache_tolerance": "0.02",
        "missing": "inconclusive",
    }


def plan(rule: str, method: str, problems: int, seeds: int) -> StudyPlan:
    budgets = [f"0.{at}" for at in range(1, CELLS + 1)]
    content = {
        "models": ["first", "second"],
        "seeds": [*range(seeds)],
        "budgets": budgets,
        "tasks": [{"name": "task"}],
        "arms": {arm: {"policy": arm} for arm in ARMS},
        "decision": decision(rule, method),
    }
    return StudyPlan(content, [], {"task": {"confirm": [str(number) for number in range(problems)]}})


def row(rule: str, method: str, problems: int, seeds: int, studies: int, seed: int) -> Row:
    rng, planned = np.random.default_rng([seed, problems, seeds]), plan(rule, method, problems, seeds)
    margin = planned.content["decision"].get("margin")
    settings = null_populations.settings(seeds, margin=margin is not None)
    shares = {
        one: error_rates.errors_in_setting(planned, error_rates.NullSetting(one), studies, rng) for one in settings
    }
    alone = _alone(method, problems, seeds, margin, rng)
    refused = f"refused: {alone.ratio:.1f} x" if alone.exceeds() else ""
    if not refused and any(one.surely_exceeds(ALPHA) for one in shares.values()):
        refused = "refused: the rule"
    return Row(rule, method, problems, seeds, shares, refused)


def _alone(
    method: str, problems: int, seeds: int, margin: str | None, rng: np.random.Generator
) -> type_one_error.TypeOneError:
    """Of one contrast, as registering finds it."""
    level = ALPHA / (2 * CELLS)
    if margin is None:
        found = error_table.look_up(error_table.TWO_SIDED, method, problems, seeds, level)
        return found or type_one_error.worst_type_one_error(method, problems, seeds, level, rng)
    sides = [
        error_table.look_up(test, method, problems, seeds, at, float(margin))
        for test, at in zip(error_table.MARGIN_TESTS, (ALPHA, level), strict=True)
    ]
    known = [one for one in sides if one is not None]
    if len(known) == len(sides):
        return max(known, key=lambda one: one.ratio)
    return type_one_error.worst_margin_error(method, problems, seeds, float(margin), (ALPHA, level), rng)


def grid_table(rows: Sequence[Row]) -> str:
    """A line for each row: the share of wrong decisions in the symmetric settings, and the worst skewed one;
    with a margin the worse of the two ways to be worse by it, and of both words. Methods that decided alike
    stand in one line.
    """
    named = [f"{100 * share:g} %" for share in DISCORDANCES]
    columns = ["rule, method", "n, seeds", *named, "skewed, worst", "registering"]
    lines: list[list[str]] = []
    for one in rows:
        cells = [worst(one, kind, (share,)) for kind, share in [(SYMMETRIC, share) for share in DISCORDANCES]]
        skewed = [worst(one, kind, DISCORDANCES) for kind in (GAINS, LOSSES)] if one.seeds > 1 else []
        said = [f"{100 * value:.1f}" + ("" if value >= BELOW else " d") for value in cells]
        said.append(f"{100 * max(skewed):.1f}" if skewed else "-")
        line = [f"{one.problems}, {one.seeds}", *said, one.refused or "holds"]
        if lines and lines[-1][1:] == line and lines[-1][0].startswith(f"{one.rule}, "):
            lines[-1][0] += f" = {one.method}"
        else:
            lines.append([f"{one.rule}, {one.method}", *line])
    return table(columns, lines)


def worst(one: Row, kind: str, among: Sequence[float]) -> float:
    return max(
        errors.wrong.share
        for setting, errors in one.shares.items()
        if setting.kind == kind and setting.discordance in among
    )


# ------------------------------------------------------------------------- what a test can attain at most


def attainable(problems: int, discordance: float, alpha: float, most: int = 8) -> float:
    """The largest chance to reject, at this share of discordant problems, of any test of one seed that does
    not randomise, that rejects both ways alike, for which more net wins of as many discordant problems are
    never weaker evidence, and that rejects no more often than alpha at any share of discordant problems.

    Every such test of up to `most` discordant problems is tried; what it does beyond counts as rejected here
    and costs it nothing elsewhere, so that this is a bound from above.
    """
    differ = np.arange(1, most + 1)
    options = []
    for count in differ:
        # reject from so many net wins on: the chance of that given `count` discordant problems
        net = range(count % 2 or 2, count + 1, 2)
        options.append([0.0] + [2 * float(stats.binom.sf((count + at) // 2 - 1, count, 0.5)) for at in net])
    shares = np.concatenate([np.geomspace(0.001, 0.3, 60), np.linspace(0.3, 1, 71), [discordance]])
    weights = stats.binom.pmf(differ[:, None], problems, shares)  # [count, share]
    sizes = np.zeros((1, len(shares)))
    for weight, chances in zip(weights, options, strict=True):
        sizes = (sizes[:, None] + np.array(chances)[:, None] * weight).reshape(-1, len(shares))
        sizes = sizes[(sizes <= alpha + 1e-12).all(axis=1)]
    best = sizes[:, -1] + stats.binom.sf(most, problems, discordance)
    return float(min(alpha, best.max()))


def attainable_table(sizes: Sequence[int], levels: Sequence[float]) -> str:
    shares = DISCORDANCES[:4]
    lines = [
        [f"{problems}, {level:g}"] + [f"{100 * attainable(problems, share, level):.2f}" for share in shares]
        for problems in sizes
        for level in levels
    ]
    return table(["n, level", *(f"{100 * share:g} %" for share in shares)], lines)


# ------------------------------------------------------------------------- coverage near a ceiling


def covered(method: str, problems: int, gains: float, losses: float, level: float) -> float:
    """How often an interval of one contrast at `level` holds the true difference, where a share of problems
    is gained and another lost, one seed; every study is weighed by its chance.
    """
    shares = np.array([losses, 1 - gains - losses, gains])
    pool = make_pool([shares], problems, [level], 2_000, np.random.default_rng(0))
    held = np.array([_holds(method, each, gains - losses, level) for each in pool.counts])
    return pool.rate(shares, held).rate


def _holds(method: str, counts: NDArray[np.int64], truth: float, level: float) -> bool:
    difference = np.repeat([-1.0, 0.0, 1.0], counts)[:, None]
    found = compare(method, difference, level=level, draws=2_000, rng=np.random.default_rng(0))
    return bool(found.low - 1e-9 <= truth <= found.high + 1e-9)


def coverage_table(methods: Sequence[str], problems: int, levels: Sequence[float]) -> str:
    """Coverage (%) where nothing is lost and a few problems are gained, and where a few differ either way."""
    truths = [(0.01, 0.0), (0.02, 0.0), (0.05, 0.0), (0.01, 0.01), (0.03, 0.01)]
    lines = [
        [f"{method}, {level:g}"]
        + [f"{100 * covered(method, problems, gains, losses, level):.1f}" for gains, losses in truths]
        for method in methods
        for level in levels
    ]
    named = [f"{100 * gains:g} % gained, {100 * losses:g} % lost" for gains, losses in truths]
    return table([f"method, level (n = {problems})", *named], lines)
