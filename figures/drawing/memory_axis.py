"""The axis of memory: a tick for each budget, at the mean memory of its arms."""

import itertools
import math
from typing import Any

from figures.drawing.curves import Curves
from figures.drawing.page import text_width

LOG_AXIS_RATIO = 4  # maximum over minimum memory above which the axis is logarithmic


def draw_memory_axis(axes: Any, curves: Curves) -> None:
    """Set a tick for each budget at the mean memory of its arms; ticks that would overlap another are left
    out, smallest first.
    """
    by_budget: dict[str, list[float]] = {}
    for point in itertools.chain(*curves.arms.values()):
        by_budget.setdefault(point.budget, []).append(point.value)
    every = [memory for memories in by_budget.values() for memory in memories]
    least, most = min(every), max(every)
    is_log = least > 0 and most > LOG_AXIS_RATIO * least
    scale = math.log if is_log else float
    room = 0.08 * (scale(most) - scale(least)) or 1
    axes.set_xscale("log" if is_log else "linear")
    axes.minorticks_off()
    ends = (scale(least) - room, scale(most) + room)
    axes.set_xlim(*(map(math.exp, ends) if is_log else ends))
    inch = axes.get_position().width * axes.figure.get_figwidth() / (ends[1] - ends[0])
    ticks: list[tuple[float, str]] = []
    for budget, memories in sorted(by_budget.items(), key=lambda item: -max(item[1])):
        mean = sum(memories) / len(memories)
        text = f"{mean:.0f}\n({budget})"
        width = max(map(text_width, text.split("\n"))) + 0.06
        if not ticks or (scale(ticks[-1][0]) - scale(mean)) * inch > width:
            ticks.append((mean, text))
    axes.set_xticks([memory_mean for memory_mean, _ in ticks], [text for _, text in ticks])
