"""How often a 95 % interval holds the truth where clusters differ in size, by what they weigh as.

    python -m benchmarks.uneven_clusters [STUDIES]

Gaussian differences without an effect, 30 % of their variance common to a cluster. Prints the table of
docs/decisions/42-scores-and-clusters.md. 400 studies of a row take some ten seconds.
"""

import sys
from types import MappingProxyType

import numpy as np

from analysis.stats import resampled_units
from analysis.stats.methods import effective_clusters

__all__ = ["SIZES", "held", "main"]

SIZES = MappingProxyType(
    {
        "2,000 in one, 1 in 199 others": [2000, *[1] * 199],
        "200 in one, 1 in 199 others": [200, *[1] * 199],
        "100 in five, 1 in 195 others": [*[100] * 5, *[1] * 195],
        "30 in twenty, 1 in 180 others": [*[30] * 20, *[1] * 180],
        "1, 2, 5, 10, 20, 60 in 34 each": [1, 2, 5, 10, 20, 60] * 34,
    }
)
METHODS = ("t", "bootstrap", "sign-flip")
WITHIN = 0.3
SCALE = 0.1  # of a difference, far from the ends at -1 and 1


def held(sizes: list[int], studies: int, seed: int = 0) -> list[float]:
    """Share of studies whose interval holds zero, by method."""
    rng = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    names = [str(each) for each in clusters]
    found = np.zeros(len(METHODS))
    for _ in range(studies):
        common = np.sqrt(WITHIN) * rng.standard_normal(len(sizes))[clusters]
        own = np.sqrt(1 - WITHIN) * rng.standard_normal(len(clusters))
        difference = (SCALE * (common + own))[:, None]
        for place, method in enumerate(METHODS):
            (one,) = resampled_units.compare_at_levels(method, difference, names, [0.95], draws=999, rng=lambda: rng)
            found[place] += one.low <= 0 <= one.high
    return [float(each) / studies for each in found]


def main() -> None:
    studies = int(sys.argv[1]) if sys.argv[1:] else 400
    print("| problems in the clusters | weigh as | hold, % |\n|---|---:|---:|")
    for name, sizes in SIZES.items():
        names = [str(number) for number, size in enumerate(sizes) for _ in range(size)]
        shares = " / ".join(f"{100 * each:.1f}" for each in held(sizes, studies))
        print(f"| {name} | {effective_clusters(names)} | {shares} |")


if __name__ == "__main__":
    main()
