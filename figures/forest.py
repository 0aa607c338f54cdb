"""Draw the judged contrasts of a study as a forest plot.

    python -m figures.forest registrations/quickstart

Reads verdict.json alone and writes figures/forest.svg and figures/forest.png into the same folder. The same
verdict gives the same SVG, byte for byte, with one version of matplotlib.
Exit status: 0 drawn; 2 there is no verdict to draw.
"""

import itertools
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.transforms import blended_transform_factory

from figures.canvas import numbers, page
from figures.canvas.contrasts import cells, counts, in_points, mark, span
from figures.canvas.page import INK, PALE, NoVerdict
from figures.canvas.rows import ROW, bands, grouped, groups
from figures.command import command
from figures.plots.beside import beside

__all__ = ["NoVerdict", "draw", "forest"]

WIDTH, HEADER, FOOTER = 10.0, 1.12, 1.12  # inches
LEFT, RIGHT = 0.20, 0.565  # the axes, as shares of the width
# Right edges of the columns beside the axes, as shares of the width.
COLUMNS = {"Δ (pp)": 0.635, "95 % interval": 0.765, "p": 0.835, "n": 0.88, "cache": 0.945}


def draw(folder: Path) -> tuple[Path, ...]:
    """Draw FOLDER/verdict.json into FOLDER/figures/forest.svg and .png. Raises NoVerdict without one."""
    return page.write(Path(folder) / "figures", "forest", forest, page.judged(folder))


def forest(judged: Mapping[str, Any]) -> Figure:
    """One line a contrast, grouped by model, task and budget; x is the difference in percentage points. The
    marks are those of `contrasts.mark`; each has its meaning and the index of its contrast as gid ("point-3",
    "nominal-3", "simultaneous-3").

    A second panel (`figures.plots.beside`) where the study compares beside its decision rule.
    """
    if "beside" in judged:
        return beside(judged)
    rows = grouped(judged["contrasts"], lambda one: f"against {one['against']}")
    height = HEADER + ROW * len(rows) + FOOTER
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_axes((LEFT, FOOTER / height, RIGHT - LEFT, ROW * len(rows) / height))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(*span(judged["contrasts"]))
    across = blended_transform_factory(figure.transFigure, axes.transData)
    bands(axes, rows, 0.015, 0.985, across)
    for first, last, _ in groups(rows):
        axes.plot((0, 0), (first + 0.5, last - 0.5), color=INK, linewidth=0.9, zorder=1, gid="zero")
    index = itertools.count()
    for y, row in enumerate(rows):
        if row.entry is None:
            axes.text(0.025, y, row.label, transform=across, va="center", weight="bold", color=INK)
            continue
        axes.text(0.04, y, row.label, transform=across, va="center", color=INK)
        _contrast(axes, across, y, next(index), row.entry)
    _frame(figure, axes, across, judged)
    return figure


def _contrast(axes: Any, across: Any, y: int, index: int, one: Mapping[str, Any]) -> None:
    right = {"transform": across, "va": "center", "ha": "right"}
    if one["difference"] is None:
        axes.text(COLUMNS["95 % interval"], y, "not estimated", color=PALE, **right)
        return
    mark(axes, y, str(index), one)
    weight = "bold" if counts(one) else "normal"
    for head, text in cells(one).items():
        axes.text(COLUMNS[head], y, text, weight=weight, color=INK, **right)
    if not one["matched"]:
        axes.text(COLUMNS["cache"] + 0.004, y, "†", transform=across, va="center", color=INK)


def _frame(figure: Figure, axes: Any, across: Any, judged: Mapping[str, Any]) -> None:
    height = figure.get_figheight()
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.set_yticks([])
    axes.patch.set_visible(False)
    in_points(axes)
    subject = judged["contrasts"][0]["subject"]
    below = blended_transform_factory(axes.transData, figure.dpi_scale_trans)
    for text, side in (("← comparator better   ", "right"), (f"   {subject} better →", "left")):
        axes.text(0, FOOTER - 0.36, text, transform=below, va="center", ha=side, color=INK)
    axes.set_xlabel("accuracy difference, percentage points", labelpad=22)
    for head, x in COLUMNS.items():
        axes.text(x, -0.85, head, transform=across, va="bottom", ha="right", color=PALE)

    def line(inches: float, text: str, **how: Any) -> None:
        figure.text(0.025, 1 - inches / height, text, va="top", **how)

    branch = judged["branch"]
    title = f"Branch {branch['registered']}: {judged['title']}" if branch else judged["title"]
    chosen = f"; {subject} is {judged['selected']['arm']}" if "selected" in judged else ""
    line(0.14, textwrap.shorten(title, 100, placeholder=" …"), size=12, weight="bold")
    line(0.40, f"{numbers.outcome(judged)}{chosen}", size=10, weight="bold")
    line(0.62, textwrap.shorten(numbers.verdict_line(judged), 150, placeholder=" …"), color=PALE)
    notes = [
        "Thick line: 95 % interval. Thin line: simultaneous interval of the family. Arrowhead: it goes on.",
        "◆ passes Bonferroni, ○ does not, ◇ passes but counts for nothing, since memory was not matched (†). "
        "cache: mean slots held, subject over comparator.",
    ]
    for i, note in enumerate(notes):
        figure.text(0.025, (0.30 - 0.16 * i) / height, note, va="center", color=PALE, size=7.5)


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "a confirmed registration, e.g. registrations/quickstart"}
    return command("figures.forest", __doc__, folder, draw, NoVerdict, argv)


if __name__ == "__main__":
    sys.exit(main())
