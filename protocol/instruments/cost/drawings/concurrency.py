"""Plot of how many requests would fit on a card: EpiKV's projection, by its own arithmetic.

Appendix I and figure 6 of arXiv:2606.26472 divide (0.9 x 80 - 16) GiB by the bytes of a request's cache: 14
requests of 32,768 tokens without eviction and 224 at 2,048 slots, for 128 KiB a token. Nothing is measured.
"""

from collections.abc import Sequence
from decimal import Decimal
from math import ceil
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from figures.drawing import page
from figures.drawing.line_styles import styles
from figures.drawing.page import INK, MARGIN, PALE
from protocol.formats.vocabulary import FULL
from protocol.instruments.cost.drawings import labels
from protocol.instruments.cost.summary import CostRow, MachineCosts

CARD = 80 * 2**30  # bytes of EpiKV's card
USABLE = Decimal("0.9")  # share of the card, as in EpiKV
CONTEXTS = tuple(2**power for power in range(9, 18))
WIDE, HIGH, LEFT, TOP, BELOW, NAMES = 3.6, 2.4, 0.75, 0.32, 0.55, 1.3


def projected_requests(card: int, weights: int, token: int, slots: int) -> int:
    """Return floor((0.9 card - weights) / (bytes of a slot in all heads x slots)); 0 if the weights fill it."""
    return max(0, int((USABLE * card - weights) // (token * slots)))


def slots_at(budget: str, context: int) -> int | None:
    """Return the slots that a request of this length uses; None for a budget that does not depend on lengths alone."""
    if budget == FULL:
        return context
    if budget.isdecimal():
        return min(context, int(budget))
    try:
        return ceil(Decimal(budget) * context)
    except ArithmeticError:
        return None


def cost_concurrency(machines: Sequence[MachineCosts]) -> Figure:
    """Draw a panel for each model, a line for each budget. The gids are "fits-<model>/<budget>"."""
    costs = labels.choose_measurement(machines)
    full_rows = {row.place.model: row for row in costs.rows if row.memory and row.place.budget == FULL}
    any_rows = {row.place.model: row for row in reversed(costs.rows) if row.memory}
    models = {model: full_rows.get(model, row) for model, row in any_rows.items()}
    budgets = [FULL, *dict.fromkeys(row.place.budget for row in costs.rows if row.place.budget != FULL)]
    drawn = [budget for budget in budgets if slots_at(budget, CONTEXTS[0]) is not None]
    undrawn = [budget for budget in budgets if budget not in drawn]
    width = max(6.0, 2 * MARGIN + len(models) * (LEFT + WIDE + NAMES))
    sheet = page.new_sheet(
        width,
        TOP + HIGH + BELOW,
        "PROJECTION, not measured: how many requests would fit on an 80 GiB card",
        ["By EpiKV's own arithmetic: (0.9 x 80 GiB - weights) / (bytes of a slot x slots of a request)."],
        [
            (
                "Weights and bytes of a slot are those of the model; EpiKV uses 16 GiB and 128 KiB a token. "
                "Left out, as in EpiKV: activations, the peak of the prefill, the policy's state, room to "
                "append, fragmentation. All arms are assumed to hold equally many slots at one budget. After "
                "EpiKV's figure 6."
            ),
            *(
                [f"Not drawn, because their slots do not follow from the length: {', '.join(undrawn)}."]
                if undrawn
                else []
            ),
        ],
    )
    for number, (model, row) in enumerate(models.items()):
        left = MARGIN + LEFT + number * (LEFT + WIDE + NAMES)
        _draw_panel(sheet.add_axes(left, BELOW, WIDE, HIGH), model, row, drawn)
    return sheet.figure


def _draw_panel(axes: Any, model: str, row: CostRow, budgets: Sequence[str]) -> None:
    token = row.memory["slot"] * row.memory["heads"]
    style = styles([budget for budget in budgets if budget != FULL])
    ends = []
    for budget in budgets:
        counts = [
            projected_requests(CARD, row.memory["weights"], token, slots_at(budget, context) or 1)
            for context in CONTEXTS
        ]
        line_style = {"color": PALE, "marker": "x"} if budget == FULL else style[budget]
        axes.plot(CONTEXTS, counts, markersize=3.5, linewidth=1.2, gid=f"fits-{model}/{budget}", **line_style)
        ends.append((counts[-1], "full cache" if budget == FULL else f"budget {budget}", line_style["color"]))
    axes.set_title(
        f"{model}: weights {labels.format_bytes(row.memory['weights'])}, a token {labels.format_bytes(token)}",
        loc="left",
        size=8.5,
        weight="bold",
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1024:g}K" if x >= 1024 else f"{x:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
    axes.minorticks_off()
    axes.set_xlabel("tokens in one request")
    axes.set_ylabel("requests, projected")
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
    axes.spines[["right", "top"]].set_visible(False)
    for count, name, color in ends:
        if count > 0:
            axes.annotate(
                name,
                (CONTEXTS[-1], count),
                (6, 0),
                textcoords="offset points",
                va="center",
                color=color,
                annotation_clip=False,
            )
