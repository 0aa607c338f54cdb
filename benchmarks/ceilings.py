"""How often simultaneous intervals hold near a ceiling: 1 or 2 % of the problems gained, few or none lost.

    python -m benchmarks.ceilings            # 2,000 families a setting, 300 for methods that draw

For each setting the share of families of which every interval holds the true difference: of the method on its
own, and as a verdict prints it, with ends moved out to the exact test's (`max_t` moves them itself). Three
seeds; in half of the cells contrasts have the same answers.
"""

import argparse
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.stats import bootstrap, max_t, restricted_likelihood
from analysis.stats.comparison import Comparison
from analysis.stats.exact_ends import StudyEnds, widen_ends
from analysis.stats.paired_tests import sign_flip
from benchmarks.report import table

SEEDS, ALPHA, FLIPS = 3, 0.05, 1_999
SIZES, FAMILIES = (60, 201, 299, 500), (4, 12)
# Shares of the sums -3, ..., 3 of a problem's seeds; the rest is zero.
SETTINGS: Mapping[str, Mapping[int, float]] = MappingProxyType(
    {
        "1 % gained by all seeds": {3: 0.01},
        "2 % gained by all seeds": {3: 0.02},
        "3 % gained by one seed": {1: 0.03},
        "6 % gained by one seed": {1: 0.06},
        "2 % gained, 0.5 % lost by all seeds": {3: 0.02, -3: 0.005},
        "5 % gained by one seed, 0.5 % lost by all": {1: 0.05, -3: 0.005},
        "middle: 23 % gained, 12 % lost": {-3: 0.04, -2: 0.03, -1: 0.05, 1: 0.08, 2: 0.05, 3: 0.10},
    }
)


class Covered(NamedTuple):
    """Shares of families whose every interval holds the truth, by method."""

    own: dict[str, float]
    printed: dict[str, float]


def covered(setting: Mapping[int, float], problems: int, family: int, count: int, drawn: int) -> Covered:
    """Of `count` families, `drawn` of them for sign-flip and max-t."""
    rng = np.random.default_rng([problems, family, round(1e4 * sum(setting.values()))])
    shares = np.array([setting.get(step, 0.0) for step in range(-SEEDS, SEEDS + 1)])
    shares[SEEDS] = 1 - shares.sum()
    truth = float(shares @ np.arange(-SEEDS, SEEDS + 1)) / SEEDS
    sums = [_family(shares, problems, family, rng) for _ in range(count)]
    counts = np.concatenate([_counts(each) for each in sums])
    distinct, place = np.unique(counts, axis=0, return_inverse=True)
    level = 1 - ALPHA / family
    least = restricted_likelihood.limits(distinct, level=level)[place.ravel()]
    flat = counts.max(axis=1) == problems
    own = {
        "restricted-likelihood": StudyEnds(*least.T),
        "t": StudyEnds(*(end[place.ravel()] for end in _student(distinct, level))),
        "exact-bootstrap": StudyEnds(
            *(end[place.ravel()] for end in bootstrap.exact_limits(distinct, level=level)[:2])
        ),
    }
    own["t"], own["exact-bootstrap"] = (_flat(own[name], flat, counts, level) for name in ("t", "exact-bootstrap"))
    found: dict[str, list[Comparison]] = {"sign-flip": [], "max-t": []}
    for each in sums[:drawn]:
        cells = [each[:, [at]] / SEEDS for at in range(family)]
        found["sign-flip"] += [sign_flip(cell, level=level, draws=FLIPS, rng=rng) for cell in cells]
        found["max-t"] += max_t.max_t([cells], draws=FLIPS, rng=rng)[0]
    for name, each_of in found.items():
        own[name] = StudyEnds(np.array([one.low for one in each_of]), np.array([one.high for one in each_of]))

    def held(ends: StudyEnds) -> float:
        inside = (ends.low <= truth + 1e-9) & (truth - 1e-9 <= ends.high)
        return float(inside.reshape(-1, family).all(axis=1).mean())

    printed = {}
    for name, ends in own.items():
        rows = len(ends.low)
        moved = widen_ends(ends, least[:rows])
        kept = [np.where(flat[:rows], *both) for both in zip(ends, moved, strict=True)]
        printed[name] = held(StudyEnds(*kept))
    return Covered({name: held(ends) for name, ends in own.items()}, printed)


def _family(shares: NDArray[np.float64], problems: int, family: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """[problem, contrast]: sums over seeds."""
    alike = rng.random((problems, family)) < 0.5
    chance = np.where(alike, rng.random((problems, 1)), rng.random((problems, family)))
    return np.minimum(np.searchsorted(np.cumsum(shares), chance), 2 * SEEDS) - SEEDS


def _counts(sums: NDArray[np.int64]) -> NDArray[np.int64]:
    """[contrast, 2 SEEDS + 1]"""
    return np.stack([np.bincount(cell + SEEDS, minlength=2 * SEEDS + 1) for cell in sums.T])


def _student(counts: NDArray[np.int64], level: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    steps, problems = np.arange(-SEEDS, SEEDS + 1) / SEEDS, int(counts[0].sum())
    mean = counts @ steps / problems
    spread = np.maximum(counts @ steps**2 - problems * mean**2, 0) / (problems - 1)
    reach = stats.t.ppf((1 + level) / 2, problems - 1) * np.sqrt(spread / problems)
    return mean - reach, mean + reach


def _flat(ends: StudyEnds, flat: NDArray[np.bool_], counts: NDArray[np.int64], level: float) -> StudyEnds:
    """Problems without any difference have the rule of three; that all gain alike does not happen here."""
    other = 1 - (1 - level) ** (1 / int(counts[0].sum()))
    return StudyEnds(np.where(flat, -other, ends.low), np.where(flat, other, ends.high))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--families", type=int, default=2_000)
    count = parser.parse_args().families
    names = ("restricted-likelihood", "t", "exact-bootstrap", "sign-flip", "max-t")
    rows = []
    for family in FAMILIES:
        for problems in SIZES:
            for words, setting in SETTINGS.items():
                found = covered(setting, problems, family, count, max(1, count * 3 // 20))
                cells = [f"{100 * found.own[name]:.1f} to {100 * found.printed[name]:.1f}" for name in names]
                cells[0], cells[-1] = (f"{100 * found.printed[name]:.1f}" for name in (names[0], names[-1]))
                rows.append([str(family), str(problems), words, *cells])
    print(table(["contrasts", "n", "truth", *names], rows))


if __name__ == "__main__":
    main()
