"""Plot of tokens a second and bytes of keys and values, by lanes and budget: Crystal-KV's Table I, measured.

The table (analysis/published/crystal_kv.toml) has throughput and memory saved at one lane and at the largest
number that fits, for two budgets and two lengths.
"""

from collections.abc import Sequence
from math import log
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from figures.drawing import page
from figures.drawing.page import INK, MARGIN, WIDEST
from protocol.formats.vocabulary import FULL
from protocol.instruments.cost.drawings import labels
from protocol.instruments.cost.summary import DECODE, CostRow, MachineCosts

LEFT, TOP, BELOW, HIGH, LEGEND = 0.75, 0.32, 0.5, 1.75, 0.25
MOST = 3.4  # inches of a panel's width, at most
APART = 1.05  # factor on x between two arms, so that their bars do not overlap


def cost_throughput(machines: Sequence[MachineCosts]) -> Figure:
    """Draw a column for each budget, with the full cache in each. Rows: model and length, first rates, then bytes.

    The gids are "rate-" and "bytes-<model>/<tokens>/<budget>/<arm>".
    """
    costs = labels.choose_measurement(machines)
    budgets = list(dict.fromkeys(row.place.budget for row in costs.rows if row.place.budget != FULL)) or [FULL]
    groups = labels.group_rows(costs.rows)
    wide = min(MOST, (WIDEST - 2 * MARGIN) / len(budgets) - LEFT)
    block = TOP + HIGH + BELOW
    style = labels.line_styles(costs.rows)
    title = "Decoding: tokens a second and bytes of keys and values, by lanes at once"
    sheet = page.new_sheet(
        max(6.0, 2 * MARGIN + len(budgets) * (LEFT + wide)),
        2 * block * len(groups) + LEGEND,
        title,
        [*labels.heading_lines(costs), *_fitting_text(costs)],
        [
            *labels.note_lines(costs, machines, "Bars"),
            (
                "Rates are of all lanes together. Bytes: the most that the engine allocated for keys and "
                "values of all lanes, including room to append. Both axes are logarithmic. Points with the "
                "same number of lanes are drawn next to each other. After Crystal-KV's Table I."
            ),
        ],
    )
    handles: dict[str, Any] = {}
    for number, group in enumerate(groups):
        for kind in (0, 1):
            up = LEGEND + block * (2 * (len(groups) - 1 - number) + 1 - kind)
            for column, budget in enumerate(budgets):
                axes = sheet.add_axes(MARGIN + LEFT + column * (LEFT + wide), up + BELOW, wide, HIGH)
                rows = [row for row in group.rows if row.place.budget in (FULL, budget)]
                name = f"{group.model}/{group.prompt_tokens}/{budget}"
                handles |= _draw_panel(axes, rows, style, name, kind == 0)
                axes.set_title(
                    f"{group.model} · {group.prompt_tokens} tokens · budget {budget}",
                    loc="left",
                    size=8.5,
                    weight="bold",
                )
                axes.set_xlabel("lanes at once")
                axes.set_ylabel(("tokens a second" if kind == 0 else "bytes") if column == 0 else "")
    sheet.figure.legend(
        handles.values(),
        handles.keys(),
        loc="lower left",
        bbox_to_anchor=(MARGIN / sheet.width, sheet.floor / sheet.height),
        ncols=max(1, min(6, len(handles))),
        frameon=False,
        borderaxespad=0,
    )
    return sheet.figure


def _draw_panel(axes: Any, rows: Sequence[CostRow], style: Any, name: str, rates: bool) -> dict[str, Any]:
    handles = {}
    arms = list(dict.fromkeys(row.place.arm for row in rows))
    for number, arm in enumerate(arms):
        arm_rows = [row for row in rows if row.place.arm == arm and row.rates is not None]
        aside = APART ** (number - (len(arms) - 1) / 2)
        x = [row.place.lanes * aside for row in arm_rows]
        line_style = {**style[arm], "markersize": 4, "linewidth": 1.2}
        label = "full cache" if arm_rows and arm_rows[0].place.budget == FULL else arm
        if rates:
            levels = [row.rates[DECODE] for row in arm_rows if row.rates is not None]
            y = [level.mean for level in levels]
            bars = axes.errorbar(x, y, yerr=labels.error_bars(levels), capsize=2, elinewidth=0.9, **line_style)
            bars.lines[0].set_gid(f"rate-{name}/{arm}")
            handles[label] = bars
        else:
            axes.plot(x, [row.memory["room_peak"] for row in arm_rows], gid=f"bytes-{name}/{arm}", **line_style)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    lanes = sorted({row.place.lanes for row in rows})
    axes.set_xticks(lanes, [str(count) for count in lanes])
    axes.set_xlim(lanes[0] / 1.3, lanes[-1] * 1.3)
    axes.minorticks_off()
    formatter = FuncFormatter(lambda y, _: f"{y:,.0f}" if rates else labels.format_bytes(y))
    axes.yaxis.set_major_formatter(formatter)
    _set_ticks(axes, not rates)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
    axes.spines[["right", "top"]].set_visible(False)
    return handles


def _set_ticks(axes: Any, bytes_: bool) -> None:
    """Set at most six round numbers as ticks of a logarithmic axis, bytes in their units."""
    low, high = axes.get_ylim()
    steps = (1, 2, 5) if high / low < 200 else (1,)
    unit = 1024 if bytes_ else 10
    powers = range(int(log(low, unit)) - 1, int(log(high, unit)) + 1)
    bases = [unit**power * (10**more if bytes_ else 1) for power in powers for more in (range(3) if bytes_ else (0,))]
    ticks = [step * base for base in bases for step in steps if low <= step * base <= high]
    axes.set_yticks(ticks[:: -(-len(ticks) // 6)] or [low, high])


def _fitting_text(costs: MachineCosts) -> list[str]:
    limit = costs.cost.get("fits_in")
    if limit is None:
        return []
    texts = [
        f"{'full cache' if batch.budget == FULL else f'{batch.arm}, {batch.budget}'} "
        f"{'none' if batch.lanes is None else batch.lanes} ({batch.prompt_tokens} tokens)"
        for batch in costs.largest
    ]
    return [f"The largest registered number of lanes that fits in {labels.format_bytes(limit)}: {'; '.join(texts)}."]
