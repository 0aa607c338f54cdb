"""Plot of the memory of prefill and of decoding, and of the slots alone: CrystalCache's Table 13, measured.

The table has the weights, the prefill's peak, the reading while decoding, and two caches by arithmetic.
"""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from figures.drawing import page
from figures.drawing.page import INK, MARGIN, PALE
from protocol.formats.vocabulary import FULL
from protocol.instruments.cost.drawings import labels
from protocol.instruments.cost.summary import DECODE, PREFILL, CostRow, MachineCosts

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


def freed_bytes(row: CostRow, full_row: CostRow | None) -> dict[str, float]:
    """Return the bytes that an arm frees compared with the full cache, per lane, layer and KV head after the prefill.

    allocated: of the memory allocated for slots; reserved: of the memory reserved by CUDA's allocator.
    """
    if full_row is None or row.place.budget == FULL:
        return {}
    heads = row.memory["heads"] * row.place.lanes
    names = {"allocated": "room", "reserved": "reserved"}
    available = {label: name for label, name in names.items() if name in row.memory and name in full_row.memory}
    return {label: (full_row.memory[name] - row.memory[name]) / heads for label, name in available.items()}


def memory_marks(row: CostRow) -> dict[str, int]:
    """Return bytes by mark; peaks are those of CUDA's allocator or else of the resident set."""
    marks = {
        "weights": row.memory["weights"],
        "slots after the prefill": row.memory["held"] * row.memory["slot"],
        "slots at their most": row.memory["room_peak"],
    }
    for phase, label in ((PREFILL, "peak of the prefill"), (DECODE, "peak of decoding")):
        phase_peaks = row.peaks[phase]
        if bytes_ := phase_peaks.get("allocated_peak", phase_peaks.get("rss_peak")):
            marks[label] = bytes_
        if "reserved_peak" in phase_peaks:
            marks[f"reserved, {'prefill' if phase == PREFILL else 'decoding'}"] = phase_peaks["reserved_peak"]
    return marks


def cost_memory(machines: Sequence[MachineCosts]) -> Figure:
    """Draw a row by arm and budget, at the fewest lanes. The gids are "<mark>-<model>/<tokens>/<budget>/<arm>"."""
    costs = labels.choose_measurement(machines)
    groups = labels.group_rows(costs.rows)
    rows = [(group, row) for group in groups for row in labels.fewest_lane_rows(group)]
    body = STEP * len(rows) + HEAD * len(groups) + 0.55 + LEGEND
    cuda = "device_memory" in costs.machine
    resident = (
        "Peaks: memory allocated and reserved by torch.cuda, including weights."
        if cuda
        else (
            "Peaks: the process's resident set (RSS), including Python, libraries and weights, so what a "
            "small model adds is not visible."
        )
    )
    sheet = page.new_sheet(
        2 * MARGIN + NAMES + BARS + TEXT,
        body,
        "Memory of the prefill and of decoding, separately",
        labels.heading_lines(costs),
        [
            *labels.note_lines(costs, machines),
            (
                f"{resident} Slots: keys and values. Freed per head: bytes allocated for the full cache's slots "
                "minus the arm's, per lane, layer and KV head, after the prefill, including room to append. The "
                "axis is logarithmic. After CrystalCache's Table 13."
            ),
        ],
    )
    axes = sheet.add_axes(MARGIN + NAMES, 0.5 + LEGEND, BARS, body - 0.5 - LEGEND)
    axes.set_ylim(body - 0.5 - LEGEND, 0)
    axes.set_xscale("log")
    handles: dict[str, Any] = {}
    for y, group, row in labels.lay_out_rows(axes, rows, STEP, HEAD, NAMES / BARS, lanes=True):
        axes.axhline(y, color=PALE, linewidth=0.4, alpha=0.4, zorder=0)
        name = labels.row_name(row)
        for label, value in memory_marks(row).items():
            marker, color = MARKS[label]
            (handles[label],) = axes.plot(
                value,
                y,
                marker,
                color=color,
                markersize=6,
                markerfacecolor="none" if marker == "s" else color,
                linestyle="",
                gid=f"{label}-{name}",
            )
        full_row = next(
            (candidate for candidate in labels.fewest_lane_rows(group) if candidate.place.budget == FULL), None
        )
        label = "; ".join(f"{kind} {labels.format_bytes(value)}" for kind, value in freed_bytes(row, full_row).items())
        transform = axes.get_yaxis_transform()
        axes.text(1.02, y, label, va="center", transform=transform)
    axes.text(1.02, 0.02, "freed per head", va="top", weight="bold", transform=axes.get_yaxis_transform())
    axes.xaxis.set_major_locator(LogLocator(base=16, numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: labels.format_bytes(x)))
    axes.minorticks_off()
    axes.set_xlabel("bytes, all lanes")
    anchor = (MARGIN / sheet.width, (sheet.floor + 0.02) / sheet.height)
    order = [label for label in MARKS if label in handles]
    sheet.figure.legend(
        [handles[label] for label in order], order, loc="lower left", bbox_to_anchor=anchor, ncols=5, frameon=False
    )
    return sheet.figure
