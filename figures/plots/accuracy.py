"""Plot of the accuracy of every arm in every cell, with an interval for each arm and the full cache as a
line.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from analysis.stats import bootstrap, resampled_units
from analysis.stats.interval import exact
from analysis.studies.study_files import scored
from figures.canvas import page
from figures.canvas.page import INK, PALE
from figures.canvas.rows import entries, grouped, groups, place, point, table

__all__ = ["Solved", "accuracy", "solved"]

LABEL = 0.9  # inches, of the text at the end of a heading's row
COLUMNS = {"accuracy, %": 0.85, "95 % interval": 1.05, "problems": 0.75}


class Solved(NamedTuple):
    """Mean accuracy (0 to 1) of an arm over its graded problems, and its 95 % interval; NaN if unknown."""

    mean: float
    low: float
    high: float
    problems: int


def accuracy(judged: Mapping[str, Any], lanes: Any) -> Figure:
    """Draw one line for each arm, grouped by model, task and budget. lanes: those of `study_files.read`.

    Filled: the subject. Dashed: the arm that evicts nothing, of the same model and task. The gid of each
    artist is its meaning and the index of its arm among the drawn ones ("point-3", "interval-3"; "full-0" by
    group).
    """
    found = {key: solved(group) for key, group in lanes.groupby(["model", "task", "budget", "arm"])}
    places = list(dict.fromkeys(place(one) for one in judged["contrasts"]))
    evicting = [one for one in judged["arms"] if one["budget"] != "full"]
    evicting.sort(key=lambda one: places.index(place(one)))
    rows = grouped(evicting, lambda one: str(one["arm"]))
    subject = judged["contrasts"][0]["subject"]
    drawn = table(
        rows,
        COLUMNS,
        "Accuracy of every arm (exploratory)",
        [
            page.standing(judged),
            "Intervals per arm; contrasts are paired: see forest. Intervals that overlap decide nothing.",
        ],
        [
            f"Line: 95 % interval over problems, {_how(lanes)}. Not corrected for the number of arms.",
            f"■ {subject}, the subject of the registered contrasts. ○ other arms. Dashed: full cache, on the "
            "same problems. Problems without a grade are left out.",
        ],
        below=0.5,
        spare=LABEL,
    )
    axes = drawn.axes
    axes.set_xlim(-3, 103)
    axes.set_xlabel("mean score, %" if scored(lanes) else "correct answers, %")
    for y, number, arm in entries(rows):
        one, own = found[*place(arm), arm["arm"]], arm["arm"] == subject
        drawn.cells(y, _printed(one), weight="bold" if own else "normal")
        if math.isnan(one.mean):
            continue
        ends = 100 * one.low, 100 * one.high
        axes.plot(ends, (y, y), color=INK, linewidth=1.6, gid=f"interval-{number}")
        marker = "s" if own else "o"
        point(axes, 100 * one.mean, y, marker, filled=own, markersize=6, gid=f"point-{number}")
    dashed = {"color": PALE, "linewidth": 1.1, "linestyle": (0, (4, 2)), "zorder": 1}
    for number, (first, last, (model, task, _)) in enumerate(groups(rows)):
        full = [one for key, one in found.items() if key[:3] == (model, task, "full")]
        if not full or math.isnan(full[0].mean):
            continue
        share = 100 * full[0].mean
        axes.plot((share, share), (first + 0.5, last - 0.5), gid=f"full-{number}", **dashed)
        drawn.cells(first, _printed(full[0]), color=PALE)
        axes.text(100, first, "full cache", va="center", ha="right", color=PALE)
    return drawn.sheet.figure


def solved(lanes: Any) -> Solved:
    """Return the accuracy of one arm of a cell. lanes: of this arm. The seeds of a problem are averaged
    first.

    With one seed the interval is exact. With more seeds, for scores and for problems in clusters it is a
    percentile bootstrap over problems or clusters (10,000 draws, seed 0), since a mean of means is no count.
    """
    each = lanes.groupby("problem")["correct"].mean().dropna()
    means, clusters = each.to_numpy(), None
    if "cluster" in lanes:
        clusters = lanes.groupby("problem")["cluster"].first()[each.index].tolist()
    problems = len(means)
    if problems == 0:
        return Solved(math.nan, math.nan, math.nan, 0)
    if lanes["seed"].nunique() == 1 and clusters is None and not scored(lanes):
        return Solved(float(means.mean()), *exact(int(means.sum()), problems), problems)
    if resampled_units.number(clusters, problems) == 1:
        return Solved(float(means.mean()), 0.0, 1.0, problems)
    of = resampled_units.units(means[:, None], clusters)
    interval = of.whole(bootstrap.paired(of.values, rng=np.random.default_rng(0)))
    return Solved(interval.mean, max(0.0, interval.low), min(1.0, interval.high), problems)


def _how(lanes: Any) -> str:
    """Return the description of the intervals."""
    if "cluster" in lanes:
        return "a bootstrap of clusters of problems where a task has some"
    if scored(lanes):
        return "a bootstrap of problem means"
    return "exact (Clopper-Pearson) with one seed, with more a bootstrap of problem means"


def _printed(one: Solved) -> dict[str, str]:
    if math.isnan(one.mean):
        return {"95 % interval": "not graded", "problems": "0"}
    share, low, high = (page.percent(value) for value in one[:3])
    return {"accuracy, %": share, "95 % interval": f"[{low}, {high}]", "problems": str(one.problems)}
