"""A forest plot of the contrasts of a comparison, labelled as exploratory; deterministic for the same data.
"""

from pathlib import Path

from matplotlib import style
from matplotlib.figure import Figure

from analysis.results.comparison import Comparison
from analysis.results.rows import ResultError

__all__ = ["forest", "write"]

INK, PALE = "#1a1a1a", "#6b6b6b"
STYLE = {"font.family": "DejaVu Sans", "font.size": 8.5, "svg.fonttype": "path", "svg.hashsalt": "kv-prereg"}
ROW, AROUND = 0.3, 1.45  # inches: of a contrast; of title and axis together
SHORTEN = 60  # characters of a label


def write(path: Path, found: Comparison) -> None:
    """Write the plot. Raises ResultError for a name that does not end in .svg or .png."""
    if path.suffix not in (".svg", ".png"):
        raise ResultError(f"--plot: {path}: ends neither in .svg nor in .png; name one of these")
    plain = {"Date": None, "Creator": None} if path.suffix == ".svg" else {"Software": None}
    with style.context(["default", STYLE, {"text.parse_math": False}]):  # ignores the user's matplotlibrc
        forest(found).savefig(path, metadata=plain, dpi=200)


def forest(found: Comparison) -> Figure:
    """Draw one line for each contrast, the first on top. Thick: the 95 % interval. Thin: the simultaneous
    one.
    """
    rows = found.every
    labels = [_short(f"{one.task}  {one.subject} \N{MINUS SIGN} {one.against}".strip()) for one in rows]
    height = AROUND + ROW * len(rows)
    wide = 5.2 + 0.075 * max(map(len, labels))
    figure = Figure(figsize=(wide, height))
    axes = figure.add_axes((1 - 4.9 / wide, 0.75 / height, 4.6 / wide, ROW * len(rows) / height))
    for place, one in enumerate(rows):
        axes.plot(
            (100 * one.low_simultaneous, 100 * one.high_simultaneous),
            (place, place),
            color=INK,
            linewidth=0.9,
            gid=f"simultaneous-{place}",
        )
        axes.plot(
            (100 * one.low, 100 * one.high), (place, place), color=INK, linewidth=2.8, gid=f"nominal-{place}"
        )
        axes.plot(100 * one.difference, place, "o", color=INK, markersize=6, gid=f"point-{place}")
    axes.axvline(0, color=PALE, linewidth=0.8, zorder=0)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), labels)
    axes.set_xlabel("difference of mean scores, percentage points")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.text(0.12 / wide, 1 - 0.12 / height, found.label, va="top", weight="bold", color=INK)
    said = f"{found.method}; thick: 95 %, thin: together at {100 * (1 - found.alpha):g} %"
    figure.text(0.12 / wide, 1 - 0.34 / height, said, va="top", color=PALE)
    return figure


def _short(label: str) -> str:
    return label if len(label) <= SHORTEN else f"{label[: SHORTEN - 3]}..."
