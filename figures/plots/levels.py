"""Plot of accuracy by level of difficulty: a panel for each model and budget, a line for each arm."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from analysis.exploratory.level_contrasts import order_levels, read_levels
from figures.drawing import page
from figures.drawing.line_styles import styles
from figures.drawing.page import INK, MARGIN, PALE, WIDEST, text_width
from figures.drawing.shares import Share, axis_label, compute_share

PLOT, NARROW, HIGH = 3.6, 2.6, 2.2  # inches, of a panel: its width at most and at least
LEFT, TOP, BELOW = 0.62, 0.32, 0.5  # inches: left of a panel, above it, below it
TICKS = 12  # at most
ENTRY = 0.75  # inches of the legend, in addition to a name
FEW = 5  # evicting arms up to which each has limits; of more only the subject, drawn in front


class Level(NamedTuple):
    """Accuracy of one arm of a cell at one level, all seeds."""

    model: str
    task: str
    budget: str
    arm: str
    level: str
    accuracy: Share
    problems: int


def accuracy_by_level(lock: Mapping[str, Any], lanes: Any) -> list[Level]:
    """Return the accuracies in registered order, levels ascending, of the tasks whose problems have a level.

    Levels without a graded answer are left out. lock: its content. lanes: those of
    `analysis.judgement.study_files.read_study`.
    """
    cells = []
    for (model, task, budget, arm), cell in lanes.groupby(["model", "task", "budget", "arm"], sort=False):
        by_problem = read_levels(lock["items"][task])
        graded = cell[cell["problem"].isin(by_problem.keys()) & cell["correct"].notna()]
        lanes_by_level = dict(list(graded.groupby(graded["problem"].map(by_problem), sort=False)))
        for level in order_levels(lanes_by_level):
            of_level = lanes_by_level[level]
            accuracy = compute_share(of_level, of_level["correct"], of_level["correct"].notna())
            cells.append(Level(model, task, budget, arm, level, accuracy, of_level["problem"].nunique()))
    return cells


def levels(judged: Mapping[str, Any], cells: Sequence[Level]) -> Figure:
    """Draw the panels. Rows: model and task. Columns: budgets, which wrap into the next row if they do not
    fit. An arm that evicts nothing appears in every panel.

    The gids of a line and its limits are "line-<model>/<task>/<budget>/<arm>" and "limits-...", with the
    budget of the panel.
    """
    settings = list(dict.fromkeys(cell[:2] for cell in cells))
    budgets = list(dict.fromkeys(cell.budget for cell in cells if cell.budget != "full")) or ["full"]
    arms = dict.fromkeys(cell.arm for cell in cells)
    full_arms = dict.fromkeys(cell.arm for cell in cells if cell.budget == "full")
    style = styles([arm for arm in arms if arm not in full_arms])
    style |= {arm: {"color": PALE, "linestyle": (0, (4, 2)), "marker": "x"} for arm in full_arms}
    subject, has_few_arms = judged["contrasts"][0]["subject"], len(arms) - len(full_arms) <= FEW
    counts = sorted({cell.problems for cell in cells})
    problems = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    block = TOP + HIGH + BELOW
    titles = [f"{model} · {task} · budget {budget}" for model, task in settings for budget in budgets]
    across, plot = _panels_per_row(len(budgets), max(text_width(text, weight="bold") for text in titles))
    room = across * (LEFT + plot)
    names = [text_width(arm) + ENTRY for arm in arms]
    columns = len(names) if sum(names) < room else max(1, int(room / max(names)))
    legend = 0.2 * -(-len(arms) // columns) + 0.1
    width = 2 * MARGIN + room
    lines = -(-len(budgets) // across) * len(settings)
    paper = page.new_sheet(
        width,
        block * lines + legend,
        "Accuracy by level of difficulty (exploratory)",
        [page.study_status(judged), "Limits are per arm and level; for paired contrasts see the forest plot."],
        [
            (
                f"Vertical lines{'' if has_few_arms else f', of {subject} and of the full cache'}: 95 % limits "
                f"(Wilson) over problems, not answers; not corrected. {problems} problems per level."
            )
            + (" Arms are drawn side by side at each level." if has_few_arms else "")
        ],
    )
    for row, setting in enumerate(settings):
        for column, budget in enumerate(budgets):
            panel_cells = [cell for cell in cells if cell[:2] == setting and cell.budget in (budget, "full")]
            if not panel_cells:  # no answer of the cell has a grade
                continue
            line = row * -(-len(budgets) // across) + column // across
            axes = paper.add_axes(
                MARGIN + LEFT + column % across * (LEFT + plot), legend + block * (lines - 1 - line) + BELOW, plot, HIGH
            )
            axes.set_title(f"{' · '.join(setting)} · budget {budget}", loc="left", size=8.5, weight="bold")
            _draw_panel(axes, budget, panel_cells, style, None if has_few_arms else subject)
            axes.set_xlabel("level" if line == lines - 1 else "")
            axes.set_ylabel(axis_label(cell.accuracy for cell in cells) if column % across == 0 else "")
    handles = [axes.plot([], [], markersize=5, label=arm, **style[arm])[0] for arm in arms]
    paper.add_legend(handles, columns)
    return paper.figure


def _panels_per_row(budgets: int, title: float) -> tuple[int, float]:
    """Return how many panels are in a row, and the width of each in inches: as many as fit, in rows of one length."""
    least = max(NARROW, title)
    fit = max(1, min(budgets, int((WIDEST - 2 * MARGIN) / (LEFT + least))))
    across = -(-budgets // -(-budgets // fit))
    return across, max(least, min(PLOT, (WIDEST - 2 * MARGIN) / across - LEFT))


def _draw_panel(
    axes: Any, budget: str, cells: Sequence[Level], style: Mapping[str, Mapping[str, Any]], subject: str | None
) -> None:
    """Draw a panel. subject: if arms are many, the only one with limits besides those that evict nothing."""
    positions = _level_positions(cells)
    level_values = list(positions.values())
    step = min((b - a for a, b in itertools.pairwise(level_values)), default=1)
    arms = list(dict.fromkeys(cell.arm for cell in cells))
    for number, arm in enumerate(arms):
        arm_cells = [cell for cell in cells if cell.arm == arm]
        offset = 0.6 * step * ((number + 0.5) / len(arms) - 0.5) if subject is None else 0.0
        x = [positions[cell.level] + offset for cell in arm_cells]
        name = f"{arm_cells[0].model}/{arm_cells[0].task}/{budget}/{arm}"
        if subject is None or arm == subject or arm_cells[0].budget == "full":
            ends = ([100 * cell.accuracy[end] for cell in arm_cells] for end in (1, 2))
            axes.vlines(x, *ends, color=style[arm]["color"], linewidth=0.8, gid=f"limits-{name}")
        y = [100 * cell.accuracy.share for cell in arm_cells]
        front = {"linewidth": 2.2, "zorder": 4} if arm == subject else {"linewidth": 1.3}
        axes.plot(x, y, markersize=4, gid=f"line-{name}", **style[arm], **front)
    axes.set_ylim(-3, 103)
    axes.set_xlim(level_values[0] - step, level_values[-1] + step)
    every = -(-len(positions) // TICKS)
    room = axes.figure.get_figwidth() * axes.get_position().width / (len(positions) + 1) * every
    axes.set_xticks(level_values[::every], [_shorten(level, room) for level in [*positions][::every]])
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
    axes.spines[["right", "top"]].set_visible(False)


def _level_positions(cells: Sequence[Level]) -> dict[str, float]:
    """Return where each level is on the axis: at its value if all are numbers, else at 0, 1, ... in order."""
    ordered = order_levels(cell.level for cell in cells)
    try:
        return {level: float(level) for level in ordered}
    except ValueError:
        return {level: float(number) for number, level in enumerate(ordered)}


def _shorten(text: str, room: float) -> str:
    """Return the text, cut to `room` inches."""
    length = len(text)
    while length > 1 and text_width(text[:length]) > room:
        length -= 1
    return text if length == len(text) else f"{text[: length - 1]}…"
