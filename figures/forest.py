"""Draw the judged contrasts of a study as a forest plot.

    python -m figures.forest registrations/quickstart

Reads verdict.json alone and writes figures/forest.svg and figures/forest.png into the same folder. The same
verdict gives the same SVG, byte for byte, with one version of matplotlib.
Exit status: 0 drawn; 2 there is no verdict to draw.
"""

import itertools
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import blended_transform_factory

from figures import numbers, page
from figures.command import command
from figures.page import INK, PALE, NoVerdict
from figures.rows import ROW, bands, grouped, groups, limits

__all__ = ["NoVerdict", "draw", "forest"]

WIDTH, HEADER, FOOTER = 10.0, 1.12, 1.12  # inches
LEFT, RIGHT = 0.20, 0.565  # the axes, as shares of the width
# Right edges of the columns beside the axes, as shares of the width.
COLUMNS = {"Δ (pp)": 0.635, "95 % interval": 0.765, "p": 0.835, "n": 0.88, "cache": 0.945}


def draw(folder: Path) -> tuple[Path, ...]:
    """Draw FOLDER/verdict.json into FOLDER/figures/forest.svg and .png. Raises NoVerdict without one."""
    return page.write(Path(folder) / "figures", "forest", forest, page.judged(folder))


def forest(judged: Mapping[str, Any]) -> Figure:
    """One line a contrast, grouped by model, task and budget; x is the difference in percentage points.

    Thick: the nominal 95 % interval. Thin: the simultaneous one. A filled diamond passes Bonferroni, an open
    circle does not; an open diamond passes without matched memory, which counts for nothing. An arrowhead
    says that an interval goes on beyond the axis. Each artist carries its meaning and the index of its
    contrast as gid ("point-3", "nominal-3", "simultaneous-3").
    """
    rows = grouped(judged["contrasts"], lambda one: f"against {one['against']}")
    height = HEADER + ROW * len(rows) + FOOTER
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_axes((LEFT, FOOTER / height, RIGHT - LEFT, ROW * len(rows) / height))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(*_limits(judged["contrasts"]))
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


def _limits(contrasts: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Wide enough for every point and nominal interval, and for 5 pp on both sides of zero."""
    ends = [100 * float(one[end]) for one in contrasts for end in ("low", "high") if one[end] is not None]
    return limits(ends)


def _contrast(axes: Any, across: Any, y: int, index: int, one: Mapping[str, Any]) -> None:
    if one["difference"] is None:
        axes.text(
            COLUMNS["95 % interval"],
            y,
            "not estimated",
            transform=across,
            va="center",
            ha="right",
            color=PALE,
        )
        return
    low, high = axes.get_xlim()
    passes = one["better"] or one["worse"]
    counts = passes and one["matched"]
    for name, width, ends in (
        ("simultaneous", 0.9, ("low_simultaneous", "high_simultaneous")),
        ("nominal", 2.8, ("low", "high")),
    ):
        left, right = (100 * float(one[end]) for end in ends)
        shown = max(left, low), min(right, high)
        axes.plot(
            shown, (y, y), color=INK, linewidth=width, solid_capstyle="butt", zorder=2, gid=f"{name}-{index}"
        )
        for end, clipped, marker in ((shown[0], left < low, "<"), (shown[1], right > high, ">")):
            if clipped:
                axes.plot(
                    end, y, marker, color=INK, markersize=5, clip_on=False, zorder=3, gid=f"clipped-{index}"
                )
    axes.plot(
        100 * float(one["difference"]),
        y,
        marker="D" if passes else "o",
        markersize=6.5 if passes else 6,
        markerfacecolor=INK if counts else "white",
        markeredgecolor=INK,
        markeredgewidth=1.1,
        linestyle="none",
        zorder=4,
        gid=f"point-{index}",
    )
    cells = {
        "Δ (pp)": numbers.points(one["difference"]),
        "95 % interval": numbers.interval(one["low"], one["high"]),
        "p": numbers.p_value(one["p"]),
        "n": str(one["n"]),
        "cache": f"{float(one['cache_ratio']):.3f}",
    }
    weight = "bold" if counts else "normal"
    for head, text in cells.items():
        axes.text(COLUMNS[head], y, text, transform=across, va="center", ha="right", weight=weight, color=INK)
    if not one["matched"]:
        axes.text(COLUMNS["cache"] + 0.004, y, "†", transform=across, va="center", color=INK)


def _frame(figure: Figure, axes: Any, across: Any, judged: Mapping[str, Any]) -> None:
    height = figure.get_figheight()
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.set_yticks([])
    axes.patch.set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 2.5, 5, 10], min_n_ticks=4))
    axes.xaxis.set_major_formatter(lambda x, _: numbers.points(str(x / 100)).removesuffix(".0"))
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
    letters = f" (branch {branch['registered']}; symmetric {branch['symmetric']})" if branch else ""
    line(0.14, textwrap.shorten(judged["title"], 100, placeholder=" …"), size=12, weight="bold")
    line(0.40, f"{judged['verdict']}{letters}, {judged['label']}, {numbers.WITNESS}", size=10, weight="bold")
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
