"""Heat map of how well the signal of each layer ranks the needed tokens of a trace, both readings side by
side.

EpiKV finds its two bands by such a plot (arXiv:2606.26472, figure 5, a line for each data set). This one has
all signals, and marks those that survive a correction for all of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from analysis.anatomy import over_traces
from analysis.anatomy.agreement import agreement
from analysis.anatomy.explored import corrected_p
from analysis.anatomy.reading import Anatomy, Pair, Signal
from figures.canvas import page
from figures.canvas.anatomies import Told, outcomes, readings, standing
from figures.canvas.page import INK, MARGIN, PALE, WIDEST, inches

__all__ = ["POSITION", "SCORING", "Block", "Cell", "anatomy_map", "mapped"]

SCORING, POSITION = "scoring:", "position"
GROUPS = ("raw statistics of a layer", "scores of the registered arms", "not a candidate")
ROW, WIDEST_CELL, NARROWEST = 0.155, 0.5, 0.075  # inches
NUMBERS = 0.34  # inches of a cell, at least, for its number to be printed in it
HEAD, UNDER, APART, PANELS = 0.5, 0.34, 0.42, 0.14  # inches: above, below a block; between blocks, panels
GAP = 0.24  # inches above a group of signals, with its name
SIZE = 7.0
LEAST = 0.2  # limit of the scale of colours, at least, on either side of 0
BAR = 2.2  # inches, of the scale
REACH = 0.8  # used share of the scale of colours, which is nearly black at its ends
LABELLED = 0.16  # inches of a cell, at least, for each layer to have its number
MISSING = "#b9b9b9"
CHOSEN = {
    "marker": "D",
    "markersize": 3.4,
    "markerfacecolor": "#ffd000",
    "markeredgecolor": INK,
    "linestyle": "",
    "zorder": 4,
}


class Cell(NamedTuple):
    """rho: mean over traces of Spearman's correlation within a trace; NaN without a value."""

    rho: float
    survives: bool


class Block(NamedTuple):
    """One model and task in one reading. cells: by signal and layer (None: one score for all layers)."""

    model: str
    task: str
    reading: str
    registered: bool
    traces: int
    cells: Mapping[Signal, Cell]
    chosen: Signal | None


class Box(NamedTuple):
    """A cell: its upper left corner and its width, in inches."""

    x: float
    y: float
    wide: float


class Line(NamedTuple):
    """A signal, and the distance of its upper edge from the top of the block."""

    signal: str
    y: float


def anatomy_map(told: Told, blocks: Sequence[Block]) -> Figure:
    """Draw the blocks. Those of one model and task are side by side; models and tasks wrap if they do not
    fit.

    The gids are "rho-", "survives-" and "chosen-<model>/<task>/<reading>".
    """
    lines, tall = _lines(blocks)
    names = max(inches(text, SIZE) for text in (*(_named(line.signal) for line in lines), *GROUPS)) + 0.12
    rows = _rows(blocks, names)
    width = max([6.4, *(2 * MARGIN + names + _wide(row) for row in rows)])
    step = HEAD + tall + UNDER
    body = step * len(rows) + 0.36
    most = _most(blocks)
    paper = page.sheet(
        width,
        body,
        "Which signals rank the needed tokens of a trace",
        [*standing(told), *outcomes(told)],
        [
            "A cell: Spearman's correlation of the signal with the label (needed 1, not needed 0) over the "
            "tokens of one trace, mean over the n traces whose labels vary. Blue: high values mark needed "
            "tokens; red: low values do. Both halves are in, and both signs count. Outlined: survives a "
            "correction for all cells of its panel (signs of whole traces flipped, the largest |t|) and for "
            "the number of models and tasks. The strongest of many cells looks stronger here than it is: the "
            "registered test looks at one alone, on the testing half.",
            "A signal with a trend along the text correlates with labels that have one: hold it against "
            "position.",
        ],
    )
    axes = paper.axes(0, 0, width, body)
    axes.set(xlim=(0, width), ylim=(body, 0))
    axes.axis("off")
    for number, row in enumerate(rows):
        top, left = number * step, MARGIN + names
        _names(axes, lines, left - 0.08, top + HEAD)
        for place, pair in enumerate(row):
            left += APART if place else 0
            _title(axes, pair[0], left, top)
            for one in pair:
                _panel(axes, one, lines, (left, top + HEAD), most)
                left += _across(one) + PANELS
            left -= PANELS
    _bar(axes, body - 0.12, most, marked=any(one.chosen for one in blocks))
    return paper.figure


def mapped(told: Told) -> list[Block]:
    """Return blocks of each registered model and task with varying labels: the registered reading, then the
    other.
    """
    chosen = {
        (one["model"], one["task"]): (one["chosen"]["signal"], one["chosen"]["layer"])
        for one in (told.chosen or {}).get("pairs", [])
        if one["chosen"] is not None
    }
    found = []
    for number, pair in enumerate(told.anatomy.pairs):
        blocks = [
            _block(told.anatomy, pair, reading, chosen.get(pair), number)
            for reading in readings(told.anatomy)
        ]
        found += blocks if any(one.traces for one in blocks) else []
    return found


def _block(anatomy: Anatomy, pair: Pair, reading: str, chosen: Signal | None, number: int) -> Block:
    """Return a block. number: of the pair. The chosen signal is marked in the registered reading alone."""
    of = agreement(anatomy, pair, None, reading)
    cells = {}
    if of.signals:
        units = of.units(of.rho)
        p = corrected_p(anatomy, of, units, (number, "rho" if reading == anatomy.reading else "other"))
        survives = p <= float(anatomy.settings["alpha"])
        means = over_traces.means(units).mean
        cells = {
            signal: Cell(float(mean), bool(lasts))
            for signal, mean, lasts in zip(of.signals, means, survives, strict=True)
        }
    registered = reading == anatomy.reading
    return Block(*pair, reading, registered, len(of.problems), cells, chosen if registered else None)


def _lines(blocks: Sequence[Block]) -> tuple[list[Line], float]:
    """Return the signals of all blocks, by group, and their height."""
    every = list(dict.fromkeys(signal for one in blocks for signal, _ in one.cells))
    found, y = [], 0.0
    for group in range(len(GROUPS)):
        own = [signal for signal in every if _group(signal) == group]
        y += GAP if own else 0
        for signal in own:
            found.append(Line(signal, y))
            y += ROW
    return found, y


def _group(signal: str) -> int:
    return 2 if signal == POSITION else int(signal.startswith(SCORING))


def _named(signal: str) -> str:
    return signal.removeprefix(SCORING)


def _rows(blocks: Sequence[Block], names: float) -> list[list[list[Block]]]:
    """Return blocks by model and task, as many in a row as fit."""
    pairs: dict[tuple[str, str], list[Block]] = {}
    for one in blocks:
        pairs.setdefault((one.model, one.task), []).append(one)
    rows: list[list[list[Block]]] = []
    for pair in pairs.values():
        if rows and _wide([*rows[-1], pair]) <= WIDEST - 2 * MARGIN - names:
            rows[-1].append(pair)
        else:
            rows.append([pair])
    return rows


def _wide(row: Sequence[Sequence[Block]]) -> float:
    return sum(map(_pair_wide, row)) + APART * (len(row) - 1)


def _pair_wide(pair: Sequence[Block]) -> float:
    panels = sum(_across(one) for one in pair) + PANELS * (len(pair) - 1)
    return max(panels, *(inches(text, 8.5, "bold") for text in _titles(pair[0])))


def _layers(one: Block) -> int:
    return 1 + max((layer for _, layer in one.cells if layer is not None), default=0)


def _cell(one: Block) -> float:
    """Return the width of a cell, such that two readings of a model fit side by side."""
    return min(WIDEST_CELL, max(NARROWEST, 3.7 / _layers(one)))


def _across(one: Block) -> float:
    return max(_cell(one) * _layers(one), inches(one.reading, SIZE, "bold") + 0.05, inches("n = 888", SIZE))


def _titles(one: Block) -> tuple[str]:
    return (f"{one.model} · {one.task}",)


def _title(axes: Any, one: Block, left: float, top: float) -> None:
    axes.text(left, top + 0.1, *_titles(one), va="center", weight="bold", color=INK)


def _names(axes: Any, lines: Sequence[Line], right: float, top: float) -> None:
    for number, line in enumerate(lines):
        if number == 0 or _group(line.signal) != _group(lines[number - 1].signal):
            group = GROUPS[_group(line.signal)]
            axes.text(right, top + line.y - 0.09, group, va="center", ha="right", color=PALE, size=SIZE)
        name = _named(line.signal)
        axes.text(right, top + line.y + ROW / 2, name, va="center", ha="right", color=INK, size=SIZE)


def _panel(axes: Any, one: Block, lines: Sequence[Line], corner: tuple[float, float], most: float) -> None:
    left, top = corner
    wide, name = _cell(one), f"{one.model}/{one.task}/{one.reading}"
    weight = "bold" if one.registered else "normal"
    axes.text(left, top - 0.23, one.reading, va="center", weight=weight, color=INK, size=SIZE)
    axes.text(left, top - 0.1, f"n = {one.traces}", va="center", color=PALE, size=SIZE)
    boxes: dict[Signal, Box] = {}
    for group in range(len(GROUPS)):
        own = [line for line in lines if _group(line.signal) == group]
        if own:
            _image(axes, one, own, (left, top), most, f"rho-{name}/{group}")
    for line in lines:
        for signal, layer in one.cells:
            if signal == line.signal:
                x, across = (left, wide * _layers(one)) if layer is None else (left + wide * layer, wide)
                boxes[signal, layer] = Box(x, top + line.y, across)
    for key, box in boxes.items():
        _number(axes, box, one.cells[key].rho, most)
    if edges := [edge for key in boxes if one.cells[key].survives for edge in _edges(key, boxes, one.cells)]:
        how: dict[str, Any] = {"colors": INK, "linewidths": 1.1, "capstyle": "projecting", "zorder": 3}
        axes.add_collection(LineCollection(edges, gid=f"survives-{name}", **how), autolim=False)
    if one.chosen in boxes:
        box = boxes[one.chosen]
        axes.plot(box.x + min(0.055, wide / 2), box.y + ROW / 2, gid=f"chosen-{name}", **CHOSEN)
    for layer in range(0, _layers(one), 1 if wide >= LABELLED else 5):
        at = left + wide * (layer + 0.5)
        down = top + lines[-1].y + ROW
        axes.text(at, down + 0.08, str(layer), va="center", ha="center", color=PALE, size=6.5)
    axes.text(left, top + lines[-1].y + ROW + 0.2, "layer", va="center", color=PALE, size=6.5)


def _image(
    axes: Any, one: Block, own: Sequence[Line], corner: tuple[float, float], most: float, gid: str
) -> None:
    """Draw the cells of one group of signals as an image, whose size does not depend on their number."""
    shown = np.full((len(own), _layers(one)), np.nan)
    for row, line in enumerate(own):
        for (signal, layer), cell in one.cells.items():
            if signal == line.signal:
                shown[row, slice(None) if layer is None else layer] = cell.rho
    left, top = corner
    edges = (left, left + _cell(one) * _layers(one), top + own[-1].y + ROW, top + own[0].y)
    how = {"cmap": _colours(), "vmin": -most / REACH, "vmax": most / REACH, "interpolation": "none"}
    image = axes.imshow(np.ma.masked_invalid(shown), extent=edges, aspect="auto", **how)
    image.set_gid(gid)


def _number(axes: Any, box: Box, rho: float, most: float) -> None:
    if box.wide >= NUMBERS:
        ink = page.ink_on(_colours()(0.5 + 0.5 * REACH * rho / most) if np.isfinite(rho) else MISSING)
        text = f"{round(rho, 2) + 0.0:+.2f}" if np.isfinite(rho) else "\N{EN DASH}"
        how = {"va": "center_baseline", "ha": "center", "color": ink, "size": 6.5}
        axes.text(box.x + box.wide / 2, box.y + ROW / 2, text, **how)


def _edges(
    key: Signal,
    boxes: Mapping[Signal, Box],
    cells: Mapping[Signal, Cell],
) -> list[Any]:
    """Return the sides of a cell that survives, except those shared with another one."""
    x, y, wide = own = boxes[key]
    others = {box for other, box in boxes.items() if cells[other].survives and box != own}
    sides = {
        Box(x - wide, y, wide): ((x, y), (x, y + ROW)),
        Box(x + wide, y, wide): ((x + wide, y), (x + wide, y + ROW)),
        Box(x, y - ROW, wide): ((x, y), (x + wide, y)),
        Box(x, y + ROW, wide): ((x, y + ROW), (x + wide, y + ROW)),
    }
    return [edge for beside, edge in sides.items() if not any(np.allclose(beside, one) for one in others)]


def _most(blocks: Sequence[Block]) -> float:
    """Return the limit of the scale: the next tenth above the strongest value, the same on both sides of 0.
    """
    every: NDArray[np.float64] = np.array([cell.rho for one in blocks for cell in one.cells.values()])
    strongest = np.nanmax(np.abs(every)) if np.isfinite(every).any() else 0.0
    return float(max(LEAST, np.ceil(round(10 * strongest, 9)) / 10))


def _colours() -> Any:
    """Return the colour map: red below 0, blue above, white at 0; grey without a value."""
    return matplotlib.colormaps["RdBu"].with_extremes(bad=MISSING)


def _bar(axes: Any, y: float, most: float, *, marked: bool) -> None:
    """Draw the scale of colours and the legend of the marks."""
    x = MARGIN
    text = f"-{most:.1f}"
    axes.text(x, y, text, va="center", color=PALE, size=SIZE)
    x += inches(text, SIZE) + 0.06
    steps = np.linspace(-REACH, REACH, 60)[None]
    edges = (x, x + BAR, y + 0.06, y - 0.06)
    axes.imshow(steps, extent=edges, cmap=_colours(), vmin=-1, vmax=1, aspect="auto", interpolation="none")
    x += BAR
    text = f"+{most:.1f}"
    axes.text(x + 0.06, y, text, va="center", color=PALE, size=SIZE)
    x += inches(text, SIZE) + 0.3
    axes.add_patch(Rectangle((x, y - 0.06), 0.16, 0.12, color=MISSING, linewidth=0))
    axes.text(x + 0.22, y, "no value", va="center", color=PALE, size=SIZE)
    if not marked:
        return
    x += 0.22 + inches("no value", SIZE) + 0.24
    axes.plot(x, y, **CHOSEN)
    axes.text(x + 0.1, y, "chosen on the first half", va="center", color=PALE, size=SIZE)
