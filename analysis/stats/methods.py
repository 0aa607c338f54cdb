"""The registered methods by name: which fields they need and how texts describe them. Computes nothing.

`paired_tests.compare` compares two arms by each of them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

AS_PUBLISHED = "as-published"  # judges by a published method; SOUND_METHOD judges the same records beside it
SOUND_METHOD = "restricted-likelihood"
EXACT_BELOW = 500  # `auto` is exact below this many differing problems; simulated in benchmarks/validity

# No interval is valid below this effective number of clusters: if one large cluster and many small ones count
# as 3, nominal 95 % intervals cover 38 to 66 % (docs/decisions/42-scores-and-clusters.md).
MIN_CLUSTERS = 5

# Problems, or clusters; fewer are a screening ("Minimal-Intervention KV Retention", section 6).
MIN_CONFIRMATORY = 200


class Method(NamedTuple):
    text: str  # for a registration text, a format string for the registered decision
    draws: bool = True  # needs decision.draws and decision.seed; t needs them for other printed p
    family: bool = False  # adjusts p for the whole family itself; otherwise Bonferroni does
    needs_counts: bool = (
        False  # needs counts of right and wrong answers of independent problems: no scores, no clusters
    )


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "bootstrap": Method("the paired bootstrap over problems (percentile interval, {draws} draws, seed {seed})"),
        AS_PUBLISHED: Method(
            "the reproduction of a published one: the paired bootstrap over problems (percentile "
            "interval, {draws} draws, seed {seed}); its error rate under this rule is simulated and "
            f"reported next to the verdict, together with the verdict by {SOUND_METHOD} on the same records",
            needs_counts=True,
        ),
        "exact-bootstrap": Method(
            "the paired bootstrap over problems, computed from every resample by its weight (percentile "
            "interval, no draws and no seed)",
            draws=False,
            needs_counts=True,
        ),
        "t": Method("Student's t on the differences of the problems"),
        "cr2": Method(
            "Student's t on the differences of the problems or, of clusters, with the bias-reduced cluster-robust "
            "error (CR2) and Satterthwaite's degrees of freedom (no draws and no seed)",
            draws=False,
        ),
        "restricted-likelihood": Method(
            "the restricted-likelihood test (the exact probability of the sum under the most likely shares "
            "with no difference, with the interval that inverts it; no draws and no seed)",
            draws=False,
            needs_counts=True,
        ),
        "auto": Method(
            f"the restricted-likelihood test where fewer than {EXACT_BELOW} problems differ, in either direction, "
            "else Student's t (no draws and no seed)",
            draws=False,
            needs_counts=True,
        ),
        "betting": Method(
            "the betting test of a bounded mean (constant stakes on every unit, averaged over a grid of "
            "stakes; its level is valid for any distribution of the differences; no draws and no seed)",
            draws=False,
        ),
        "sign-flip": Method(
            "the paired sign-flip permutation test over problems ({draws} draws, or all sign patterns if "
            "there are no more, seed {seed})"
        ),
        "max-t": Method(
            "single-step max-t: the signs of whole problems are flipped in all contrasts together ({draws} "
            "draws, seed {seed}), and |t| of a contrast is compared with the largest of the family; a "
            "single contrast uses Student's t",
            family=True,
        ),
    }
)


METHODS_FOR_SCORES = tuple(name for name, method in METHODS.items() if not method.needs_counts)
MARGIN_METHODS = ("t", "restricted-likelihood", "auto", "betting", "cr2")  # may be registered with a margin


SPENDING = ("obrien-fleming", "pocock")  # error-spending functions of a design with looks: `stats.sequential`
# Methods whose p has, at every look, a normal quantile of one Brownian motion, to an approximation that
# benchmarks/looks.py simulates; and betting, whose p needs none.
LOOK_METHODS = ("t", "restricted-likelihood", "auto", "betting", "sign-flip")
ANYTIME_METHOD = "betting"


def draws_and_seed(decision: Mapping[str, Any]) -> tuple[int, int]:
    """Return draws and seed of a registered decision; 10,000 and 0 for a method that registers none."""
    return decision.get("draws", 10_000), decision.get("seed", 0)


def resampling_problems(item: Mapping[str, Any]) -> list[str]:
    """Return the held-out problems of a task, as in the lock; for a task with clusters the first problem of
    each of the first clusters, as many as `effective_clusters` counts.
    """
    clusters = item.get("clusters")
    if clusters is None:
        return list(item["confirm"])
    first: dict[str, str] = {}
    for problem in item["confirm"]:
        first.setdefault(clusters.get(problem, problem), problem)
    weight = effective_clusters(clusters.get(problem, problem) for problem in item["confirm"])
    return list(first.values())[:weight]


def effective_clusters(clusters: Iterable[str]) -> int:
    """Return the effective number of clusters: n^2 over the sum of squared sizes, rounded down (Kish 1965,
    section 11.7, with a cluster's share of the problems as its weight). clusters: of each problem.

    It is G for G equal clusters, and 1 if one cluster has nearly all problems, however many others there are:
    the error of the mean is then that of one cluster, whose spread cannot be estimated. Of no problem it is 0.
    """
    sizes = Counter(clusters).values()
    return sum(sizes) ** 2 // max(1, sum(size * size for size in sizes))


def format_clusters(clusters: int, effective: int) -> str:
    """Format a number of clusters, with their effective number where sizes differ."""
    return f"{clusters} clusters" + (f" (effective number {effective})" if effective < clusters else "")


def describe_clusters(item: Mapping[str, Any]) -> str:
    """Describe how many clusters the held-out problems of a task form."""
    clusters = len({item["clusters"].get(problem, problem) for problem in item["confirm"]})
    return format_clusters(clusters, len(resampling_problems(item)))


def describe_sizes(items: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Describe the held-out problems of all tasks that have the same number of units, by that number: problems, or
    effective clusters of a task whose clusters hold several problems. items: of a lock.
    """
    texts: dict[str, list[str]] = {}
    for item in items.values():
        problems, units = len(item["confirm"]), len(resampling_problems(item))
        text = f"{problems} problems" + (f" in {describe_clusters(item)}" if units < problems else "")
        texts.setdefault(str(units), []).append(text)
    return {units: " or ".join(dict.fromkeys(same)) for units, same in texts.items()}
