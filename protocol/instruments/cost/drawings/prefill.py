"""Plot of the prefill time that a policy adds: CrystalCache's Table 12, measured.

The table splits the prefill into the model's forward pass and the method's own time, and prints the share of
the latter (29.8 % at 4K, 63.7 % at 32K). Here the forward pass is the full cache's prefill of the same
repetition.
"""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from analysis.stats.paired_ratios import GeometricMean
from figures.drawing import page
from figures.drawing.page import INK, MARGIN, PALE
from protocol.instruments.cost.drawings import labels
from protocol.instruments.cost.summary import PREFILL, CostRow, MachineCosts

NAMES, BARS, TEXT, STEP, HEAD = 2.0, 4.2, 2.6, 0.24, 0.34
ADDED = "#d55e00"
UNSURE = {"facecolor": "#ffffff", "edgecolor": ADDED, "hatch": "/////", "linewidth": 0.6}


def added_share(overhead: GeometricMean) -> tuple[float, float | None, float | None]:
    """Return the share of an arm's prefill that exceeds the full cache's, 1 - 1 / ratio, with its limits.

    It is below 0 if the arm was the faster of the two.
    """
    low, high = (None if end is None else 1 - 1 / end for end in (overhead.low, overhead.high))
    return 1 - 1 / overhead.mean, low, high


def cost_prefill(machines: Sequence[MachineCosts]) -> Figure:
    """Draw bars at the fewest lanes. The gids are "forward-" and "added-<model>/<tokens>/<budget>/<arm>"."""
    costs = labels.choose_measurement(machines)
    groups = labels.group_rows(costs.rows)
    rows = [(group, row) for group in groups for row in labels.fewest_lane_rows(group)]
    body = STEP * len(rows) + HEAD * len(groups) + 0.55
    lanes = min(row.place.lanes for row in costs.rows)
    sheet = page.new_sheet(
        2 * MARGIN + NAMES + BARS + TEXT,
        body,
        "Prefill: the model's own forward pass, and the time that a policy adds",
        labels.heading_lines(costs),
        [
            *labels.note_lines(costs, machines, "In [ ]"),
            (
                f"{lanes} {'lane' if lanes == 1 else 'lanes'}; grey: prefill seconds of the full cache, that "
                "is, the model's own forward pass. Orange: the arm's additional prefill seconds, for signals "
                "and the first event; hatched where the interval contains 0 or is missing. In %: the added "
                "part as a share of the arm's prefill, paired within repetitions; below 0 where the arm was "
                "faster. After CrystalCache's Table 12."
            ),
        ],
    )
    axes = sheet.add_axes(MARGIN + NAMES, 0.5, BARS, body - 0.5)
    axes.set_ylim(body - 0.5, 0)
    most = max(row.seconds[PREFILL].mean for _, row in rows if row.seconds is not None)
    axes.set_xlim(0, most * 1.04)
    for y, _, row in labels.lay_out_rows(axes, rows, STEP, HEAD, NAMES / BARS):
        _draw_bar(axes, y, row)
    axes.set_xlabel("seconds, all lanes")
    return sheet.figure


def _draw_bar(axes: Any, y: float, row: CostRow) -> None:
    assert row.seconds is not None
    name = labels.row_name(row)
    seconds = row.seconds[PREFILL].mean
    forward = seconds if row.overhead is None else min(seconds, seconds / row.overhead.mean)
    axes.barh(y, forward, height=0.16, color="#b9b9b4", gid=f"forward-{name}")
    if row.overhead is None:
        text = f"{seconds:.3f} s"
    else:
        share, low, high = added_share(row.overhead)
        style = {"color": ADDED} if low is not None and low > 0 else UNSURE
        axes.barh(y, seconds - forward, left=forward, height=0.16, gid=f"added-{name}", **style)
        limits = "" if low is None or high is None else f" [{100 * low:.1f}, {100 * high:.1f}]"
        text = f"{seconds:.3f} s, {100 * share:.1f} %{limits}"
    transform = axes.get_yaxis_transform()
    axes.text(1.02, y, text, va="center", color=INK if row.overhead else PALE, transform=transform)
