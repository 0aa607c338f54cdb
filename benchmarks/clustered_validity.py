"""How often whole rules err, and families of intervals fail, where problems come in clusters or have scores.

    python -m benchmarks.clustered_validity            # 2,000 studies a setting
    python -m benchmarks.clustered_validity --quick    # 300 of them, two shapes

A family of two models and two budgets at 0.05. Every method that takes such data meets every rule that takes it. What
registering refuses for one contrast is printed with its error and its worst setting, and not simulated further. Of the
others the whole rule is simulated in every null population, where nothing is true and at the rule's partial nulls.
Populations are those of registering, of which other studies are drawn; clusters have uneven sizes. Coverage is the
share of families whose four intervals, at the corrected level, all hold the truth: none of its tests rejects it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis import rules
from analysis.rules.rule import Contrast, PartialNull
from analysis.rules.self_test_cases import PlannedContrast
from analysis.rules.verdicts import CONFIRMED, REFUTED
from analysis.simulation import cluster_populations
from analysis.simulation.cluster_populations import ClusterSetting
from analysis.simulation.null_populations import SCORE_STEPS
from analysis.stats import power
from analysis.stats.comparison import Margins
from analysis.stats.methods import METHODS_FOR_SCORES, MIN_CLUSTERS
from benchmarks import null_grid
from benchmarks.report import table
from protocol.formats.vocabulary import CURRENT_JUDGING

__all__ = ["SHAPES", "Shape", "main", "rates_in_setting"]

ALPHA, FAMILY, MARGIN = 0.05, 4, null_grid.MARGIN
GAIN = 0.3  # points by which a contrast is truly won at a partial null


class Shape(NamedTuple):
    """sizes: problems of each cluster. seeds: of right and wrong answers; SCORE_STEPS for scores."""

    name: str
    sizes: tuple[int, ...]
    seeds: int


def _uneven(clusters: int) -> tuple[int, ...]:
    """Return sizes from 1 to 13 that grow evenly."""
    return tuple(np.linspace(1, 13, clusters).round().astype(int).tolist())


SHAPES = (
    *(
        Shape(f"{count} clusters of 1 to 13", _uneven(count), seeds)
        for count in (3, 5, 10, 42, 200)
        for seeds in (1, 3)
    ),
    *(Shape("160 clusters of 1, 40 of 2", (1,) * 160 + (2,) * 40, seeds) for seeds in (1, 3)),
    *(Shape(f"{count} problems with scores", (1,) * count, SCORE_STEPS) for count in (60, 287)),
    Shape("42 clusters of 1 to 13 with scores", _uneven(42), SCORE_STEPS),
)
QUICK = (SHAPES[6], SHAPES[10])  # 42 clusters; 160 of 1 and 40 of 2


class Rates(NamedTuple):
    """Shares of studies: CONFIRMED where it is wrong, any wrong verdict, and families that hold the truth."""

    confirmed: float
    wrong: float
    covered: float


def rates_in_setting(
    rule: str, method: str, shape: Shape, setting: ClusterSetting, studies: int, rng: np.random.Generator
) -> Rates:
    """Return the worst rates over the nulls of a rule in one population. A rule with a margin meets one contrast on the
    margin, the others without any difference, for CONFIRMED; and all on it for REFUTED.
    """
    decision, sizes = null_grid.decision(rule, method), np.asarray(shape.sizes)
    margin = MARGIN if "margin" in decision else 0.0
    draws = power.draws_needed(ALPHA / FAMILY)
    planned = [
        PlannedContrast(model, "task", budget, decision["against"][0], len(sizes), decision["subject"])
        for model in ("first", "second")
        for budget in ("0.2", "0.1")
    ]
    tails, means = [], []
    for _ in planned:
        drawn = cluster_populations.draw_cluster_means(setting, sizes, shape.seeds, studies, rng, margin)
        tails.append(cluster_populations.cluster_tails(method, drawn, sizes, -margin, draws, rng))
        means.append(drawn @ sizes / sizes.sum())
    rejects = np.stack([2 * each.min(axis=1) <= ALPHA / FAMILY for each in tails])
    covered = 1 - float(rejects.any(axis=0).mean())
    if margin:
        lossy = rules.RULES[rule].lossy_indices(planned)
        nulls = [
            PartialNull("", frozenset(range(FAMILY)) - frozenset(lossy), (CONFIRMED,)),
            PartialNull("", frozenset(), (REFUTED,)),
        ]
    else:
        nulls = [
            PartialNull("", frozenset(), (CONFIRMED, REFUTED)),
            *rules.RULES[rule].partial_nulls(planned, decision),
        ]
    confirmed = wrong = 0.0
    for null in nulls:
        verdicts = _verdicts(rule, decision, planned, null.won, tails, means, margin)
        if CONFIRMED in null.wrong:
            confirmed = max(confirmed, verdicts.count(CONFIRMED) / studies)
        wrong = max(wrong, sum(map(verdicts.count, null.wrong)) / studies)
    return Rates(confirmed, wrong, covered)


def _verdicts(
    rule: str,
    decision: dict[str, Any],
    planned: Sequence[PlannedContrast],
    won: frozenset[int],
    tails: Sequence[NDArray[np.float64]],
    means: Sequence[NDArray[np.float64]],
    margin: float,
) -> list[str]:
    """Return the verdict of each study. won: contrasts that are truly won, or of a rule with a margin truly equal."""
    verdicts = []
    for study in range(len(means[0])):
        family = []
        for index, contrast in enumerate(planned):
            above, below = tails[index][study]
            mean, p = float(means[index][study]), 2 * float(min(above, below))
            limits = None
            if margin:
                limits = Margins(mean, -1.0, -1.0 if below <= ALPHA / FAMILY else 1.0, float(above), 0.0)
            if index in won:
                mean, p = (0.0, 1.0) if margin else (GAIN, 0.0)
                limits = Margins(0.0, -margin / 2, margin / 2, 0.0, 0.0) if margin else None
            family.append(
                Contrast(
                    **{name: getattr(contrast, name) for name in ("model", "task", "budget", "subject", "against")},
                    delta=mean,
                    high=-1.0 if mean < 0 and p * FAMILY <= ALPHA else 1.0,
                    p=min(1.0, p),
                    adjusted=min(1.0, FAMILY * p),
                    matched=True,
                    net=round(1e9 * mean),
                    lanes=10**9,
                    margins=limits,
                )
            )
        verdicts.append(rules.RULES[rule].decide(family, decision, CURRENT_JUDGING))
    return verdicts


@cache
def _gate(method: str, shape: Shape, margin: float) -> str:
    """Return why registering refuses the method for one contrast; empty if it does not."""
    levels = (ALPHA, ALPHA / FAMILY) if margin else (ALPHA / FAMILY,) * 2
    error = cluster_populations.worst_error_of_clusters(
        method, shape.sizes, shape.seeds, levels, np.random.default_rng(0), margin or None
    )
    return f"refused: {error.ratio:.2g} x its level where {error.setting}" if error.exceeds() else ""


def _row(rule: str, method: str, shape: Shape, studies: int) -> list[str]:
    names = [shape.name, "scores" if shape.seeds == SCORE_STEPS else str(shape.seeds), rule, method]
    if sum(shape.sizes) ** 2 // sum(size**2 for size in shape.sizes) < MIN_CLUSTERS:
        return [*names, f"refused: they weigh as fewer than {MIN_CLUSTERS} clusters", "", "", ""]
    margin = MARGIN if "margin" in null_grid.decision(rule, method) else 0.0
    if refused := _gate(method, shape, margin):
        return [*names, refused, "", "", ""]
    rng = np.random.default_rng([7, len(shape.sizes)])
    settings = cluster_populations.cluster_settings(shape.seeds, margin=bool(margin))
    rates = [rates_in_setting(rule, method, shape, setting, studies, rng) for setting in settings]
    shares = max(rate.confirmed for rate in rates), max(rate.wrong for rate in rates), min(r.covered for r in rates)
    return [*names, "registers", *(f"{100 * share:.1f}" for share in shares)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="300 studies a setting, two shapes")
    options = parser.parse_args(argv)
    pairs = [(rule, method) for rule, method in null_grid.pairs() if method in METHODS_FOR_SCORES]
    heads = ["data", "seeds", "rule", "method", "registering", "CONFIRMED, %", "wrong, %", "four intervals hold, %"]
    print(table(heads, []), flush=True)
    for shape in QUICK if options.quick else SHAPES:
        for rule, method in pairs:
            print(f"| {' | '.join(_row(rule, method, shape, 300 if options.quick else 2_000))} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
