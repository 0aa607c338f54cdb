"""Plot of the accuracy of every arm in every cell, with an interval for each arm and the full cache as a line."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from analysis.judgement.study_table import has_scores
from analysis.stats import bootstrap, resampled_units
from analysis.stats.interval import clopper_pearson
from figures.drawing import formatting, page
from figures.drawing.page import INK, PALE
from figures.drawing.table_rows import cell_of, draw_point, draw_table, group_entries, numbered_entries, row_groups

LABEL = 0.9  # inches, of the text at the end of a heading's row
COLUMNS = {"accuracy, %": 0.85, "95 % interval": 1.05, "problems": 0.75}


class ArmAccuracy(NamedTuple):
    """Mean accuracy (0 to 1) of an arm over its graded problems, and its 95 % interval; NaN if unknown."""

    mean: float
    low: float
    high: float
    problems: int


def accuracy(judged: Mapping[str, Any], lanes: Any) -> Figure:
    """Draw one line for each arm, grouped by model, task and budget. lanes: those of `study_files.read`.

    Filled: the subject. Dashed: the arm that evicts nothing, of the same model and task. The gid of each artist is its
    meaning and the index of its arm among the drawn ones ("point-3", "interval-3"; "full-0" by group).
    """
    accuracies = {key: arm_accuracy(group) for key, group in lanes.groupby(["model", "task", "budget", "arm"])}
    evicting = [entry for entry in judged["arms"] if entry["budget"] != "full"]
    places = list(dict.fromkeys(cell_of(entry) for entry in [*judged["contrasts"], *evicting]))  # neighbours last
    evicting.sort(key=lambda entry: places.index(cell_of(entry)))
    rows = group_entries(evicting, lambda entry: str(entry["arm"]))
    subject = judged["contrasts"][0]["subject"]
    drawn = draw_table(
        rows,
        COLUMNS,
        "Accuracy of every arm (exploratory)",
        [
            page.study_status(judged),
            ("Intervals are per arm; for paired contrasts see the forest plot. Overlap of intervals decides nothing."),
        ],
        [
            f"Line: 95 % interval over problems, {_interval_text(lanes)}. Not corrected for the number of arms.",
            f"■ {subject}, the subject of the registered contrasts. ○ other arms. Dashed: full cache, on the "
            "same problems. Problems without a grade are left out.",
        ],
        plot=page.WIDEST,
        below=0.5,
        spare=LABEL,
    )
    axes = drawn.axes
    axes.set_xlim(-3, 103)
    is_agreement = formatting.compares_agreement(judged["contrasts"])
    score = "agreement with the full cache, %" if is_agreement else "mean score, %"
    axes.set_xlabel(score if has_scores(lanes) else "correct answers, %")
    for y, number, arm in numbered_entries(rows):
        entry, is_subject = accuracies[*cell_of(arm), arm["arm"]], arm["arm"] == subject
        drawn.print_cells(y, _format_cells(entry), weight="bold" if is_subject else "normal")
        if math.isnan(entry.mean):
            continue
        ends = 100 * entry.low, 100 * entry.high
        axes.plot(ends, (y, y), color=INK, linewidth=1.6, gid=f"interval-{number}")
        marker = "s" if is_subject else "o"
        draw_point(axes, 100 * entry.mean, y, marker, filled=is_subject, markersize=6, gid=f"point-{number}")
    dashed = {"color": PALE, "linewidth": 1.1, "linestyle": (0, (4, 2)), "zorder": 1}
    for number, (first, last, (model, task, _)) in enumerate(row_groups(rows)):
        full = [entry for key, entry in accuracies.items() if key[:3] == (model, task, "full")]
        if not full or math.isnan(full[0].mean):
            continue
        share = 100 * full[0].mean
        axes.plot((share, share), (first + 0.5, last - 0.5), gid=f"full-{number}", **dashed)
        drawn.print_cells(first, _format_cells(full[0]), color=PALE)
        axes.text(100, first, "full cache", va="center", ha="right", color=PALE)
    return drawn.sheet.figure


def arm_accuracy(lanes: Any) -> ArmAccuracy:
    """Return the accuracy of one arm of a cell. lanes: of this arm. The seeds of a problem are averaged first.

    With one seed the interval is exact. With more seeds, for scores and for problems in clusters it is a percentile
    bootstrap over problems or clusters (10,000 draws, seed 0), since a mean of means is no count.
    """
    problem_means = lanes.groupby("problem")["correct"].mean().dropna()
    means, clusters = problem_means.to_numpy(), None
    if "cluster" in lanes:
        clusters = lanes.groupby("problem")["cluster"].first()[problem_means.index].tolist()
    problems = len(means)
    if problems == 0:
        return ArmAccuracy(math.nan, math.nan, math.nan, 0)
    if lanes["seed"].nunique() == 1 and clusters is None and not has_scores(lanes):
        return ArmAccuracy(float(means.mean()), *clopper_pearson(int(means.sum()), problems), problems)
    if resampled_units.count_units(clusters, problems) == 1:
        return ArmAccuracy(float(means.mean()), 0.0, 1.0, problems)
    units = resampled_units.resampling_units(means[:, None], clusters)
    interval = units.rescale(bootstrap.paired(units.values, rng=np.random.default_rng(0)))
    return ArmAccuracy(interval.mean, max(0.0, interval.low), min(1.0, interval.high), problems)


def _interval_text(lanes: Any) -> str:
    """Return the description of the intervals."""
    if "cluster" in lanes:
        return "a bootstrap of clusters of problems if a task has clusters"
    if has_scores(lanes):
        return "a bootstrap of problem means"
    return "exact (Clopper-Pearson) with one seed, a bootstrap of problem means with more"


def _format_cells(entry: ArmAccuracy) -> dict[str, str]:
    if math.isnan(entry.mean):
        return {"95 % interval": "not graded", "problems": "0"}
    share, low, high = (page.format_percent(value) for value in entry[:3])
    return {"accuracy, %": share, "95 % interval": f"[{low}, {high}]", "problems": str(entry.problems)}
