"""Plot of the memory of prefill and of decoding, and of the slots alone: CrystalCache's Table 13, measured.

The table has the weights, the prefill's peak, the reading while decoding, and two caches by arithmetic.
"""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from analysis.explored.cost import DECODE, PREFILL, Measured, Row
from analysis.rules.rule import FULL
from figures.canvas import measured, page
from figures.canvas.page import INK, MARGIN, PALE

__all__ = ["cost_memory", "freed"]

NAMES, BARS, TEXT, STEP, HEAD, LEGEND = 1.9, 4.4, 3.0, 0.27, 0.34, 0.3
# Mark -> marker and colour.
MARKS = {
    "weights": ("|", INK),
    "slots after the prefill": ("o", "#0072b2"),
    "slots at their most": ("s", "#56b4e9"),
    "peak of the prefill": (">", "#d55e00"),
    "peak of decoding": ("<", "#009e73"),
    "reserved, prefill": ("4", "#d55e00"),
    "reserved, decoding": ("3", "#009e73"),
}


def freed(row: Row, whole: Row | None) -> dict[str, float]:
    """Return the bytes that an arm frees compared with the full cache, per lane, layer and KV head after the
    prefill.

    allocated: of the memory allocated for slots; reserved: of the memory reserved by CUDA's allocator.
    """
    if whole is None or row.place.budget == FULL:
        return {}
    heads = row.memory["heads"] * row.place.lanes
    names = {"allocated": "room", "reserved": "reserved"}
    both = {said: name for said, name in names.items() if name in row.memory and name in whole.memory}
    return {said: (whole.memory[name] - row.memory[name]) / heads for said, name in both.items()}


def marks(row: Row) -> dict[str, int]:
    """Return bytes by mark; peaks are those of CUDA's allocator or else of the resident set."""
    found = {
        "weights": row.memory["weights"],
        "slots after the prefill": row.memory["held"] * row.memory["slot"],
        "slots at their most": row.memory["room_peak"],
    }
    for phase, said in ((PREFILL, "peak of the prefill"), (DECODE, "peak of decoding")):
        own = row.peaks[phase]
        if bytes_ := own.get("allocated_peak", own.get("rss_peak")):
            found[said] = bytes_
        if "reserved_peak" in own:
            found[f"reserved, {'prefill' if phase == PREFILL else 'decoding'}"] = own["reserved_peak"]
    return found


def cost_memory(found: Sequence[Measured]) -> Figure:
    """Draw one row for each arm and budget, by model and length, at the fewest lanes. The gids are
    "<mark>-<model>/<tokens>/<budget>/<arm>".
    """
    one = measured.chosen(found)
    groups = measured.groups(one.rows)
    rows = [(group, row) for group in groups for row in measured.alone(group)]
    body = STEP * len(rows) + HEAD * len(groups) + 0.55 + LEGEND
    cuda = "device_memory" in one.machine
    resident = (
        "Peaks: torch.cuda's allocated and reserved, weights among them."
        if cuda
        else "Peaks: the process's resident set (RSS), with Python, libraries and weights: what a small "
        "model adds to it does not show."
    )
    sheet = page.sheet(
        2 * MARGIN + NAMES + BARS + TEXT,
        body,
        "Memory of the prefill and of decoding apart",
        measured.heading(one),
        [
            *measured.notes(one, found),
            f"{resident} Slots: keys and values. Freed per head: what was allocated for the full cache's "
            "slots less the arm's, per lane, layer and KV head, after the prefill, with room to append. The "
            "axis is logarithmic. After CrystalCache's Table 13.",
        ],
    )
    axes = sheet.axes(MARGIN + NAMES, 0.5 + LEGEND, BARS, body - 0.5 - LEGEND)
    axes.set_ylim(body - 0.5 - LEGEND, 0)
    axes.set_xscale("log")
    y, ticks, seen = 0.0, [], None
    handles: dict[str, Any] = {}
    for group, row in rows:
        if group is not seen:
            y, seen = y + HEAD, group
            title = f"{group.model} · {group.prompt_tokens} tokens · lanes: {row.place.lanes}"
            axes.text(-NAMES / BARS, y - 0.15, title, weight="bold", transform=axes.get_yaxis_transform())
        y += STEP
        ticks.append(y - STEP / 2)
        axes.axhline(y - STEP / 2, color=PALE, linewidth=0.4, alpha=0.4, zorder=0)
        name = "/".join(map(str, (row.place.model, row.place.prompt_tokens, row.place.budget, row.place.arm)))
        for said, value in marks(row).items():
            marker, color = MARKS[said]
            (handles[said],) = axes.plot(
                value,
                y - STEP / 2,
                marker,
                color=color,
                markersize=6,
                markerfacecolor="none" if marker == "s" else color,
                linestyle="",
                gid=f"{said}-{name}",
            )
        whole = next((other for other in measured.alone(group) if other.place.budget == FULL), None)
        said = "; ".join(f"{what} {measured.amount(value)}" for what, value in freed(row, whole).items())
        where = axes.get_yaxis_transform()
        axes.text(1.02, y - STEP / 2, said, va="center", transform=where)
    axes.text(1.02, 0.02, "freed per head", va="top", weight="bold", transform=axes.get_yaxis_transform())
    axes.set_yticks(ticks, [measured.named(row) for _, row in rows])
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(LogLocator(base=16, numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: measured.amount(x)))
    axes.minorticks_off()
    axes.set_xlabel("bytes, all lanes")
    axes.spines[["right", "top", "left"]].set_visible(False)
    place = (MARGIN / sheet.width, (sheet.floor + 0.02) / sheet.height)
    order = [said for said in MARKS if said in handles]
    sheet.figure.legend(
        [handles[said] for said in order],
        order,
        loc="lower left",
        bbox_to_anchor=place,
        ncols=5,
        frameon=False,
    )
    return sheet.figure
