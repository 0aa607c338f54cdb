"""The registered methods by name: what a protocol has to say of each and what texts say; nothing is computed.

`paired_tests.COMPARE` compares two arms by each of them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = ["METHODS", "Method", "draws"]


class Method(NamedTuple):
    words: str  # of a registration text, to be filled with the registered decision
    draws: bool = True  # decision.draws and decision.seed are registered; of t, for the p printed beside it
    family: bool = False  # adjusts the p of a whole family; else Bonferroni does


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "bootstrap": Method(
            "the paired bootstrap over problems (percentile interval, {draws} draws, seed {seed})"
        ),
        "exact-bootstrap": Method(
            "the paired bootstrap over problems, computed from every resample by its weight (percentile "
            "interval, no draws and no seed)",
            draws=False,
        ),
        "t": Method("Student's t on the differences of the problems"),
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


def draws(decision: Mapping[str, Any]) -> tuple[int, int]:
    """Draws and seed of a registered decision; what is drawn beside a method without any has 10,000 and 0."""
    return decision.get("draws", 10_000), decision.get("seed", 0)
