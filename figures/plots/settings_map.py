"""Heat map of accuracy over two settings of one policy, for each model, task and budget.

Crystal-KV recommends its decay and its threshold by such a plot (arXiv:2601.16986, figure 5).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.exploratory.settings_grid import Grid, NoGrid, build_grid
from figures.drawing import page
from figures.drawing.page import INK, MARGIN, PALE, text_width
from figures.drawing.shares import Share, axis_label, compute_share

WIDE, HIGH = 0.5, 0.34  # inches, of a cell; wider if the value below it is
TITLE, BELOW, APART = 0.42, 0.42, 0.3  # inches: above a panel, for the values below it, between two
MOST = page.WIDEST - 2 * MARGIN  # inches across, before panels wrap into the next row
STEP = 5  # pp: the colour scale begins and ends at multiples of it, at least two apart
BAR = 1.8  # inches, of the scale of colours
FACTS = ["grade", "correct", "stop", "tokens", "mean_slots", "peak_slots"]  # of a lane


class SettingsPanel(NamedTuple):
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


def settings_panels(
    lock: Mapping[str, Any], lanes: Any, rows: str | None = None, columns: str | None = None
) -> tuple[Grid, list[SettingsPanel]]:
    """Return the grid of the arms that evict, and a panel for each model, task and budget in registered order.

    lanes: those of `study_files.read` or `study_files.development`. Raises NoGrid, as `build_grid` does, and if the
    lock does not contain the settings of policies.
    """
    if not lock.get("policies"):
        raise NoGrid("policies: this lock was made before locks recorded settings; register the study again")
    ran = dict.fromkeys(lanes.loc[lanes["budget"] != "full", "arm"])
    settings_of = {arm: lock["policies"][arm] for arm in ran if arm in lock["policies"]}
    grid = build_grid(settings_of, rows, columns)
    position_of = {arm: position for position, arm in grid.arms.items()}
    panels: dict[tuple[str, str, str], SettingsPanel] = {}
    full = {}
    for (model, task, budget, arm), group in lanes.groupby(["model", "task", "budget", "arm"], sort=False):
        accuracy = compute_share(group, group["correct"], group["correct"].notna())
        if budget == "full":
            full[model, task] = accuracy
        elif arm in position_of and accuracy.n_total:
            panel = panels.setdefault((model, task, budget), SettingsPanel(model, task, budget, None, {}, {}, {}))
            position = position_of[arm]
            panel.cells[position] = accuracy
            panel.problems[position] = group.loc[group["correct"].notna(), "problem"].nunique()
            facts = group.sort_values(["problem", "seed"])[FACTS]
            panel.alike[position] = facts.to_csv(index=False)
    if not panels:
        raise NoGrid("records: no arm of the grid has a graded answer; run: kv-prereg probe")
    return grid, [item._replace(full=full.get((item.model, item.task))) for item in panels.values()]


def settings_map(
    judged: Mapping[str, Any] | None, lock: Mapping[str, Any], grid: Grid, panels: Sequence[SettingsPanel]
) -> Figure:
    """Draw the panels in reading order. judged: None for the development problems of a probe.

    The gid of a cell's rectangle is "<model>/<task>/<budget>/<row>/<column>"; that of the frame around cells
    that no answer distinguishes is "alike-<model>/<task>/<budget>".
    """
    scale = _colour_scale([cell.share for panel in panels for cell in panel.cells.values()])
    label = max(map(text_width, [*grid.down, grid.rows])) + 0.15
    titles = [_panel_titles(panel) for panel in panels]
    wide = max(
        label + _cell_width(grid) * len(grid.across), *(text_width(text, weight="bold") for text, _ in titles), 2.0
    )
    tall = TITLE + HIGH * len(grid.down) + BELOW
    across = _panels_per_row(panels, wide)
    width = max(2 * MARGIN + across * wide + (across - 1) * APART, 6.0)
    height = -(-len(panels) // across) * (tall + APART) + 0.25
    title = lock["protocol"]["content"]["title"]
    counts = sorted({count for panel in panels for count in panel.problems.values()})
    several = len(counts) > 1
    paper = page.new_sheet(
        width,
        height,
        "Accuracy over two settings (exploratory)",
        [
            page.study_status(judged) if judged else f"{title}: development problems, no verdict",
            "One colour scale for all panels. Intervals are per cell; which cell is best decides nothing.",
        ],
        _notes(grid, panels, " and, below, the number of problems" if several else f", of {counts[0]} problems"),
    )
    axes = paper.add_axes(0, 0, width, height)
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    for number, (panel, titled) in enumerate(zip(panels, titles, strict=True)):
        row, column = divmod(number, across)
        corner = MARGIN + column * (wide + APART), row * (tall + APART) + 0.1
        _draw_panel(axes, corner, label, grid, panel, titled, scale, several=several)
    _draw_scale(axes, height - 0.12, scale)
    return paper.figure


def _cell_width(grid: Grid) -> float:
    return max(WIDE, *(text_width(value) + 0.12 for value in grid.across))


def _panels_per_row(panels: Sequence[SettingsPanel], wide: float) -> int:
    """Return the panels in a row: as many as fit, with the budgets of a model and task together if they fit."""
    fit = max(1, min(len(panels), int((MOST + APART) / (wide + APART))))
    budgets = len({panel.budget for panel in panels})
    return fit - fit % budgets if fit >= budgets else fit


def _notes(grid: Grid, panels: Sequence[SettingsPanel], counted: str) -> list[str]:
    cells = [cell for panel in panels for cell in panel.cells.values()]
    half = max((cell.high - cell.low) / 2 for cell in cells)
    notes = [
        (
            f"Each cell: {axis_label(cells)[:-3]} in %{counted}. 95 % interval of a cell (Wilson): up to "
            f"{100 * half:.1f} pp to either side. The best of {len(grid.arms)} cells looks better here than it "
            "would on other problems."
        )
    ]
    if any(_frame_edges(grid, panel) for panel in panels):
        notes.append(
            "Framed: settings with the same grade, length and memory on every lane, so that no answer "
            "distinguishes them."
        )
    if grid.other_arms:
        notes.append(f"Not on the map: {', '.join(grid.other_arms)}.")
    return notes


def _draw_panel(
    axes: Any,
    corner: tuple[float, float],
    label: float,
    grid: Grid,
    panel: SettingsPanel,
    title: tuple[str, str],
    scale: tuple[float, float],
    *,
    several: bool,
) -> None:
    left, top = corner
    axes.text(left, top + 0.06, title[0], va="center", weight="bold", color=INK)
    axes.text(left, top + 0.24, title[1], va="center", color=PALE)
    left, top = left + label, top + TITLE
    name, wide = f"{panel.model}/{panel.task}/{panel.budget}", _cell_width(grid)
    for (row, column), cell in panel.cells.items():
        x, y = left + wide * grid.across.index(column), top + HIGH * grid.down.index(row)
        shade = (100 * cell.share - scale[0]) / (scale[1] - scale[0])
        gid = f"{name}/{row}/{column}"
        axes.add_patch(Rectangle((x, y), wide, HIGH, facecolor=page.heat_colour(shade), edgecolor="white", gid=gid))
        ink = page.contrasting_ink(page.heat_colour(shade))
        middle, up = x + wide / 2, y + (0.12 if several else HIGH / 2)
        axes.text(middle, up, page.format_percent(cell.share), va="center", ha="center", color=ink)
        if several:
            count = f"n {panel.problems[row, column]}"
            axes.text(middle, y + 0.25, count, va="center", ha="center", color=ink, size=7)
    edges = [[(left + wide * x, top + HIGH * y) for x, y in edge] for edge in _frame_edges(grid, panel)]
    frame: dict[str, Any] = {"colors": INK, "linewidths": 1.3, "capstyle": "projecting", "zorder": 3}
    axes.add_collection(LineCollection(edges, gid=f"alike-{name}", **frame), autolim=False)
    floor = top + HIGH * len(grid.down)
    for y, value in enumerate(grid.down):
        axes.text(left - 0.08, top + HIGH * (y + 0.5), value, va="center", ha="right", color=INK)
    for x, value in enumerate(grid.across):
        axes.text(left + wide * (x + 0.5), floor + 0.1, value, va="center", ha="center", color=INK)
    axes.text(left - 0.08, floor + 0.1, grid.rows, va="center", ha="right", color=PALE)
    axes.text(left + wide * len(grid.across) / 2, floor + 0.29, grid.columns, va="center", ha="center", color=PALE)


def _frame_edges(grid: Grid, panel: SettingsPanel) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the edges around groups of equal neighbours, in units of cells from the upper left."""
    alike = {(grid.across.index(column), grid.down.index(row)): same for (row, column), same in panel.alike.items()}
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


def _draw_scale(axes: Any, y: float, scale: tuple[float, float]) -> None:
    """Draw the scale of colours, in sixty steps."""
    steps = np.linspace(0, 1, 60)
    text = f"{scale[0]:.0f} %"
    axes.text(MARGIN, y, text, va="center", color=PALE)
    start = MARGIN + text_width(text) + 0.08
    for number, shade in enumerate(steps):
        wide = BAR / len(steps)
        axes.add_patch(
            Rectangle((start + number * wide, y - 0.06), wide, 0.12, color=page.heat_colour(shade), linewidth=0)
        )
    axes.text(start + BAR + 0.08, y, f"{scale[1]:.0f} %", va="center", color=PALE)


def _colour_scale(shares: Sequence[float]) -> tuple[float, float]:
    """Return the percentages of the palest and the darkest colour."""
    low = STEP * math.floor(100 * min(shares) / STEP)
    high = STEP * math.ceil(100 * max(shares) / STEP)
    if high - low < 2 * STEP:
        low, high = (low, low + 2 * STEP) if low + 2 * STEP <= 100 else (100 - 2 * STEP, 100)
    return low, high


def _panel_titles(panel: SettingsPanel) -> tuple[str, str]:
    full = "no full cache ran" if panel.full is None else f"full cache {page.format_percent(panel.full.share)} %"
    return f"{panel.model} · {panel.task} · budget {panel.budget}", full
