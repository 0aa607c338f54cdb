"""The registered methods by name: what a protocol has to say of each and what texts say; nothing is computed.

`paired_tests.COMPARE` compares two arms by each of them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = ["FEW", "MARGINS", "METHODS", "WITHOUT_COUNTS", "Method", "draws", "resampled"]

FEW = 500  # differing problems below which `auto` is exact; benchmarks/validity has the simulation


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
    """The held-out problems of a task, as a lock holds them; of a task with clusters the first of each: so
    many are resampled.
    """
    clusters = item.get("clusters")
    if clusters is None:
        return list(item["confirm"])
    first: dict[str, str] = {}
    for problem in item["confirm"]:
        first.setdefault(clusters.get(problem, problem), problem)
    return list(first.values())
