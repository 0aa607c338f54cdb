"""Plot of the slots that every arm used above its budget, step by step: equal memory after the prefill is not
enough.

Two arms with the same memory at the start of decoding may differ by a factor of several later ("Minimal-
Intervention KV Retention", figure 2, which is a schema; these are measurements). The plot shows the
difference from the budget, with a strip for each arm: in one panel, arms that evict at the same steps would
cover one another.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from figures.canvas import page
from figures.canvas.page import INK, MARGIN, PALE, WIDEST, inches
from figures.canvas.traces import BAND, Moments, Trace

__all__ = ["trajectories"]

POINTS = 1000  # of a line, at most
MANY = 16  # strips; more of them are in two columns
TALL, LOW, APART = 0.42, 0.32, 0.06  # inches: of a strip if they are few, if they are many, and between two
TITLE, UNDER = 0.58, 0.62  # inches: above the strips of a block, with the heads of its numbers; below
TICKS, LEAST, BETWEEN = 0.45, 1.0, 0.3  # inches: left of a strip, least width of one, between two blocks
NUMBERS = {"after\nprefill": 0.52, "mean": 0.52, "state": 0.72, "tok-eq": 0.52}  # inches
MINUS = "\N{MINUS SIGN}"
GROUND, SHADE = "#ececea", "#b5c9da"  # lanes that still decode; the band of their central values
LINE = "#0b4f86"


class Block(NamedTuple):
    """The arms of one model, task and budget, followed by those without a budget."""

    place: tuple[str, str, str]
    strips: list[tuple[Trace, Moments]]
    whole: list[Trace]

    @property
    def name(self) -> str:
        model, task, budget = self.place
        return f"{model} · {task} · budget {budget}"

    @property
    def limits(self) -> tuple[float, float]:
        """Limits of the difference, from the first step at which an arm reaches its budget on average; from
        the first step of all if it never does. The filling of the cache before that is cut off, since it
        would flatten the rest.
        """
        low, high = 0.0, 1.0
        for _, over in self.strips:
            up = np.flatnonzero(over.mean >= 0)
            low = min(low, float(over.mean[up[0] if len(up) else 0 :].min()))
            high = max(high, float(over.high.max()))
        room = 0.08 * (high - low)
        return min(low - room, -0.35 * high), high + room


def trajectories(judged: Mapping[str, Any], found: Sequence[Trace]) -> Figure:
    """Draw a block for each model, task and budget, with a strip and numbers for each arm.

    An arm that never evicts has no budget to differ from, and only numbers. The gid of a line is
    "mean-<model>/<task>/<budget>/<arm>", that of its band "band-...", of the share of lanes "lanes-...", of
    the budget "nominal-...".
    """
    blocks = _blocks(found)
    strips = sum(len(block.strips) for block in blocks)
    label = max(inches(one.arm) for one in found) + 0.1
    beside = label + TICKS + sum(NUMBERS.values())
    room = WIDEST - 2 * MARGIN
    across = 2 if strips > MANY and (room - BETWEEN) / 2 - beside >= LEAST else 1
    across = min(across, len(blocks))
    wide = max(
        (room - BETWEEN * (across - 1)) / across if across > 1 else min(room, beside + 4.6),
        beside + LEAST,
        *(inches(block.name, weight="bold") for block in blocks),
    )
    high = LOW if strips > MANY else TALL
    lines = [blocks[at : at + across] for at in range(0, len(blocks), across)]
    body = sum(_height(line, high) for line in lines)
    paper = page.sheet(
        2 * MARGIN + across * wide + (across - 1) * BETWEEN,
        body,
        "Cache held above the budget, step by step (exploratory)",
        [
            page.standing(judged),
            "Memory is matched by the mean over a whole generation, not by what is held after the prefill.",
        ],
        [
            "Strip: slots held per KV head and layer, less the budget of the lane. Line: mean over the lanes "
            f"that still decode, all problems and seeds. Blue: {BAND[0]} to {BAND[1]} % of them. Dashed: the "
            "budget. Grey ground: lanes that still decode; to the full height, all. One scale for the strips "
            "of a block; how a cache fills before it comes up to its budget may lie below.",
            "after prefill: slots held with the first event. mean: over the whole generation of a lane, then "
            "over lanes. state: the most bytes that the policy itself carried; tok-eq: the tokens whose keys "
            "and values, as stored, take as many.",
        ],
    )
    top = body
    for line in lines:
        for column, block in enumerate(line):
            left = MARGIN + column * (wide + BETWEEN)
            _block(paper, block, (left, top), (label, wide - beside), high)
        top -= _height(line, high)
    return paper.figure


def _blocks(found: Sequence[Trace]) -> list[Block]:
    blocks = []
    for place in dict.fromkeys(one[:2] for one in found):
        own = [one for one in found if one[:2] == place]
        whole = [one for one in own if one.over is None]
        for budget in dict.fromkeys(one.budget for one in own if one.over is not None):
            strips = [(one, one.over) for one in own if one.budget == budget and one.over is not None]
            blocks.append(Block((*place, budget), strips, whole))
    return blocks


def _height(line: Sequence[Block], high: float) -> float:
    rows = max(len(block.strips) for block in line)
    return TITLE + rows * (high + APART) + UNDER + 0.2 * max(len(block.whole) for block in line)


def _block(
    paper: page.Sheet, block: Block, corner: tuple[float, float], width: tuple[float, float], high: float
) -> None:
    left, top = corner
    label, plot = width
    start = left + label + TICKS
    longest = max(len(over.mean) for _, over in block.strips)
    text = _Text(paper)
    text(left, top - 0.16, block.name, weight="bold")
    edges = dict(zip(NUMBERS, start + plot + np.cumsum(list(NUMBERS.values())), strict=True))
    for head, right in edges.items():
        text(right, top - TITLE + 0.1, head, ha="right", va="baseline", color=PALE, linespacing=1.0)
    between = " " if plot > inches(f"slots held {MINUS} budget") + 0.2 else "\n"
    axis = f"slots held{between}{MINUS} budget"
    text(start, top - TITLE + 0.1, axis, va="baseline", color=PALE, linespacing=1.0)
    up = top - TITLE
    for number, (one, over) in enumerate(block.strips):
        up -= high
        axes = paper.axes(start, up, plot, high)
        axes.set(xlim=(0, max(longest - 1, 1)), ylim=block.limits)
        _strip(axes, one, over)
        axes.spines[["right", "top", "bottom"]].set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=max(2, int(plot / 0.35)), integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=2, integer=True, steps=[1, 2, 5, 10]))
        last = number == len(block.strips) - 1
        axes.tick_params(labelbottom=last, bottom=last, labelleft=number == 0, labelsize=7.5)
        text(left, up + high / 2, one.arm)
        _numbers(text, edges, one, up + high / 2, INK)
        up -= APART
    text(start + plot / 2, up - 0.28, "tokens decoded", ha="center")
    for number, one in enumerate(block.whole):
        at = up - 0.32 - 0.2 * (number + 0.5)
        text(left, at, f"{one.arm} (no budget)", color=PALE)
        _numbers(text, edges, one, at, PALE)


class _Text:
    """Draws text on a page, at inches above its floor."""

    def __init__(self, paper: page.Sheet) -> None:
        self.paper = paper

    def __call__(self, x: float, y: float, text: str, **how: Any) -> None:
        style = {"va": "center", "color": INK} | how
        self.paper.figure.text(
            x / self.paper.width, (self.paper.floor + y) / self.paper.height, text, **style
        )


def _strip(axes: Any, one: Trace, over: Moments) -> None:
    name = "/".join(one[:4])
    starts = _starts(len(over.mean))
    low, high = np.minimum.reduceat(over.low, starts), np.maximum.reduceat(over.high, starts)
    floor, ceiling = axes.get_ylim()
    still = _means(over.lanes / over.lanes[0], starts)
    under = {"linewidth": 0, "zorder": 0}
    axes.fill_between(
        starts, floor, floor + (ceiling - floor) * still, color=GROUND, gid=f"lanes-{name}", **under
    )
    axes.fill_between(starts, low, high, color=SHADE, gid=f"band-{name}", **under)
    axes.plot(starts, _means(over.mean, starts), color=LINE, linewidth=0.9, gid=f"mean-{name}")
    dashed = {"color": INK, "linewidth": 0.8, "linestyle": (0, (4, 2)), "zorder": 1}
    axes.axhline(0, gid=f"nominal-{name}", **dashed)


def _starts(moments: int) -> NDArray[np.int64]:
    """Return the first step of each point: every step, or blocks of neighbours if there are many."""
    return np.arange(0, moments, -(-moments // POINTS))


def _means(values: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean of each block of steps."""
    lengths = np.diff(np.append(starts, len(values)))
    means: NDArray[np.float64] = np.add.reduceat(values, starts) / lengths
    return means


def _numbers(text: _Text, edges: Mapping[str, float], one: Trace, at: float, ink: str) -> None:
    """Draw the memory of an arm, and the bytes of its policy's state."""
    tokens = one.state / one.token
    cells = (f"{one.slots.mean[0]:.1f}", f"{one.overall:.1f}", _bytes(one.state), f"{tokens:.1f}")
    for right, cell in zip(edges.values(), cells, strict=True):
        text(right, at, cell, ha="right", color=ink)


def _bytes(count: int) -> str:
    for unit, size in (("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
