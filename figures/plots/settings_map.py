"""Heat map of accuracy over two settings of one policy, for each model, task and budget.

Crystal-KV recommends its decay and its threshold by such a plot (arXiv:2601.16986, figure 5).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.explored.settings_grid import Grid, NoGrid, grid
from figures.canvas import page
from figures.canvas.page import INK, MARGIN, PALE, inches
from figures.canvas.shares import Share, label, share

__all__ = ["Map", "mapped", "settings_map"]

WIDE, HIGH = 0.5, 0.34  # inches, of a cell; wider if the value below it is
TITLE, UNDER, APART = 0.42, 0.42, 0.3  # inches: above a panel, for the values below it, between two
MOST = page.WIDEST - 2 * MARGIN  # inches across, before panels wrap into the next row
STEP = 5  # pp: the colour scale begins and ends at multiples of it, at least two apart
BAR = 1.8  # inches, of the scale of colours
FACTS = [
    "grade",
    "correct",
    "stop",
    "tokens",
    "mean_slots",
    "peak_slots",
]  # of a lane


class Map(NamedTuple):
    """One panel. cells: by the values of the two settings; blank cells have no graded answer. alike: for each
    of these, a key that is equal if every lane had the same grade, length and memory.
    """

    model: str
    task: str
    budget: str
    full: Share | None
    cells: dict[tuple[str, str], Share]
    problems: dict[tuple[str, str], int]
    alike: dict[tuple[str, str], str]


def mapped(
    lock: Mapping[str, Any], lanes: Any, rows: str | None = None, columns: str | None = None
) -> tuple[Grid, list[Map]]:
    """Return the grid of the arms that evict, and a panel for each model, task and budget in registered
    order.

    lanes: those of `study_files.read` or `study_files.development`. Raises NoGrid, as `build_grid` does, and
    if the lock does not contain the settings of policies.
    """
    if not lock.get("policies"):
        raise NoGrid("policies: the lock is of before settings were locked; register the study again")
    ran = dict.fromkeys(lanes.loc[lanes["budget"] != "full", "arm"])
    held = {arm: lock["policies"][arm] for arm in ran if arm in lock["policies"]}
    of = grid(held, rows, columns)
    place_of = {arm: place for place, arm in of.arms.items()}
    found: dict[tuple[str, str, str], Map] = {}
    full = {}
    for (model, task, budget, arm), own in lanes.groupby(["model", "task", "budget", "arm"], sort=False):
        accuracy = share(own, own["correct"], own["correct"].notna())
        if budget == "full":
            full[model, task] = accuracy
        elif arm in place_of and accuracy.of:
            panel = found.setdefault((model, task, budget), Map(model, task, budget, None, {}, {}, {}))
            place = place_of[arm]
            panel.cells[place] = accuracy
            panel.problems[place] = own.loc[own["correct"].notna(), "problem"].nunique()
            facts = own.sort_values(["problem", "seed"])[FACTS]
            panel.alike[place] = facts.to_csv(index=False)
    if not found:
        raise NoGrid("records: no arm of the grid has a graded answer; run: kv-prereg probe")
    return of, [one._replace(full=full.get((one.model, one.task))) for one in found.values()]


def settings_map(
    judged: Mapping[str, Any] | None, lock: Mapping[str, Any], of: Grid, panels: Sequence[Map]
) -> Figure:
    """Draw the panels in reading order. judged: None for the development problems of a probe.

    The gid of a cell's rectangle is "<model>/<task>/<budget>/<row>/<column>"; that of the frame around cells
    that no answer distinguishes is "alike-<model>/<task>/<budget>".
    """
    scale = _scale([cell.share for panel in panels for cell in panel.cells.values()])
    label = max(map(inches, [*of.down, of.rows])) + 0.15
    titles = [_title(panel) for panel in panels]
    wide = max(label + _cell(of) * len(of.across), *(inches(text, weight="bold") for text, _ in titles), 2.0)
    tall = TITLE + HIGH * len(of.down) + UNDER
    across = _across(panels, wide)
    width = max(2 * MARGIN + across * wide + (across - 1) * APART, 6.0)
    height = -(-len(panels) // across) * (tall + APART) + 0.25
    title = lock["protocol"]["content"]["title"]
    counts = sorted({count for panel in panels for count in panel.problems.values()})
    several = len(counts) > 1
    paper = page.sheet(
        width,
        height,
        "Accuracy over two settings (exploratory)",
        [
            page.standing(judged) if judged else f"{title}: development problems, no verdict",
            "One scale of colours for all panels. Intervals per cell; which cell is best decides nothing.",
        ],
        _notes(
            of, panels, " and, below, the number of problems" if several else f", of {counts[0]} problems"
        ),
    )
    axes = paper.axes(0, 0, width, height)
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    for number, (panel, titled) in enumerate(zip(panels, titles, strict=True)):
        row, column = divmod(number, across)
        corner = MARGIN + column * (wide + APART), row * (tall + APART) + 0.1
        _panel(axes, corner, label, of, panel, titled, scale, several=several)
    _bar(axes, height - 0.12, scale)
    return paper.figure


def _cell(of: Grid) -> float:
    return max(WIDE, *(inches(value) + 0.12 for value in of.across))


def _across(panels: Sequence[Map], wide: float) -> int:
    """Return the panels in a row: as many as fit, with the budgets of a model and task together if they fit.
    """
    fit = max(1, min(len(panels), int((MOST + APART) / (wide + APART))))
    budgets = len({panel.budget for panel in panels})
    return fit - fit % budgets if fit >= budgets else fit


def _notes(of: Grid, panels: Sequence[Map], counted: str) -> list[str]:
    cells = [cell for panel in panels for cell in panel.cells.values()]
    half = max((cell.high - cell.low) / 2 for cell in cells)
    notes = [
        f"Each cell: {label(cells)[:-3]} in %{counted}. 95 % interval of a cell (Wilson): up to "
        f"{100 * half:.1f} pp to either side. The best of {len(of.arms)} cells looks better here than "
        "on other problems.",
    ]
    if any(_frames(of, panel) for panel in panels):
        notes.append(
            "Framed: settings with the same grade, length and memory on every lane: no answer tells them "
            "apart."
        )
    if of.beside:
        notes.append(f"Not on the map: {', '.join(of.beside)}.")
    return notes


def _panel(
    axes: Any,
    corner: tuple[float, float],
    label: float,
    of: Grid,
    panel: Map,
    title: tuple[str, str],
    scale: tuple[float, float],
    *,
    several: bool,
) -> None:
    left, top = corner
    axes.text(left, top + 0.06, title[0], va="center", weight="bold", color=INK)
    axes.text(left, top + 0.24, title[1], va="center", color=PALE)
    left, top = left + label, top + TITLE
    name, wide = f"{panel.model}/{panel.task}/{panel.budget}", _cell(of)
    for (row, column), cell in panel.cells.items():
        x, y = left + wide * of.across.index(column), top + HIGH * of.down.index(row)
        shade = (100 * cell.share - scale[0]) / (scale[1] - scale[0])
        gid = f"{name}/{row}/{column}"
        axes.add_patch(Rectangle((x, y), wide, HIGH, facecolor=_colour(shade), edgecolor="white", gid=gid))
        ink = page.ink_on(_colour(shade))
        middle, up = x + wide / 2, y + (0.12 if several else HIGH / 2)
        axes.text(middle, up, page.percent(cell.share), va="center", ha="center", color=ink)
        if several:
            count = f"n {panel.problems[row, column]}"
            axes.text(middle, y + 0.25, count, va="center", ha="center", color=ink, size=7)
    edges = [[(left + wide * x, top + HIGH * y) for x, y in edge] for edge in _frames(of, panel)]
    frame: dict[str, Any] = {"colors": INK, "linewidths": 1.3, "capstyle": "projecting", "zorder": 3}
    axes.add_collection(LineCollection(edges, gid=f"alike-{name}", **frame), autolim=False)
    floor = top + HIGH * len(of.down)
    for y, value in enumerate(of.down):
        axes.text(left - 0.08, top + HIGH * (y + 0.5), value, va="center", ha="right", color=INK)
    for x, value in enumerate(of.across):
        axes.text(left + wide * (x + 0.5), floor + 0.1, value, va="center", ha="center", color=INK)
    axes.text(left - 0.08, floor + 0.1, of.rows, va="center", ha="right", color=PALE)
    axes.text(
        left + wide * len(of.across) / 2, floor + 0.29, of.columns, va="center", ha="center", color=PALE
    )


def _frames(of: Grid, panel: Map) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the edges around groups of equal neighbours, in units of cells from the upper left."""
    alike = {
        (of.across.index(column), of.down.index(row)): same for (row, column), same in panel.alike.items()
    }
    edges = []
    for (x, y), same in alike.items():
        sides = {
            (x, y - 1): ((x, y), (x + 1, y)),
            (x, y + 1): ((x, y + 1), (x + 1, y + 1)),
            (x - 1, y): ((x, y), (x, y + 1)),
            (x + 1, y): ((x + 1, y), (x + 1, y + 1)),
        }
        others = {edge for side, edge in sides.items() if alike.get(side) != same}
        edges += sorted(others) if len(others) < len(sides) else []
    return edges


def _bar(axes: Any, y: float, scale: tuple[float, float]) -> None:
    """Draw the scale of colours, in sixty steps."""
    steps = np.linspace(0, 1, 60)
    text = f"{scale[0]:.0f} %"
    axes.text(MARGIN, y, text, va="center", color=PALE)
    start = MARGIN + inches(text) + 0.08
    for number, shade in enumerate(steps):
        wide = BAR / len(steps)
        axes.add_patch(
            Rectangle((start + number * wide, y - 0.06), wide, 0.12, color=_colour(shade), linewidth=0)
        )
    axes.text(start + BAR + 0.08, y, f"{scale[1]:.0f} %", va="center", color=PALE)


def _scale(shares: Sequence[float]) -> tuple[float, float]:
    """Return the percentages of the palest and the darkest colour."""
    low = STEP * math.floor(100 * min(shares) / STEP)
    high = STEP * math.ceil(100 * max(shares) / STEP)
    if high - low < 2 * STEP:
        low, high = (low, low + 2 * STEP) if low + 2 * STEP <= 100 else (100 - 2 * STEP, 100)
    return low, high


def _colour(shade: float) -> Any:
    """Return a colour from a visible tint to a blue that ends before black."""
    return matplotlib.colormaps["Blues"](0.06 + 0.86 * shade)


def _title(panel: Map) -> tuple[str, str]:
    full = "no full cache ran" if panel.full is None else f"full cache {page.percent(panel.full.share)} %"
    return f"{panel.model} · {panel.task} · budget {panel.budget}", full
