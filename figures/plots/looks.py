"""Plot of registered looks: the statistic of each contrast at each look, between the boundaries at which it decides."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from analysis.rules import verdict_line
from figures.drawing import page
from figures.drawing.line_styles import styles
from figures.drawing.page import INK, MARGIN

WIDTH, HEIGHT, LEFT, BELOW = 4.4, 2.6, 0.6, 0.55  # inches
LEGEND = 0.2  # inches, of a line
HIGHEST = 8.0  # of z that is drawn


def looks(judged: Mapping[str, Any]) -> Figure:
    """Draw z over the problems of a task, a line for each contrast.

    The gids are "path-<model>/<task>/<budget>/<subject>/<against>" and "boundary-upper", "-lower"; a margin has no
    lower one. A z or boundary beyond 8 is drawn at 8.
    """
    field = judged["looks"]
    path = [look for look in field["path"] if look["contrasts"]]
    problems = [look["problems"] for look in path]
    names = [
        "/".join(row[name] for name in ("model", "task", "budget", "subject", "against")) for row in judged["contrasts"]
    ]
    style = styles(names)
    sheet = page.new_sheet(
        2 * MARGIN + LEFT + WIDTH,
        HEIGHT + BELOW + LEGEND * (len(names) + 1),
        "Looks and their decision boundaries",
        [page.study_status(judged), f"The study {verdict_line.describe_stop(field)}."],
        [
            (
                "z: normal quantile of the p value at each look, for a difference beyond what memory may "
                "explain. Dashed: the boundary of each look, which follows from alpha, its spending and the "
                "number of contrasts. Dotted: all problems."
            )
        ],
    )
    axes = sheet.add_axes(MARGIN + LEFT, LEGEND * (len(names) + 1) + BELOW, WIDTH, HEIGHT)
    for number, name in enumerate(names):
        z = [_clip(look["contrasts"][number]["z"]) for look in path if number < len(look["contrasts"])]
        axes.plot(problems[: len(z)], z, markersize=4, label=name, gid=f"path-{name}", **style[name])
    for side, sign in _list_sides(judged):
        bounds = [sign * _clip(look["contrasts"][0]["boundary"]) for look in path]
        axes.plot(problems, bounds, linestyle="--", marker="_", color=INK, linewidth=1, gid=f"boundary-{side}")
    axes.axhline(0, color=INK, linewidth=0.6, alpha=0.4)
    axes.axvline(field["problems"][-1], color=INK, linewidth=0.8, linestyle=":")
    axes.set_xticks(field["problems"])
    axes.set_xlim(0, 1.05 * field["problems"][-1])
    axes.set_xlabel("problems per task")
    axes.set_ylabel("z")
    axes.spines[["right", "top"]].set_visible(False)
    sheet.add_legend(axes.get_lines()[: len(names)])
    return sheet.figure


def _clip(number: str) -> float:
    return max(-HIGHEST, min(HIGHEST, float(number)))


def _list_sides(judged: Mapping[str, Any]) -> Sequence[tuple[str, int]]:
    return [("upper", 1)] if "margin" in judged else [("upper", 1), ("lower", -1)]
