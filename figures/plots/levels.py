"""Plot of accuracy by level of difficulty: a panel for each model and budget, a line for each arm."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from figures.canvas import page
from figures.canvas.lines import styles
from figures.canvas.page import INK, MARGIN, PALE, WIDEST, inches
from figures.canvas.shares import Share, label, share

__all__ = ["Level", "levelled", "levels"]

ID = re.compile(r"[^/]+/\d+/[^/]+")
PLOT, NARROW, HIGH = 3.6, 2.6, 2.2  # inches, of a panel: its width at most and at least
BESIDE, ABOVE, UNDER = 0.62, 0.32, 0.5  # inches: left of a panel, above it, below it
TICKS = 12  # at most
ENTRY = 0.75  # inches of the legend, in addition to a name
FEW = 5  # evicting arms up to which each has limits; of more only the subject, drawn in front


class Level(NamedTuple):
    """Accuracy of one arm of a cell at one level, all seeds."""

    model: str
    task: str
    budget: str
    arm: str
    level: int
    accuracy: Share
    problems: int


def levelled(lanes: Any) -> list[Level]:
    """Return the accuracies in registered order, levels ascending, of the problems <family>/<level>/<index>.

    Levels without a graded answer are left out. lanes: those of `analysis.studies.study_files.read`.
    """
    rows = lanes[lanes["problem"].str.fullmatch(ID) & lanes["correct"].notna()]
    rows = rows.assign(level=rows["problem"].str.split("/").str[1].astype(int))
    found = []
    for (model, task, budget, arm), cell in rows.groupby(["model", "task", "budget", "arm"], sort=False):
        for level, one in cell.groupby("level"):
            accuracy = share(one, one["correct"], one["correct"].notna())
            found.append(Level(model, task, budget, arm, int(level), accuracy, one["problem"].nunique()))
    return found


def levels(judged: Mapping[str, Any], cells: Sequence[Level]) -> Figure:
    """Draw the panels. Rows: model and task. Columns: budgets, which wrap into the next row if they do not
    fit. An arm that evicts nothing appears in every panel.

    The gids of a line and its limits are "line-<model>/<task>/<budget>/<arm>" and "limits-...", with the
    budget of the panel.
    """
    places = list(dict.fromkeys(one[:2] for one in cells))
    budgets = list(dict.fromkeys(one.budget for one in cells if one.budget != "full")) or ["full"]
    arms = dict.fromkeys(one.arm for one in cells)
    whole = dict.fromkeys(one.arm for one in cells if one.budget == "full")
    style = styles([arm for arm in arms if arm not in whole])
    style |= {arm: {"color": PALE, "linestyle": (0, (4, 2)), "marker": "x"} for arm in whole}
    subject, few = judged["contrasts"][0]["subject"], len(arms) - len(whole) <= FEW
    counts = sorted({one.problems for one in cells})
    problems = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    block = ABOVE + HIGH + UNDER
    titles = [f"{model} · {task} · budget {budget}" for model, task in places for budget in budgets]
    across, plot = _across(len(budgets), max(inches(text, weight="bold") for text in titles))
    room = across * (BESIDE + plot)
    names = [inches(arm) + ENTRY for arm in arms]
    columns = len(names) if sum(names) < room else max(1, int(room / max(names)))
    legend = 0.2 * -(-len(arms) // columns) + 0.1
    width = 2 * MARGIN + room
    lines = -(-len(budgets) // across) * len(places)
    paper = page.sheet(
        width,
        block * lines + legend,
        "Accuracy by level of difficulty (exploratory)",
        [page.standing(judged), "Limits per arm and level; contrasts are paired: see forest."],
        [
            f"Vertical lines{'' if few else f', of {subject} and of the full cache'}: 95 % limits (Wilson), "
            f"problems counted and not answers; not corrected. {problems} problems a level."
            + (" Arms stand side by side at a level." if few else "")
        ],
    )
    for row, place in enumerate(places):
        for column, budget in enumerate(budgets):
            shown = [one for one in cells if one[:2] == place and one.budget in (budget, "full")]
            if not shown:  # no answer of the cell has a grade
                continue
            line = row * -(-len(budgets) // across) + column // across
            axes = paper.axes(
                MARGIN + BESIDE + column % across * (BESIDE + plot),
                legend + block * (lines - 1 - line) + UNDER,
                plot,
                HIGH,
            )
            axes.set_title(f"{' · '.join(place)} · budget {budget}", loc="left", size=8.5, weight="bold")
            _panel(axes, budget, shown, style, None if few else subject)
            axes.set_xlabel("level" if line == lines - 1 else "")
            axes.set_ylabel(label(one.accuracy for one in cells) if column % across == 0 else "")
    handles = [axes.plot([], [], markersize=5, label=arm, **style[arm])[0] for arm in arms]
    paper.figure.legend(
        handles=handles,
        ncols=columns,
        loc="lower left",
        bbox_to_anchor=(MARGIN / width, paper.floor / paper.height),
        borderaxespad=0,
        frameon=False,
    )
    return paper.figure


def _across(budgets: int, title: float) -> tuple[int, float]:
    """Return how many panels are in a row, and the width of each in inches: as many as fit, in rows of one
    length.
    """
    least = max(NARROW, title)
    fit = max(1, min(budgets, int((WIDEST - 2 * MARGIN) / (BESIDE + least))))
    across = -(-budgets // -(-budgets // fit))
    return across, max(least, min(PLOT, (WIDEST - 2 * MARGIN) / across - BESIDE))


def _panel(
    axes: Any,
    budget: str,
    cells: Sequence[Level],
    style: Mapping[str, Mapping[str, Any]],
    subject: str | None,
) -> None:
    """Draw a panel. subject: if arms are many, the only one with limits besides those that evict nothing."""
    at = sorted({one.level for one in cells})
    step = min((b - a for a, b in itertools.pairwise(at)), default=1)
    arms = list(dict.fromkeys(one.arm for one in cells))
    for number, arm in enumerate(arms):
        mine = [one for one in cells if one.arm == arm]
        aside = 0.6 * step * ((number + 0.5) / len(arms) - 0.5) if subject is None else 0.0
        x = [one.level + aside for one in mine]
        name = f"{mine[0].model}/{mine[0].task}/{budget}/{arm}"
        if subject is None or arm == subject or mine[0].budget == "full":
            ends = ([100 * one.accuracy[end] for one in mine] for end in (1, 2))
            axes.vlines(x, *ends, color=style[arm]["color"], linewidth=0.8, gid=f"limits-{name}")
        y = [100 * one.accuracy.share for one in mine]
        front = {"linewidth": 2.2, "zorder": 4} if arm == subject else {"linewidth": 1.3}
        axes.plot(x, y, markersize=4, gid=f"line-{name}", **style[arm], **front)
    axes.set_ylim(-3, 103)
    axes.set_xlim(at[0] - step, at[-1] + step)
    axes.set_xticks(at[:: -(-len(at) // TICKS)])
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
    axes.spines[["right", "top"]].set_visible(False)
