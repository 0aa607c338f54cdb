"""Draw the judged contrasts of a study as a forest plot.

    python -m figures.forest registrations/quickstart

Reads verdict.json alone and writes figures/forest.svg and figures/forest.png into the same folder. The same
verdict gives the same SVG, byte for byte, with one version of matplotlib.
Exit status: 0 drawn; 2 there is no verdict to draw.
"""

import argparse
import itertools
import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import blended_transform_factory

from figures import numbers

__all__ = ["NoVerdict", "draw", "forest"]

WIDTH, ROW, HEADER, FOOTER = 10.0, 0.235, 1.12, 1.12  # inches
LEFT, RIGHT = 0.20, 0.565  # the axes, as shares of the width
# Right edges of the columns beside the axes, as shares of the width.
COLUMNS = {"Δ (pp)": 0.635, "95 % interval": 0.765, "p": 0.835, "n": 0.88, "cache": 0.945}
INK, PALE, BAND = "#1a1a1a", "#6b6b6b", "#f3f3f1"
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "svg.fonttype": "path",
    "svg.hashsalt": "kv-prereg",
    "axes.linewidth": 0.8,
}


class NoVerdict(ValueError):
    """There is no judged result to draw."""


class Row(NamedTuple):
    """A line of the figure: the heading of a group, or a contrast of it."""

    label: str
    contrast: Mapping[str, Any] | None


def draw(folder: Path) -> tuple[Path, ...]:
    """Draw FOLDER/verdict.json into FOLDER/figures/forest.svg and .png. Raises NoVerdict without one."""
    path = Path(folder) / "verdict.json"
    try:
        judged = json.loads(path.read_bytes())["judged"]
    except FileNotFoundError:
        raise NoVerdict(f"{path}: missing; run: python -m protocol.confirm {folder}") from None
    except (ValueError, KeyError, TypeError):
        raise NoVerdict(f"{path}: holds no judgement; run: python -m protocol.audit {folder}") from None
    target = Path(folder) / "figures"
    target.mkdir(exist_ok=True)
    drawn = target / "forest.svg", target / "forest.png"
    with matplotlib.rc_context(STYLE):
        figure = forest(judged)
        figure.savefig(drawn[0], metadata={"Date": None, "Creator": None})
        figure.savefig(drawn[1], dpi=200, metadata={"Software": None})
    return drawn


def forest(judged: Mapping[str, Any]) -> Figure:
    """One line a contrast, grouped by model, task and budget; x is the difference in percentage points.

    Thick: the nominal 95 % interval. Thin: the simultaneous one. A filled diamond passes Bonferroni, an open
    circle does not; an open diamond passes without matched memory, which counts for nothing. An arrowhead
    says that an interval goes on beyond the axis. Each artist carries its meaning and the index of its
    contrast as gid ("point-3", "nominal-3", "simultaneous-3").
    """
    rows = _rows(judged["contrasts"])
    height = HEADER + ROW * len(rows) + FOOTER
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_axes((LEFT, FOOTER / height, RIGHT - LEFT, ROW * len(rows) / height))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(*_limits(judged["contrasts"]))
    across = blended_transform_factory(figure.transFigure, axes.transData)
    _groups(axes, rows, across)
    index = itertools.count()
    for y, row in enumerate(rows):
        if row.contrast is None:
            axes.text(0.025, y, row.label, transform=across, va="center", weight="bold", color=INK)
            continue
        axes.text(0.04, y, row.label, transform=across, va="center", color=INK)
        _contrast(axes, across, y, next(index), row.contrast)
    _frame(figure, axes, across, judged)
    return figure


def _rows(contrasts: Sequence[Mapping[str, Any]]) -> list[Row]:
    rows = []
    for place, group in itertools.groupby(contrasts, lambda one: (one["model"], one["task"], one["budget"])):
        rows.append(Row(" · ".join([*place[:2], f"budget {place[2]}"]), None))
        rows += [Row(f"against {one['against']}", one) for one in group]
    return rows


def _limits(contrasts: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Wide enough for every point and nominal interval, and for 5 pp on both sides of zero."""
    ends = [100 * float(one[end]) for one in contrasts for end in ("low", "high") if one[end] is not None]
    low, high = min([-5.0, *ends]), max([5.0, *ends])
    return low - 0.06 * (high - low), high + 0.06 * (high - low)


def _groups(axes: Any, rows: Sequence[Row], across: Any) -> None:
    """The zero line beside the contrasts of each group, and a pale band behind every second group."""
    starts = [y for y, row in enumerate(rows) if row.contrast is None] + [len(rows)]
    groups = list(itertools.pairwise(starts))
    for first, last in groups:
        axes.plot((0, 0), (first + 0.5, last - 0.5), color=INK, linewidth=0.9, zorder=1, gid="zero")
    for first, last in groups[::2]:
        axes.fill_betweenx(
            (first - 0.5, last - 0.5),
            0.015,
            0.985,
            transform=across,
            color=BAND,
            linewidth=0,
            zorder=-2,
            clip_on=False,
        )


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
    parser = argparse.ArgumentParser(
        prog="python -m figures.forest",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="a confirmed registration, e.g. registrations/quickstart")
    args = parser.parse_args(argv)
    try:
        drawn = draw(args.folder)
    except NoVerdict as refusal:
        print(f"NoVerdict: {refusal}", file=sys.stderr)
        return 2
    print(*drawn, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
