"""The axis of memory: a tick for each budget, at the mean memory of its arms."""

import itertools
import math
from typing import Any

from figures.canvas.curves import Curves
from figures.canvas.page import inches

__all__ = ["memory_axis"]

WIDE = 4  # maximum over minimum memory above which the axis is logarithmic


def memory_axis(axes: Any, place: Curves) -> None:
    """Set a tick for each budget at the mean memory of its arms; ticks that would overlap another are left
    out, smallest first.
    """
    by_budget: dict[str, list[float]] = {}
    for one in itertools.chain(*place.arms.values()):
        by_budget.setdefault(one.budget, []).append(one.at)
    every = [memory for memories in by_budget.values() for memory in memories]
    least, most = min(every), max(every)
    wide = least > 0 and most > WIDE * least
    scale = math.log if wide else float
    room = 0.08 * (scale(most) - scale(least)) or 1
    axes.set_xscale("log" if wide else "linear")
    axes.minorticks_off()
    ends = (scale(least) - room, scale(most) + room)
    axes.set_xlim(*(map(math.exp, ends) if wide else ends))
    inch = axes.get_position().width * axes.figure.get_figwidth() / (ends[1] - ends[0])
    ticks: list[tuple[float, str]] = []
    for budget, memories in sorted(by_budget.items(), key=lambda each: -max(each[1])):
        mean = sum(memories) / len(memories)
        text = f"{mean:.0f}\n({budget})"
        width = max(map(inches, text.split("\n"))) + 0.06
        if not ticks or (scale(ticks[-1][0]) - scale(mean)) * inch > width:
            ticks.append((mean, text))
    axes.set_xticks([at for at, _ in ticks], [text for _, text in ticks])
