"""Draw the bytes of the KV cache against the length of the context, computed and measured.

    python -m benchmarks.drawings.memory memory.json folder

Reads {"model": str, "bytes_per_token": int, "rows": [{"tokens": n, "share": "0.3", "measured_bytes": b}]}.
bytes_per_token: of the full cache, over all layers and KV heads. share: a decimal or "full". Writes
memory.svg and memory.png into the folder; the same measurements give the same bytes with one version of
matplotlib.
Exit status: 0 drawn; 2 the measurements cannot be read.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from benchmarks.drawings import measured
from benchmarks.drawings.measured import COUNT, TEXT, Kind
from figures.drawing import page
from figures.drawing.page import INK, PALE

__all__ = ["draw", "memory", "printed"]

SHARE = Kind(
    'a share, e.g. "0.3" or "full"',
    lambda value: isinstance(value, str) and bool(re.fullmatch(r"full|0\.\d*[1-9]\d*", value)),
)
SHARES = ("full", "0.5", "0.3")  # always drawn; others where they were measured
LINES = ("-", (0, (6, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
MARKERS = ("o", "s", "^", "D")
WIDTH, BODY = 8.4, 4.6  # inches


def draw(source: Path, folder: Path) -> tuple[Path, ...]:
    """Raises BadMeasurements."""
    values = {"model": TEXT, "bytes_per_token": COUNT}
    fields = {"tokens": COUNT, "share": SHARE, "measured_bytes": COUNT}
    held = measured.read(source, values, fields, ["tokens", "share"])
    return page.write_drawing(Path(folder), memory, held)


def memory(held: Mapping[str, Any]) -> Figure:
    """Both axes logarithmic. A line is share x tokens x bytes_per_token; a marker is a measurement.

    Lines have "line-<share>" and markers "measured-<share>" as gid.
    """
    rows = sorted(held["rows"], key=lambda row: row["tokens"])
    shares = sorted({*SHARES, *(row["share"] for row in rows)}, key=_share, reverse=True)
    ratios = [row["measured_bytes"] / _line(held, row["share"], row["tokens"]) for row in rows]
    paper = page.new_sheet(
        WIDTH,
        BODY,
        f"KV cache against context: {held['model']}",
        [f"{held['bytes_per_token']:,} bytes a token in all layers and heads of the full cache."],
        [
            "Lines: share x tokens x bytes a token, computed. Markers: measured. Measured over computed: "
            f"{min(ratios):.3f} to {max(ratios):.3f}.",
        ],
    )
    axes = paper.add_axes(0.95, 0.6, 6.3, 3.85)
    axes.set(xscale="log", yscale="log")
    tokens = sorted({row["tokens"] for row in rows})
    ends = tokens[0] / 1.15, tokens[-1] * 1.15
    for number, share in enumerate(shares):
        heights = [_line(held, share, end) for end in ends]
        style = LINES[number % len(LINES)]
        axes.plot(ends, heights, color=INK, linewidth=1.2, linestyle=style, gid=f"line-{share}")
        name = "full cache" if share == "full" else f"share {share}"
        axes.annotate(name, (ends[1], heights[1]), (6, 0), textcoords="offset points", va="center", color=INK)
        points = [(row["tokens"], row["measured_bytes"]) for row in rows if row["share"] == share]
        if points:
            axes.plot(
                *zip(*points, strict=True),
                MARKERS[number % len(MARKERS)],
                linestyle="none",
                markersize=6,
                markerfacecolor="white",
                markeredgecolor=INK,
                markeredgewidth=1.1,
                zorder=3,
                gid=f"measured-{share}",
            )
    axes.set_xlim(*ends)
    axes.xaxis.set_major_locator(FixedLocator(tokens))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(FixedLocator([2**power for power in range(64) if low <= 2**power <= high]))
    axes.yaxis.set_major_formatter(lambda y, _: printed(y))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.grid(axis="y", color=PALE, alpha=0.25, linewidth=0.6)
    axes.spines[["right", "top"]].set_visible(False)
    axes.set_xlabel("tokens of the context")
    axes.set_ylabel("keys and values")
    return paper.figure


def printed(count: float) -> str:
    """Bytes in the largest unit that leaves at least one."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:g} {unit}"
    return f"{count:g} B"


def _share(share: str) -> float:
    return 1.0 if share == "full" else float(share)


def _line(held: Mapping[str, Any], share: str, tokens: float) -> float:
    return _share(share) * tokens * float(held["bytes_per_token"])


def main(argv: list[str] | None = None) -> int:
    return measured.drawing("benchmarks.drawings.memory", __doc__, draw, argv)


if __name__ == "__main__":
    sys.exit(main())
