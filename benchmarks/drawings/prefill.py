"""Draw what a prefill with CrystalCache costs, part by part, against the length of the context.

    python -m benchmarks.drawings.prefill prefill.json folder

Reads {"model": str, "rows": [{"tokens": n, "forward": s, "salience_and_edges": s, "trunks": s, "impact": s,
"graph": s, "eviction": s}, ...]}, seconds, and writes prefill.svg and prefill.png into the folder. The same
measurements give the same bytes with one version of matplotlib.
Exit status: 0 drawn; 2 the measurements cannot be read.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.drawings import measured
from benchmarks.drawings.measured import COUNT, SECONDS, TEXT, Kind
from figures.drawing import page
from figures.drawing.page import INK

__all__ = ["PARTS", "draw", "overhead", "prefill"]

# Part: colour (Okabe & Ito, in which no two look alike to the colour-blind) and hatch, for print in grey.
PARTS = {
    "forward": ("#d4d4d0", ""),
    "salience_and_edges": ("#0072b2", ""),
    "trunks": ("#f0e442", "////"),
    "impact": ("#56b4e9", "...."),
    "graph": ("#e69f00", "xxxx"),
    "eviction": ("#009e73", "\\\\\\\\"),
}
POSITIVE = Kind("a positive number of seconds", lambda value: SECONDS.holds(value) and value > 0)
BODY = 4.2  # inches


def draw(source: Path, folder: Path) -> tuple[Path, ...]:
    """Raises BadMeasurements."""
    fields = {"tokens": COUNT, **dict.fromkeys(PARTS, SECONDS), "forward": POSITIVE}
    held = measured.read(source, {"model": TEXT}, fields, ["tokens"])
    return page.write_drawing(Path(folder), prefill, held)


def overhead(row: Mapping[str, Any]) -> float:
    """All parts but the forward, as a share of the forward."""
    return float(sum(row[part] for part in PARTS if part != "forward") / row["forward"])


def prefill(held: Mapping[str, Any]) -> Figure:
    """Left: seconds, stacked. Right: the parts beyond the forward, as shares of it. One bar a row, by tokens.

    Each bar has "seconds-<part>-<tokens>" or "share-<part>-<tokens>" as gid.
    """
    rows = sorted(held["rows"], key=lambda row: row["tokens"])
    plot = max(3.5, 0.65 * len(rows))  # inches
    paper = page.new_sheet(
        2 * plot + 2.0,
        BODY,
        f"Prefill with CrystalCache, part by part: {held['model']}",
        ["Above each bar: everything beyond the forward, as a share of the forward."],
        ["Left: seconds of one prefill. Right: the same without the forward, in % of it, on its own scale."],
    )
    panels = {
        "seconds": paper.add_axes(0.85, 0.95, plot, 3.0),
        "share": paper.add_axes(plot + 1.75, 0.95, plot, 3.0),
    }
    for name, axes in panels.items():
        parts = [part for part in PARTS if name == "seconds" or part != "forward"]
        for x, row in enumerate(rows):
            unit = 1.0 if name == "seconds" else 100 / row["forward"]
            base = 0.0
            for part in parts:
                (bar,) = axes.bar(
                    x,
                    unit * row[part],
                    bottom=base,
                    width=0.62,
                    facecolor=PARTS[part][0],
                    hatch=PARTS[part][1],
                    edgecolor=INK,
                    linewidth=0.6,
                    label=part.replace("_", " ") if x == 0 else None,
                )
                bar.set_gid(f"{name}-{part}-{row['tokens']}")
                base += unit * row[part]
            text = f"+{page.format_percent(overhead(row))} %"
            axes.annotate(text, (x, base), (0, 4), textcoords="offset points", ha="center", va="bottom", color=INK)
        axes.set_xticks(range(len(rows)), [f"{row['tokens']:,}" for row in rows])
        axes.set_xlim(-0.6, len(rows) - 0.4)
        axes.set_xlabel("tokens of the context")
        axes.set_ylim(0, 1.12 * axes.get_ylim()[1])
        axes.spines[["right", "top"]].set_visible(False)
    panels["seconds"].set_ylabel("seconds")
    panels["share"].set_ylabel("% of the forward")
    handles, labels = panels["seconds"].get_legend_handles_labels()
    paper.figure.legend(
        handles,
        labels,
        ncols=len(PARTS),
        loc="lower center",
        bbox_to_anchor=(0.5, (paper.floor + 0.08) / paper.height),
        frameon=False,
    )
    return paper.figure


def main(argv: list[str] | None = None) -> int:
    return measured.drawing("benchmarks.drawings.prefill", __doc__, draw, argv)


if __name__ == "__main__":
    sys.exit(main())
