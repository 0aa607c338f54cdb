"""Plot of the slots that every arm used above its budget, step by step: equal memory after the prefill is not enough.

Two arms with the same memory at the start of decoding may differ by a factor of several later ("Minimal- Intervention
KV Retention", figure 2, which is a schema; these are measurements). The plot shows the difference from the budget, with
a strip for each arm: in one panel, arms that evict at the same steps would cover one another.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from figures.drawing import page
from figures.drawing.memory_traces import BAND, MomentStatistics, Trace
from figures.drawing.page import INK, MARGIN, PALE, WIDEST, text_width

POINTS = 1000  # of a line, at most
MANY = 16  # strips; more of them are in two columns
TALL, LOW, APART = 0.42, 0.32, 0.06  # inches: of a strip if they are few, if they are many, and between two
TITLE, BELOW = 0.58, 0.62  # inches: above the strips of a block, with the heads of its numbers; below
TICKS, LEAST, BETWEEN = 0.45, 1.0, 0.3  # inches: left of a strip, least width of one, between two blocks
NUMBERS = {"after\nprefill": 0.52, "mean": 0.52, "state": 0.72, "tok-eq": 0.52}  # inches
MINUS = "\N{MINUS SIGN}"
GROUND, SHADE = "#ececea", "#b5c9da"  # lanes that still decode; the band of their central values
LINE = "#0b4f86"


class Block(NamedTuple):
    """The arms of one model, task and budget, followed by those without a budget."""

    setting: tuple[str, str, str]
    strips: list[tuple[Trace, MomentStatistics]]
    full_arms: list[Trace]

    @property
    def name(self) -> str:
        model, task, budget = self.setting
        return f"{model} · {task} · budget {budget}"

    @property
    def limits(self) -> tuple[float, float]:
        """Limits of the difference, from the first step at which an arm reaches its budget on average; from the first
        step of all if it never does. The filling of the cache before that is cut off, since it would flatten the rest.
        """
        low, high = 0.0, 1.0
        for _, over in self.strips:
            up = np.flatnonzero(over.mean >= 0)
            low = min(low, float(over.mean[up[0] if len(up) else 0 :].min()))
            high = max(high, float(over.high.max()))
        room = 0.08 * (high - low)
        return min(low - room, -0.35 * high), high + room


def trajectories(judged: Mapping[str, Any], traces: Sequence[Trace]) -> Figure:
    """Draw a block for each model, task and budget, with a strip and numbers for each arm.

    An arm that never evicts has no budget to differ from, and only numbers. The gid of a line is
    "mean-<model>/<task>/<budget>/<arm>", that of its band "band-...", of the share of lanes "lanes-...", of
    the budget "nominal-...".
    """
    blocks = _list_blocks(traces)
    strips = sum(len(block.strips) for block in blocks)
    label = max(text_width(trace.arm) for trace in traces) + 0.1
    reserved = label + TICKS + sum(NUMBERS.values())
    room = WIDEST - 2 * MARGIN
    across = 2 if strips > MANY and (room - BETWEEN) / 2 - reserved >= LEAST else 1
    across = min(across, len(blocks))
    wide = max(
        (room - BETWEEN * (across - 1)) / across if across > 1 else min(room, reserved + 4.6),
        reserved + LEAST,
        *(text_width(block.name, weight="bold") for block in blocks),
    )
    high = LOW if strips > MANY else TALL
    lines = [blocks[at : at + across] for at in range(0, len(blocks), across)]
    body = sum(_height(line, high) for line in lines)
    paper = page.new_sheet(
        2 * MARGIN + across * wide + (across - 1) * BETWEEN,
        body,
        "Cache size above the budget, step by step (exploratory)",
        [
            page.study_status(judged),
            ("Memory is matched by the mean over a whole generation, not by the cache size after the prefill."),
        ],
        [
            (
                "Strip: slots in use per KV head and layer, minus the budget of the lane. Line: mean over the "
                f"lanes that still decode, all problems and seeds. Blue: {BAND[0]} to {BAND[1]} % of them. "
                "Dashed: the budget. Grey area: share of lanes that still decode; full height means all. All "
                "strips of a block share one scale, which may cut off a cache that is still filling up to its "
                "budget."
            ),
            (
                "after prefill: slots in use after the first eviction step. mean: over the whole generation of "
                "a lane, then over lanes. state: the most bytes of the policy's own state; tok-eq: the number "
                "of tokens whose stored keys and values take as many bytes."
            ),
        ],
    )
    top = body
    for line in lines:
        for column, block in enumerate(line):
            left = MARGIN + column * (wide + BETWEEN)
            _draw_block(paper, block, (left, top), (label, wide - reserved), high)
        top -= _height(line, high)
    return paper.figure


def _list_blocks(traces: Sequence[Trace]) -> list[Block]:
    blocks = []
    for setting in dict.fromkeys(trace[:2] for trace in traces):
        setting_traces = [trace for trace in traces if trace[:2] == setting]
        full_arms = [trace for trace in setting_traces if trace.over is None]
        for budget in dict.fromkeys(trace.budget for trace in setting_traces if trace.over is not None):
            strips = [
                (trace, trace.over) for trace in setting_traces if trace.budget == budget and trace.over is not None
            ]
            blocks.append(Block((*setting, budget), strips, full_arms))
    return blocks


def _height(line: Sequence[Block], high: float) -> float:
    rows = max(len(block.strips) for block in line)
    return TITLE + rows * (high + APART) + BELOW + 0.2 * max(len(block.full_arms) for block in line)


def _draw_block(
    paper: page.Sheet, block: Block, corner: tuple[float, float], width: tuple[float, float], high: float
) -> None:
    left, top = corner
    label, plot = width
    start = left + label + TICKS
    longest = max(len(over.mean) for _, over in block.strips)
    text = partial(paper.add_text, va="center", color=INK)
    text(left, top - 0.16, block.name, weight="bold")
    edges = dict(zip(NUMBERS, start + plot + np.cumsum(list(NUMBERS.values())), strict=True))
    for head, right in edges.items():
        text(right, top - TITLE + 0.1, head, ha="right", va="baseline", color=PALE, linespacing=1.0)
    between = " " if plot > text_width(f"slots in use {MINUS} budget") + 0.2 else "\n"
    axis = f"slots in use{between}{MINUS} budget"
    text(start, top - TITLE + 0.1, axis, va="baseline", color=PALE, linespacing=1.0)
    up = top - TITLE
    for number, (trace, over) in enumerate(block.strips):
        up -= high
        axes = paper.add_axes(start, up, plot, high)
        axes.set(xlim=(0, max(longest - 1, 1)), ylim=block.limits)
        _draw_strip(axes, trace, over)
        axes.spines[["right", "top", "bottom"]].set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=max(2, int(plot / 0.35)), integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=2, integer=True, steps=[1, 2, 5, 10]))
        last = number == len(block.strips) - 1
        axes.tick_params(labelbottom=last, bottom=last, labelleft=number == 0, labelsize=7.5)
        text(left, up + high / 2, trace.arm)
        _draw_numbers(text, edges, trace, up + high / 2, INK)
        up -= APART
    text(start + plot / 2, up - 0.28, "tokens decoded", ha="center")
    for number, trace in enumerate(block.full_arms):
        y = up - 0.32 - 0.2 * (number + 0.5)
        text(left, y, f"{trace.arm} (no budget)", color=PALE)
        _draw_numbers(text, edges, trace, y, PALE)


def _draw_strip(axes: Any, trace: Trace, over: MomentStatistics) -> None:
    name = "/".join(trace[:4])
    starts = _block_starts(len(over.mean))
    low, high = np.minimum.reduceat(over.low, starts), np.maximum.reduceat(over.high, starts)
    floor, ceiling = axes.get_ylim()
    decoding = _block_means(over.lanes / over.lanes[0], starts)
    under = {"linewidth": 0, "zorder": 0}
    axes.fill_between(starts, floor, floor + (ceiling - floor) * decoding, color=GROUND, gid=f"lanes-{name}", **under)
    axes.fill_between(starts, low, high, color=SHADE, gid=f"band-{name}", **under)
    axes.plot(starts, _block_means(over.mean, starts), color=LINE, linewidth=0.9, gid=f"mean-{name}")
    dashed = {"color": INK, "linewidth": 0.8, "linestyle": (0, (4, 2)), "zorder": 1}
    axes.axhline(0, gid=f"nominal-{name}", **dashed)


def _block_starts(moments: int) -> NDArray[np.int64]:
    """Return the first step of each point: every step, or blocks of neighbours if there are many."""
    return np.arange(0, moments, -(-moments // POINTS))


def _block_means(values: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean of each block of steps."""
    lengths = np.diff(np.append(starts, len(values)))
    means: NDArray[np.float64] = np.add.reduceat(values, starts) / lengths
    return means


def _draw_numbers(text: Callable[..., None], edges: Mapping[str, float], trace: Trace, y: float, ink: str) -> None:
    """Draw the memory of an arm, and the bytes of its policy's state."""
    tokens = trace.state / trace.token
    cells = (f"{trace.slots.mean[0]:.1f}", f"{trace.overall:.1f}", _format_bytes(trace.state), f"{tokens:.1f}")
    for right, cell in zip(edges.values(), cells, strict=True):
        text(right, y, cell, ha="right", color=ink)


def _format_bytes(count: int) -> str:
    for unit, size in (("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
