"""How often a 95 % interval holds the truth where clusters are few or differ in size, and where topics differ.

    python -m benchmarks.uneven_clusters [STUDIES]

First Gaussian differences without an effect, 30 % of their variance common to a cluster: the table of
docs/decisions/42-scores-and-clusters.md. Then answers that are right or wrong, whose effect varies between topics and
between templates and is zero on average: the table of docs/decisions/50-sampling-units.md. 400 studies of a row of the
first take some ten seconds, the second less in all.
"""

import sys
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.stats import resampled_units
from analysis.stats.cluster_robust import robust_mean
from analysis.stats.methods import effective_clusters

__all__ = ["SIZES", "held", "main", "wrong_wins"]

SIZES = MappingProxyType(
    {
        "2,000 in one, 1 in 199 others": [2000, *[1] * 199],
        "200 in one, 1 in 199 others": [200, *[1] * 199],
        "100 in five, 1 in 195 others": [*[100] * 5, *[1] * 195],
        "30 in twenty, 1 in 180 others": [*[30] * 20, *[1] * 180],
        "1, 2, 5, 10, 20, 60 in 34 each": [1, 2, 5, 10, 20, 60] * 34,
        "50 in three, 10 in seven, 2 in ten": [*[50] * 3, *[10] * 7, *[2] * 10],
        "60 in four, 10 in twelve, 2 in 24": [*[60] * 4, *[10] * 12, *[2] * 24],
        "60, 40, 30, 20, 12, 8, 5, 3, 2, 1": [60, 40, 30, 20, 12, 8, 5, 3, 2, 1],
        "20 in five": [20] * 5,
    }
)
METHODS = ("t", "bootstrap", "sign-flip", "cr2")
DESIGNS = (  # topics, templates, and how much the effect varies between them, points
    *((3, 1, 0.10, 0.0), (3, 1, 0.05, 0.0), (36, 20, 0.10, 0.0), (200, 24, 0.10, 0.0)),
    *((200, 24, 0.0, 0.05), (200, 24, 0.0, 0.10), (200, 24, 0.10, 0.10), (36, 20, 0.10, 0.10)),
)
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


def wrong_wins(
    topics: int, templates: int, topic_sd: float, template_sd: float, *, studies: int = 40_000
) -> list[float]:
    """Return how often the subject is called better (nominal 2.5 %) in 200 problems, where its effect is zero on
    average: by Student's t of problems, by CR2 of topics, by CR2 of templates, and by t of problems where the effect
    is zero on average over these templates.

    30 % of the answers differ. Effects of topics and templates are Gaussian, points. Topics and templates are crossed
    at random; with 200 topics each has one problem.
    """
    rng = np.random.default_rng([topics, templates, round(100 * topic_sd), round(100 * template_sd)])
    topic, template = np.arange(200) % topics, rng.integers(0, templates, 200)
    own = np.arange(200)
    by_topic = topic_sd * rng.standard_normal((studies, topics))[:, topic]
    by_template = template_sd * rng.standard_normal((studies, templates))[:, template]
    drawn = rng.random((studies, 200))
    anew, these = (
        _draw(0.3, by_topic + each, drawn) for each in (by_template, by_template - by_template.mean(axis=1)[:, None])
    )
    tests = [(anew, own), (anew, topic), (anew, template), (these, own)]
    return [
        float(_is_better(difference, labels).mean()) if len(set(labels)) > 1 else np.nan for difference, labels in tests
    ]


def _draw(differing: float, effect: NDArray[np.float64], drawn: NDArray[np.float64]) -> NDArray[np.float64]:
    gained = np.clip((differing + effect) / 2, 0, differing)
    return np.where(drawn < gained, 1.0, np.where(drawn < differing, -1.0, 0.0))


def _is_better(difference: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return in which studies of difference[study, problem] the subject is called better."""
    names, places = np.unique(labels, return_inverse=True)
    members = np.eye(len(names))[places]
    sizes = members.sum(axis=0)
    means = difference @ members / sizes
    weights, freedom = sizes / sizes.sum(), robust_mean(means[0], sizes).freedom
    mean = means @ weights
    error = np.sqrt((means - mean[:, None]) ** 2 @ (weights**2 / (1 - weights)))
    is_better: NDArray[np.bool_] = stats.t.sf(mean / np.maximum(error, 1e-12), freedom) <= 0.025
    return is_better


def main() -> None:
    studies = int(sys.argv[1]) if sys.argv[1:] else 400
    print("| problems in the clusters | weigh as | hold, % |\n|---|---:|---:|")
    for name, sizes in SIZES.items():
        names = [str(number) for number, size in enumerate(sizes) for _ in range(size)]
        shares = " / ".join(f"{100 * each:.1f}" for each in held(sizes, studies))
        print(f"| {name} | {effective_clusters(names)} | {shares} |")
    print(
        "\n| topics | templates | sd by topic | by template | t | CR2 of topics | CR2 of templates "
        "| t, for these templates |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for row in DESIGNS:
        shares = " | ".join(f"{100 * each:.1f}" for each in wrong_wins(*row))
        print(f"| {row[0]} | {row[1]} | {100 * row[2]:g} | {100 * row[3]:g} | {shares} |")


if __name__ == "__main__":
    main()
