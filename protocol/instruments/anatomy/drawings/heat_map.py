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

from figures.drawing import page
from figures.drawing.page import INK, MARGIN, PALE, WIDEST, text_width
from protocol.instruments.anatomy.analysis import trace_statistics
from protocol.instruments.anatomy.analysis.agreement import measure_agreement
from protocol.instruments.anatomy.analysis.exploratory import corrected_p
from protocol.instruments.anatomy.analysis.traces import Anatomy, Pair, Signal
from protocol.instruments.anatomy.drawings.trace_report import (
    AnatomyReport,
    ordered_readings,
    outcome_lines,
    status_lines,
)

SCORING, POSITION = "scoring:", "position"
GROUPS = ("raw statistics of a layer", "scores of the registered arms", "not a candidate")
ROW, WIDEST_CELL, NARROWEST = 0.155, 0.5, 0.075  # inches
NUMBERS = 0.34  # inches of a cell, at least, for its number to be printed in it
HEAD, BELOW, APART, PANELS = 0.5, 0.34, 0.42, 0.14  # inches: above, below a block; between blocks, panels
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


def anatomy_map(study: AnatomyReport, blocks: Sequence[Block]) -> Figure:
    """Draw the blocks. Those of one model and task are side by side; models and tasks wrap if they do not fit.

    The gids are "rho-", "survives-" and "chosen-<model>/<task>/<reading>".
    """
    lines, tall = _signal_lines(blocks)
    names = max(text_width(text, SIZE) for text in (*(_display_name(line.signal) for line in lines), *GROUPS)) + 0.12
    rows = _block_rows(blocks, names)
    width = max([6.4, *(2 * MARGIN + names + _row_width(row) for row in rows)])
    step = HEAD + tall + BELOW
    body = step * len(rows) + 0.36
    limit = _scale_limit(blocks)
    paper = page.new_sheet(
        width,
        body,
        "Which signals rank the needed tokens of a trace",
        [*status_lines(study), *outcome_lines(study)],
        [
            "A cell: Spearman's correlation of the signal with the label (needed 1, not needed 0) over the "
            "tokens of one trace, mean over the n traces whose labels vary. Blue: high values mark needed "
            "tokens; red: low values mark them. Both halves of the traces are included, and both signs "
            "count. Outlined: survives a correction for all cells of its panel (signs of whole traces "
            "flipped, the largest |t|) and for the number of models and tasks. The strongest of many cells "
            "looks stronger here than it is: the registered test looks at only one cell, on the testing half.",
            "A signal with a trend along the text correlates with any labels that have such a trend: compare "
            "it with position.",
        ],
    )
    axes = paper.add_axes(0, 0, width, body)
    axes.set(xlim=(0, width), ylim=(body, 0))
    axes.axis("off")
    for number, row in enumerate(rows):
        top, left = number * step, MARGIN + names
        _draw_names(axes, lines, left - 0.08, top + HEAD)
        for index, pair in enumerate(row):
            left += APART if index else 0
            axes.text(left, top + 0.1, _pair_title(pair[0]), va="center", weight="bold", color=INK)
            for block in pair:
                _draw_panel(axes, block, lines, (left, top + HEAD), limit)
                left += _block_width(block) + PANELS
            left -= PANELS
    _draw_scale(axes, body - 0.12, limit, marked=any(block.chosen for block in blocks))
    return paper.figure


def map_blocks(study: AnatomyReport) -> list[Block]:
    """Return blocks of each registered model and task with varying labels: the registered reading, then the other."""
    chosen = {
        (item["model"], item["task"]): (item["chosen"]["signal"], item["chosen"]["layer"])
        for item in (study.chosen or {}).get("pairs", [])
        if item["chosen"] is not None
    }
    all_blocks = []
    for number, pair in enumerate(study.anatomy.pairs):
        blocks = [
            _read_block(study.anatomy, pair, reading, chosen.get(pair), number)
            for reading in ordered_readings(study.anatomy)
        ]
        all_blocks += blocks if any(item.traces for item in blocks) else []
    return all_blocks


def _read_block(anatomy: Anatomy, pair: Pair, reading: str, chosen: Signal | None, number: int) -> Block:
    """Return a block. number: of the pair. The chosen signal is marked in the registered reading alone."""
    agreement = measure_agreement(anatomy, pair, None, reading)
    cells = {}
    if agreement.signals:
        units = agreement.unit_table(agreement.rho)
        p = corrected_p(anatomy, agreement, units, (number, "rho" if reading == anatomy.reading else "other"))
        survives = p <= float(anatomy.settings["alpha"])
        means = trace_statistics.means(units).mean
        cells = {
            signal: Cell(float(mean), bool(is_significant))
            for signal, mean, is_significant in zip(agreement.signals, means, survives, strict=True)
        }
    registered = reading == anatomy.reading
    return Block(*pair, reading, registered, len(agreement.problems), cells, chosen if registered else None)


def _signal_lines(blocks: Sequence[Block]) -> tuple[list[Line], float]:
    """Return the signals of all blocks, by group, and their height."""
    signals = list(dict.fromkeys(signal for block in blocks for signal, _ in block.cells))
    lines, y = [], 0.0
    for group in range(len(GROUPS)):
        group_signals = [signal for signal in signals if _group(signal) == group]
        y += GAP if group_signals else 0
        for signal in group_signals:
            lines.append(Line(signal, y))
            y += ROW
    return lines, y


def _group(signal: str) -> int:
    return 2 if signal == POSITION else int(signal.startswith(SCORING))


def _display_name(signal: str) -> str:
    return signal.removeprefix(SCORING)


def _block_rows(blocks: Sequence[Block], names: float) -> list[list[list[Block]]]:
    """Return blocks by model and task, as many in a row as fit."""
    pairs: dict[tuple[str, str], list[Block]] = {}
    for block in blocks:
        pairs.setdefault((block.model, block.task), []).append(block)
    rows: list[list[list[Block]]] = []
    for pair in pairs.values():
        if rows and _row_width([*rows[-1], pair]) <= WIDEST - 2 * MARGIN - names:
            rows[-1].append(pair)
        else:
            rows.append([pair])
    return rows


def _row_width(row: Sequence[Sequence[Block]]) -> float:
    return sum(map(_pair_width, row)) + APART * (len(row) - 1)


def _pair_width(pair: Sequence[Block]) -> float:
    panels = sum(_block_width(block) for block in pair) + PANELS * (len(pair) - 1)
    return max(panels, text_width(_pair_title(pair[0]), 8.5, "bold"))


def _layer_count(block: Block) -> int:
    return 1 + max((layer for _, layer in block.cells if layer is not None), default=0)


def _cell_width(block: Block) -> float:
    """Return the width of a cell, such that two readings of a model fit side by side."""
    return min(WIDEST_CELL, max(NARROWEST, 3.7 / _layer_count(block)))


def _block_width(block: Block) -> float:
    return max(
        _cell_width(block) * _layer_count(block),
        text_width(block.reading, SIZE, "bold") + 0.05,
        text_width("n = 888", SIZE),
    )


def _pair_title(block: Block) -> str:
    return f"{block.model} · {block.task}"


def _draw_names(axes: Any, lines: Sequence[Line], right: float, top: float) -> None:
    for number, line in enumerate(lines):
        if number == 0 or _group(line.signal) != _group(lines[number - 1].signal):
            group = GROUPS[_group(line.signal)]
            axes.text(right, top + line.y - 0.09, group, va="center", ha="right", color=PALE, size=SIZE)
        name = _display_name(line.signal)
        axes.text(right, top + line.y + ROW / 2, name, va="center", ha="right", color=INK, size=SIZE)


def _draw_panel(axes: Any, block: Block, lines: Sequence[Line], corner: tuple[float, float], limit: float) -> None:
    left, top = corner
    wide, name = _cell_width(block), f"{block.model}/{block.task}/{block.reading}"
    weight = "bold" if block.registered else "normal"
    axes.text(left, top - 0.23, block.reading, va="center", weight=weight, color=INK, size=SIZE)
    axes.text(left, top - 0.1, f"n = {block.traces}", va="center", color=PALE, size=SIZE)
    boxes: dict[Signal, Box] = {}
    for group in range(len(GROUPS)):
        group_lines = [line for line in lines if _group(line.signal) == group]
        if group_lines:
            _draw_cells(axes, block, group_lines, (left, top), limit, f"rho-{name}/{group}")
    for line in lines:
        for signal, layer in block.cells:
            if signal == line.signal:
                x, across = (left, wide * _layer_count(block)) if layer is None else (left + wide * layer, wide)
                boxes[signal, layer] = Box(x, top + line.y, across)
    for key, box in boxes.items():
        _draw_number(axes, box, block.cells[key].rho, limit)
    if edges := [
        edge for key in boxes if block.cells[key].survives for edge in _outline_edges(key, boxes, block.cells)
    ]:
        style: dict[str, Any] = {"colors": INK, "linewidths": 1.1, "capstyle": "projecting", "zorder": 3}
        axes.add_collection(LineCollection(edges, gid=f"survives-{name}", **style), autolim=False)
    if block.chosen in boxes:
        box = boxes[block.chosen]
        axes.plot(box.x + min(0.055, wide / 2), box.y + ROW / 2, gid=f"chosen-{name}", **CHOSEN)
    for layer in range(0, _layer_count(block), 1 if wide >= LABELLED else 5):
        center = left + wide * (layer + 0.5)
        down = top + lines[-1].y + ROW
        axes.text(center, down + 0.08, str(layer), va="center", ha="center", color=PALE, size=6.5)
    axes.text(left, top + lines[-1].y + ROW + 0.2, "layer", va="center", color=PALE, size=6.5)


def _draw_cells(
    axes: Any, block: Block, group_lines: Sequence[Line], corner: tuple[float, float], limit: float, gid: str
) -> None:
    """Draw the cells of one group of signals as an image, whose size does not depend on their number."""
    values = np.full((len(group_lines), _layer_count(block)), np.nan)
    for row, line in enumerate(group_lines):
        for (signal, layer), cell in block.cells.items():
            if signal == line.signal:
                values[row, slice(None) if layer is None else layer] = cell.rho
    left, top = corner
    right = left + _cell_width(block) * _layer_count(block)
    edges = (left, right, top + group_lines[-1].y + ROW, top + group_lines[0].y)
    style = {"cmap": _colour_map(), "vmin": -limit / REACH, "vmax": limit / REACH, "interpolation": "none"}
    image = axes.imshow(np.ma.masked_invalid(values), extent=edges, aspect="auto", **style)
    image.set_gid(gid)


def _draw_number(axes: Any, box: Box, rho: float, limit: float) -> None:
    if box.wide >= NUMBERS:
        ink = page.contrasting_ink(_colour_map()(0.5 + 0.5 * REACH * rho / limit) if np.isfinite(rho) else MISSING)
        text = f"{round(rho, 2) + 0.0:+.2f}" if np.isfinite(rho) else "\N{EN DASH}"
        style = {"va": "center_baseline", "ha": "center", "color": ink, "size": 6.5}
        axes.text(box.x + box.wide / 2, box.y + ROW / 2, text, **style)


def _outline_edges(key: Signal, boxes: Mapping[Signal, Box], cells: Mapping[Signal, Cell]) -> list[Any]:
    """Return the sides of a cell that survives, except those shared with another one."""
    x, y, wide = current = boxes[key]
    others = {box for other, box in boxes.items() if cells[other].survives and box != current}
    sides = {
        Box(x - wide, y, wide): ((x, y), (x, y + ROW)),
        Box(x + wide, y, wide): ((x + wide, y), (x + wide, y + ROW)),
        Box(x, y - ROW, wide): ((x, y), (x + wide, y)),
        Box(x, y + ROW, wide): ((x, y + ROW), (x + wide, y + ROW)),
    }
    return [
        edge for neighbour, edge in sides.items() if not any(np.allclose(neighbour, other_box) for other_box in others)
    ]


def _scale_limit(blocks: Sequence[Block]) -> float:
    """Return the limit of the scale: the next tenth above the strongest value, the same on both sides of 0."""
    values: NDArray[np.float64] = np.array([cell.rho for block in blocks for cell in block.cells.values()])
    strongest = np.nanmax(np.abs(values)) if np.isfinite(values).any() else 0.0
    return float(max(LEAST, np.ceil(round(10 * strongest, 9)) / 10))


def _colour_map() -> Any:
    """Return the colour map: red below 0, blue above, white at 0; grey without a value."""
    return matplotlib.colormaps["RdBu"].with_extremes(bad=MISSING)


def _draw_scale(axes: Any, y: float, limit: float, *, marked: bool) -> None:
    """Draw the scale of colours and the legend of the marks."""
    x = MARGIN
    text = f"-{limit:.1f}"
    axes.text(x, y, text, va="center", color=PALE, size=SIZE)
    x += text_width(text, SIZE) + 0.06
    steps = np.linspace(-REACH, REACH, 60)[None]
    edges = (x, x + BAR, y + 0.06, y - 0.06)
    axes.imshow(steps, extent=edges, cmap=_colour_map(), vmin=-1, vmax=1, aspect="auto", interpolation="none")
    x += BAR
    text = f"+{limit:.1f}"
    axes.text(x + 0.06, y, text, va="center", color=PALE, size=SIZE)
    x += text_width(text, SIZE) + 0.3
    axes.add_patch(Rectangle((x, y - 0.06), 0.16, 0.12, color=MISSING, linewidth=0))
    axes.text(x + 0.22, y, "no value", va="center", color=PALE, size=SIZE)
    if not marked:
        return
    x += 0.22 + text_width("no value", SIZE) + 0.24
    axes.plot(x, y, **CHOSEN)
    axes.text(x + 0.1, y, "chosen on the first half", va="center", color=PALE, size=SIZE)
