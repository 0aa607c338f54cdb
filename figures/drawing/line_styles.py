"""Line styles of arms: colour, dashes and marker, each sufficient to distinguish arms."""

import itertools
from collections.abc import Sequence
from typing import Any

from figures.drawing.page import INK

# Okabe & Ito, distinguishable for the colour-blind, without the yellow, which is too pale on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", INK)
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
MARKERS = ("o", "s", "^", "D", "v")


def styles(arms: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return matplotlib's line style of each arm, in this order. 140 arms are distinguishable."""
    kinds = zip(itertools.cycle(COLOURS), itertools.cycle(DASHES), itertools.cycle(MARKERS), strict=False)
    names = ("color", "linestyle", "marker")
    return {arm: dict(zip(names, kind, strict=True)) for arm, kind in zip(arms, kinds, strict=False)}
