"""One forest of the contrasts of a study and its fresh replications, with what they pool to."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from analysis.exploratory.pooled_replications import PooledContrast, PooledStudies
from analysis.stats.random_effects import Mean

INK, PALE = "#1a1a1a", "#6b6b6b"
ROW, HEAD, FRAME = 0.24, 0.34, 1.3  # inches: of a row, of the name of a contrast, of title and axis together
WIDTH, LEFT = 7.2, 2.4  # inches: of the figure, and of the names


def pooled_forest(studies: PooledStudies) -> Figure:
    """Draw a block for each contrast: a line for each study (its 95 % interval; the marker's area is its weight), a
    diamond for the fixed and for the random mean, and a thin line for the effect of a further study. The gids
    are "study-2-0" (contrast, study), "fixed-2", "random-2" and "prediction-2".
    """
    blocks = [_list_rows(contrast) for contrast in studies.contrasts]
    height = FRAME + sum(HEAD + ROW * len(rows) for rows in blocks)
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_axes((LEFT / WIDTH, 0.6 / height, (WIDTH - LEFT - 0.2) / WIDTH, (height - FRAME) / height))
    top, ticks, labels = 0.0, list[float](), list[str]()
    for index, (contrast, rows) in enumerate(zip(studies.contrasts, blocks, strict=True)):
        where, arms = "  ".join(contrast[:3]), f"{contrast.subject} \N{MINUS SIGN} {contrast.against}"
        name = f"{where}:  {arms}"
        figure.text(0.12 / WIDTH, 1 - (FRAME - 0.6 + top + 0.2) / height, name, color=INK, weight="bold", va="center")
        top += HEAD
        for number, (label, mean, kind, weight) in enumerate(rows):
            y = top + ROW * (number + 0.5)
            _draw_row(axes, mean, y, kind, weight, f"{kind}-{index}" + (f"-{number}" if kind == "study" else ""))
            ticks.append(y)
            labels.append(label)
        top += ROW * len(rows)
    axes.axvline(0, color=PALE, linewidth=0.8, zorder=0)
    axes.set_ylim(top, 0)
    axes.set_yticks(ticks, labels)
    axes.set_xlabel("difference in accuracy, percentage points")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    title = f"{studies.studies[0]} and {len(studies.studies) - 1} fresh replications: an exploratory summary"
    figure.text(0.12 / WIDTH, 1 - 0.14 / height, title, va="top", weight="bold", color=INK)
    subtitle = "Lines and diamonds: 95 % intervals, uncorrected. Thin line: prediction interval for a further study."
    figure.text(0.12 / WIDTH, 1 - 0.38 / height, subtitle, va="top", color=PALE)
    return figure


def _list_rows(contrast: PooledContrast) -> list[tuple[str, Mean, str, float]]:
    """Return label, interval, kind and weight of each line of a block."""
    weights = contrast.pooled.weights if contrast.pooled else (0.0,) * len(contrast.effects)
    rows = [
        (each.study, Mean(each.difference, each.low, each.high), "study", w)
        for each, w in zip(contrast.effects, weights, strict=True)
    ]
    if (pooled := contrast.pooled) is None:
        return rows
    rows += [("fixed effect", pooled.fixed, "fixed", 1.0), ("random effects", pooled.random, "random", 1.0)]
    if pooled.prediction is not None:
        rows.append(("a further study", Mean(pooled.random.mean, *pooled.prediction), "prediction", 1.0))
    return rows


def _draw_row(axes: Axes, mean: Mean, y: float, kind: str, weight: float, gid: str) -> None:
    middle, low, high = (100 * value for value in mean)
    if kind in ("fixed", "random"):
        corners = [(low, y), (middle, y - 0.07), (high, y), (middle, y + 0.07)]
        axes.add_patch(Polygon(corners, closed=True, facecolor=INK if kind == "fixed" else PALE, gid=gid))
        axes.update_datalim(corners)
        return
    axes.plot((low, high), (y, y), color=PALE if kind == "prediction" else INK, linewidth=0.9, gid=gid)
    if kind == "study":
        axes.plot(middle, y, "s", color=INK, markersize=3 + 5 * weight**0.5)
