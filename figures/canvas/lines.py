"""How arms are told apart where each is a line: by colour, dashes and marker, so that any one is enough."""

import itertools
from collections.abc import Sequence
from typing import Any

from figures.canvas.page import INK

__all__ = ["styles"]

# Okabe & Ito, in which no two look alike to the colour-blind, without the yellow that pales on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", INK)
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
MARKERS = ("o", "s", "^", "D", "v")


def styles(arms: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By arm, in this order: what matplotlib draws its line with. 140 arms are told apart."""
    kinds = zip(itertools.cycle(COLOURS), itertools.cycle(DASHES), itertools.cycle(MARKERS), strict=False)
    names = ("color", "linestyle", "marker")
    return {arm: dict(zip(names, kind, strict=True)) for arm, kind in zip(arms, kinds, strict=False)}
