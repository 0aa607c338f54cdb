"""The registered methods by name: what a protocol has to say of each and what texts say; nothing is computed.

`paired_tests.COMPARE` compares two arms by each of them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = [
    "FEW",
    "LEAST",
    "MARGINS",
    "METHODS",
    "WITHOUT_COUNTS",
    "Method",
    "draws",
    "effective",
    "resampled",
    "together",
]

FEW = 500  # differing problems below which `auto` is exact; benchmarks/validity has the simulation

# Clusters of one size, or that weigh as much, below which no interval holds: where one large cluster and many
# small ones weigh as 3, 38 to 66 % of nominal 95 % intervals do (benchmarks.uneven_clusters).
LEAST = 5


class Method(NamedTuple):
    words: str  # of a registration text, to be filled with the registered decision
    draws: bool = True  # decision.draws and decision.seed are registered; of t, for the p printed beside it
    family: bool = False  # adjusts the p of a whole family; else Bonferroni does
    counts: bool = (
        False  # counts answers that are right or wrong, each problem for itself: no scores, no clusters
    )


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "bootstrap": Method(
            "the paired bootstrap over problems (percentile interval, {draws} draws, seed {seed})"
        ),
        "exact-bootstrap": Method(
            "the paired bootstrap over problems, computed from every resample by its weight (percentile "
            "interval, no draws and no seed)",
            draws=False,
            counts=True,
        ),
        "t": Method("Student's t on the differences of the problems"),
        "restricted-likelihood": Method(
            "the restricted-likelihood test (the exact chance of the sum under the likeliest shares that "
            "have no difference, with the interval that inverts it; no draws and no seed)",
            draws=False,
            counts=True,
        ),
        "auto": Method(
            f"the restricted-likelihood test where fewer than {FEW} problems differ, in either direction, "
            "else Student's t (no draws and no seed)",
            draws=False,
            counts=True,
        ),
        "sign-flip": Method(
            "the paired sign-flip permutation test over problems ({draws} draws, or all of them where there "
            "are no more, seed {seed})"
        ),
        "max-t": Method(
            "single-step max-t: the signs of whole problems are flipped in all contrasts together ({draws} "
            "draws, seed {seed}), and |t| of a contrast is compared with the largest of the family; a "
            "contrast alone has Student's t",
            family=True,
        ),
    }
)


WITHOUT_COUNTS = tuple(name for name, method in METHODS.items() if not method.counts)
MARGINS = ("t", "restricted-likelihood", "auto")  # that may be registered with a margin


def draws(decision: Mapping[str, Any]) -> tuple[int, int]:
    """Draws and seed of a registered decision; what is drawn beside a method without any has 10,000 and 0."""
    return decision.get("draws", 10_000), decision.get("seed", 0)


def resampled(item: Mapping[str, Any]) -> list[str]:
    """The held-out problems of a task, as a lock holds them; of a task with clusters the first of each, of as
    many as weigh alike (`effective`): so much is known.
    """
    clusters = item.get("clusters")
    if clusters is None:
        return list(item["confirm"])
    first: dict[str, str] = {}
    for problem in item["confirm"]:
        first.setdefault(clusters.get(problem, problem), problem)
    every = effective(clusters.get(problem, problem) for problem in item["confirm"])
    return list(first.values())[:every]


def effective(clusters: Iterable[str]) -> int:
    """Of the clusters of problems, how many of one size weigh as much: n^2 over the sum of the squared sizes,
    rounded down (Kish 1965, section 11.7, where the weight of a cluster is its share of the problems).

    It is G of G equal clusters, and 1 where one of them holds nearly all problems, however many others there
    are: the error of the mean is then that of one cluster, of which nothing shows the spread.
    """
    sizes = Counter(clusters).values()
    return sum(sizes) ** 2 // sum(size * size for size in sizes)


def together(item: Mapping[str, Any]) -> str:
    """How many clusters the held-out problems of a task come in, in words."""
    there = len({item["clusters"].get(problem, problem) for problem in item["confirm"]})
    weigh = len(resampled(item))
    alike = f", whose sizes differ so that they weigh as {weigh} of one size" if weigh < there else ""
    return f"{there} clusters{alike}"
