"""Plot of tokens a second and bytes of keys and values, by lanes and budget: Crystal-KV's Table I, measured.

The table (analysis/published/crystal_kv.toml) has throughput and memory saved at one lane and at the largest
number that fits, for two budgets and two lengths.
"""

from collections.abc import Sequence
from math import log
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from analysis.explored.cost import DECODE, Measured, Row
from analysis.rules.rule import FULL
from figures.canvas import measured, page
from figures.canvas.page import INK, MARGIN, WIDEST

__all__ = ["cost_throughput"]

BESIDE, ABOVE, UNDER, HIGH, LEGEND = 0.75, 0.32, 0.5, 1.75, 0.25
MOST = 3.4  # inches of a panel's width, at most
APART = 1.05  # factor on x between two arms, so that their bars do not overlap


def cost_throughput(found: Sequence[Measured]) -> Figure:
    """Draw a column for each budget, with the full cache in each. Rows: model and length, first rates, then
    bytes.

    The gids are "rate-" and "bytes-<model>/<tokens>/<budget>/<arm>".
    """
    one = measured.chosen(found)
    budgets = list(dict.fromkeys(row.place.budget for row in one.rows if row.place.budget != FULL)) or [FULL]
    groups = measured.groups(one.rows)
    wide = min(MOST, (WIDEST - 2 * MARGIN) / len(budgets) - BESIDE)
    block = ABOVE + HIGH + UNDER
    style = measured.line_styles(one.rows)
    title = "Decoding: tokens a second and bytes of keys and values, by lanes at once"
    sheet = page.sheet(
        max(6.0, 2 * MARGIN + len(budgets) * (BESIDE + wide)),
        2 * block * len(groups) + LEGEND,
        title,
        [*measured.heading(one), *_fitting(one)],
        [
            *measured.notes(one, found, "Bars"),
            "Rates are of all lanes together. Bytes: the most that the engine allocated for keys and values "
            "of all lanes, with room to append; arms that hold the same stand level. Both axes are "
            "logarithmic. Points of one number of lanes stand side by side. After Crystal-KV's Table I.",
        ],
    )
    handles: dict[str, Any] = {}
    for number, group in enumerate(groups):
        for kind in (0, 1):
            up = LEGEND + block * (2 * (len(groups) - 1 - number) + 1 - kind)
            for column, budget in enumerate(budgets):
                axes = sheet.axes(MARGIN + BESIDE + column * (BESIDE + wide), up + UNDER, wide, HIGH)
                rows = [row for row in group.rows if row.place.budget in (FULL, budget)]
                name = f"{group.model}/{group.prompt_tokens}/{budget}"
                handles |= _panel(axes, rows, style, name, kind == 0)
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


def _panel(axes: Any, rows: Sequence[Row], style: Any, name: str, rates: bool) -> dict[str, Any]:
    handles = {}
    arms = list(dict.fromkeys(row.place.arm for row in rows))
    for number, arm in enumerate(arms):
        own = [row for row in rows if row.place.arm == arm and row.rates is not None]
        aside = APART ** (number - (len(arms) - 1) / 2)
        x = [row.place.lanes * aside for row in own]
        how = {**style[arm], "markersize": 4, "linewidth": 1.2}
        label = "full cache" if own and own[0].place.budget == FULL else arm
        if rates:
            levels = [row.rates[DECODE] for row in own if row.rates is not None]
            y = [level.mean for level in levels]
            bars = axes.errorbar(x, y, yerr=measured.errors(levels), capsize=2, elinewidth=0.9, **how)
            bars.lines[0].set_gid(f"rate-{name}/{arm}")
            handles[label] = bars
        else:
            axes.plot(x, [row.memory["room_peak"] for row in own], gid=f"bytes-{name}/{arm}", **how)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    lanes = sorted({row.place.lanes for row in rows})
    axes.set_xticks(lanes, [str(one) for one in lanes])
    axes.set_xlim(lanes[0] / 1.3, lanes[-1] * 1.3)
    axes.minorticks_off()
    told = FuncFormatter(lambda y, _: f"{y:,.0f}" if rates else measured.amount(y))
    axes.yaxis.set_major_formatter(told)
    _ticks(axes, not rates)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
    axes.spines[["right", "top"]].set_visible(False)
    return handles


def _ticks(axes: Any, bytes_: bool) -> None:
    """Set at most six round numbers as ticks of a logarithmic axis, bytes in their units."""
    low, high = axes.get_ylim()
    steps = (1, 2, 5) if high / low < 200 else (1,)
    unit = 1024 if bytes_ else 10
    powers = range(int(log(low, unit)) - 1, int(log(high, unit)) + 1)
    bases = [
        unit**power * (10**more if bytes_ else 1)
        for power in powers
        for more in (range(3) if bytes_ else (0,))
    ]
    ticks = [step * base for base in bases for step in steps if low <= step * base <= high]
    axes.set_yticks(ticks[:: -(-len(ticks) // 6)] or [low, high])


def _fitting(one: Measured) -> list[str]:
    limit = one.cost.get("fits_in")
    if limit is None:
        return []
    told = [
        f"{'full cache' if each.budget == FULL else f'{each.arm}, {each.budget}'} "
        f"{'none' if each.lanes is None else each.lanes} ({each.prompt_tokens} tokens)"
        for each in one.largest
    ]
    return [f"Most of the registered lanes that fit in {measured.amount(limit)}: {'; '.join(told)}."]
