"""How often a 95 % interval holds the truth where answers have scores or problems come in clusters.

    python -m benchmarks.scores_and_clusters [STUDIES]

Two arms whose scores have many ties at 0 and 1, with sizes of clusters drawn anew in each study, so that the
truth is the ratio of means that a mean over problems estimates. Prints the table of
docs/decisions/42-scores-and-clusters.md: t, bootstrap and sign flips over clusters, few, more and most of them,
and t over problems beside. 1,000 studies of a row take half a minute.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from analysis.stats import resampled_units

__all__ = ["METHODS", "SIZES", "Setting", "Study", "covered", "main", "scores", "settings", "study"]

STUDIES = 1_000
DRAWS = 999
METHODS = ("t", "bootstrap", "sign-flip")
TIES = {0.0: 0.35, 1.0: 0.15}  # shares of scores; those between are of Beta(2, 2)
WITHIN = 0.3  # of the variance of an answer: what the arms share in a cluster, and again what each has alone
LOST = 0.05  # share of problems that lose all of their score, in the skewed setting
RISE = 0.1  # by which the subject is better in clusters of more problems than the median; scores then of 1.1

Sizes = Callable[[np.random.Generator, int], NDArray[np.int64]]
SIZES: Mapping[str, Sizes] = MappingProxyType(
    {
        "1": lambda rng, clusters: np.ones(clusters, dtype=np.int64),
        "5": lambda rng, clusters: np.full(clusters, 5),
        "1 to 9": lambda rng, clusters: rng.integers(1, 10, clusters),
        "1 to 60": lambda rng, clusters: np.ceil(60 ** rng.random(clusters)).astype(np.int64),
    }
)


class Setting(NamedTuple):
    """sizes: a name of SIZES. truth: "equal", "some lose all" or "large gain"."""

    clusters: int
    sizes: str
    scored: bool
    truth: str


class Study(NamedTuple):
    difference: NDArray[np.float64]  # [problem, 1]
    clusters: list[str]
    mean: float  # in the population


def scores(latent: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of normal latent variables: 0 and 1 as often as TIES says, else Beta(2, 2)."""
    share = special.ndtr(latent)
    between = np.clip((share - TIES[0.0]) / (1 - sum(TIES.values())), 0, 1)
    found: NDArray[np.float64] = np.round(stats.beta(2, 2).ppf(between), 6)
    return found


def study(setting: Setting, rng: np.random.Generator) -> Study:
    sizes = SIZES[setting.sizes](rng, setting.clusters)
    of = np.repeat(np.arange(setting.clusters), sizes)
    shared, own = rng.normal(size=(1, setting.clusters)), rng.normal(size=(2, setting.clusters))
    rest = rng.normal(size=(2, len(of)))
    latent = np.sqrt(WITHIN) * (shared + own)[:, of] + np.sqrt(1 - 2 * WITHIN) * rest
    if not setting.scored:
        subject, comparator = (latent > 0).astype(np.float64)
        mean = 0.5
    else:
        subject, comparator = scores(latent)
        mean = TIES[1.0] + 0.5 * (1 - sum(TIES.values()))
    if setting.truth == "some lose all":  # of one arm, so that no other problem differs
        subject = np.where(rng.random(len(of)) < LOST, 0.0, comparator)
        return Study((subject - comparator)[:, None], list(map(str, of)), -LOST * mean)
    difference, truth = subject - comparator, 0.0
    if setting.truth == "large gain":
        drawn = SIZES[setting.sizes](np.random.default_rng(0), 10**6)
        bound = np.median(drawn)
        difference = (difference + RISE * (sizes > bound)[of]) / (1 + RISE)
        truth = RISE * float(drawn[drawn > bound].sum() / drawn.sum()) / (1 + RISE)
    return Study(difference[:, None], list(map(str, of)), truth)


def covered(setting: Setting, studies: int, seed: int) -> dict[str, float]:
    """The share of studies whose interval holds the truth, by method; "t of problems" knows no clusters."""
    rng = np.random.default_rng([seed, *map(ord, str(setting))])
    held = dict.fromkeys((*METHODS, "t of problems"), 0)
    for _ in range(studies):
        made, stream = study(setting, rng), int(rng.integers(2**31))
        for name in held:
            method, clusters = (name, made.clusters) if name in METHODS else ("t", None)
            (found,) = resampled_units.compare_at_levels(
                method,
                made.difference,
                clusters,
                [0.95],
                draws=DRAWS,
                rng=lambda at=stream: np.random.default_rng(at),  # type: ignore[misc]
            )
            held[name] += found.low <= made.mean <= found.high
    return {name: count / studies for name, count in held.items()}


def settings() -> list[Setting]:
    alone = [
        Setting(problems, "1", True, truth)
        for truth, problems in itertools.product(("equal", "some lose all"), (40, 100, 200))
    ]
    together = [
        Setting(clusters, sizes, scored, "equal")
        for scored, sizes, clusters in itertools.product((True, False), ("5", "1 to 9", "1 to 60"), (20, 40, 60))
    ]
    larger = [Setting(clusters, "1 to 60", True, "large gain") for clusters in (20, 40, 60)]
    return alone + together + larger


def main(argv: list[str] | None = None) -> int:
    given = sys.argv[1:] if argv is None else argv
    studies = int(given[0]) if given else STUDIES
    print("| answers | truth | problems in one | few | more | most | t that knows no clusters |")
    print("|---|---|---|---:|---:|---:|---:|")
    for (scored, truth, sizes), group in itertools.groupby(settings(), lambda one: (one[2], one[3], one[1])):
        found = [covered(setting, studies, 1) for setting in group]
        each = [" / ".join(f"{100 * one[name]:.1f}" for name in METHODS) for one in found]
        alone = " / ".join(f"{100 * one['t of problems']:.1f}" for one in found)
        what = "scores" if scored else "right or wrong"
        print("| " + " | ".join((what, truth, sizes, *each, alone)) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
