"""A forest plot of the contrasts of a comparison, labelled as exploratory; deterministic for the same data."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.compare.comparison import Comparison
from analysis.compare.scored_answers import ResultError

INK, PALE = "#1a1a1a", "#6b6b6b"
STYLE = {"font.family": "DejaVu Sans", "font.size": 8.5, "svg.fonttype": "path", "svg.hashsalt": "kv-prereg"}
ROW, FRAME = 0.3, 1.45  # inches: of a contrast; of title and axis together
LONGEST = 60  # characters of a label


def write_forest(path: Path, comparison: Comparison) -> None:
    """Write the plot, and beside it NAME-ranks where three arms or more are ranked. Raises ResultError for a name that
    does not end in .svg or .png.
    """
    refuse_other_format(path)
    save_drawing(path, draw_forest, comparison)
    if comparison.rank_list:
        save_drawing(path.with_stem(f"{path.stem}-ranks"), draw_ranks, comparison)


def refuse_other_format(path: Path) -> None:
    if path.suffix not in (".svg", ".png"):
        raise ResultError(f"--plot: {path}: is neither .svg nor .png; use one of these endings")


def save_drawing(path: Path, draw: Callable[..., Figure], data: Any) -> None:
    """Save draw(data) as .svg or .png."""
    metadata = {"Date": None, "Creator": None} if path.suffix == ".svg" else {"Software": None}
    with style.context(["default", STYLE, {"text.parse_math": False}]):  # ignores the user's matplotlibrc
        draw(data).savefig(path, metadata=metadata, dpi=200)


def draw_ranks(comparison: Comparison) -> Figure:
    """Draw one line for each arm, in the order of means: from the first rank that it may have to the last. Arms whose
    lines share a rank are tied.
    """
    rows = comparison.rank_list
    labels = [_shorten(f"{row.task}  {row.arm}  {100 * row.score:.1f} %".strip()) for row in rows]
    subtitle = f"max-t over all pairs; all ranks are valid together at {100 * (1 - comparison.alpha):g} %"
    figure, axes = _make_page(labels, "rank by mean score", comparison.label, subtitle)
    for index, row in enumerate(rows):
        axes.plot((row.first, row.last), (index, index), "o-", color=INK, markersize=4, gid=f"rank-{index}")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def draw_forest(comparison: Comparison) -> Figure:
    """Draw one line for each contrast, the first on top. Thick: the 95 % interval. Thin: the simultaneous one."""
    rows = comparison.contrast_list
    labels = [
        _shorten(f"{contrast.task}  {contrast.subject} \N{MINUS SIGN} {contrast.against}".strip()) for contrast in rows
    ]
    subtitle = f"{comparison.method}; thick: 95 % interval, thin: simultaneous at {100 * (1 - comparison.alpha):g} %"
    figure, axes = _make_page(labels, "difference of mean scores, percentage points", comparison.label, subtitle)
    for index, contrast in enumerate(rows):
        axes.plot(
            (100 * contrast.low_simultaneous, 100 * contrast.high_simultaneous),
            (index, index),
            color=INK,
            linewidth=0.9,
            gid=f"simultaneous-{index}",
        )
        axes.plot(
            (100 * contrast.low, 100 * contrast.high), (index, index), color=INK, linewidth=2.8, gid=f"nominal-{index}"
        )
        axes.plot(100 * contrast.difference, index, "o", color=INK, markersize=6, gid=f"point-{index}")
    axes.axvline(0, color=PALE, linewidth=0.8, zorder=0)
    return figure


def _make_page(labels: Sequence[str], quantity: str, title: str, subtitle: str) -> tuple[Figure, Axes]:
    """Return a page with a row for each label, the first on top, and no row drawn."""
    height, width = FRAME + ROW * len(labels), 5.2 + 0.075 * max(map(len, labels))
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((1 - 4.9 / width, 0.75 / height, 4.6 / width, ROW * len(labels) / height))
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel(quantity)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.text(0.12 / width, 1 - 0.12 / height, title, va="top", weight="bold", color=INK)
    figure.text(0.12 / width, 1 - 0.34 / height, subtitle, va="top", color=PALE)
    return figure, axes


def _shorten(label: str) -> str:
    return label if len(label) <= LONGEST else f"{label[: LONGEST - 3]}..."
