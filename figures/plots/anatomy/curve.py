"""Plot of the accuracy of every arm at the cut, by budget, over labelled traces; and of an oracle with the
labels.
"""

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from analysis.anatomy.reading import ORACLE, Anatomy
from figures.canvas import named_lines, oracle
from figures.canvas.anatomies import Told, standing
from figures.canvas.curves import Curves, Point
from figures.canvas.memory_axis import memory_axis
from figures.canvas.page import PALE
from figures.canvas.shares import share

__all__ = ["anatomy_curve", "curves"]


def curves(anatomy: Anatomy) -> list[Curves]:
    """Return curves for each model and task with a labelled trace: arms in registered order, the oracle last.

    A failed continuation is a wrong answer. Slots are those granted, mean over traces.
    """
    found = []
    for model, task in anatomy.pairs:
        rows = [
            {
                "problem": one.cluster,
                "arm": kept.arm,
                "budget": kept.budget,
                "slots": kept.slots,
                "correct": kept.correct is True,
            }
            for one in anatomy.of((model, task))
            for kept in one.kept
        ]
        if not rows:
            continue
        table = pd.DataFrame(rows)
        arms: dict[str, list[Point]] = {}
        for arm in sorted(table["arm"].unique(), key=[*anatomy.arms, ORACLE].index):
            own = table[table["arm"] == arm]
            points = [
                Point(
                    str(budget),
                    float(each["slots"].mean()),
                    share(each, each["correct"], each["correct"].notna()),
                )
                for budget, each in own.groupby("budget", sort=False)
            ]
            points = [one for one in points if not math.isnan(one.at)]
            points.sort(key=lambda one: one.at)
            if points:
                arms[oracle.NAME if arm == ORACLE else str(arm)] = points
        found.append(Curves(model, task, arms, None))
    return found


def anatomy_curve(one: Told, places: Sequence[Curves]) -> Figure:
    """Draw the curves. Rows of panels: models. Columns: tasks. Artists as in `named_lines.panel`; "limits-"
    of the oracle.
    """
    arms = list(dict.fromkeys(arm for place in places for arm in place.arms if arm != oracle.NAME))
    subject = one.lock["protocol"]["content"]["decision"]["subject"]
    style = named_lines.styles(subject, named_lines.scored(one.lock, arms))
    style[oracle.NAME] = {
        "color": oracle.COLOUR,
        "linewidth": 2,
        "linestyle": (0, (4, 1.5)),
        "marker": "*",
        "markersize": 8,
        "zorder": 6,
    }
    drawn = named_lines.laid(
        places,
        "Accuracy at the cut by budget, over labelled traces (exploratory)",
        standing(one),
        [
            oracle.WARNING,
            "Every arm evicts once, at the cut, and the model then goes on: an arm that evicts at each step "
            "of an answer has another accuracy. Only traces that the full cache answers are here, so that it "
            "is at 100 % (line) by choice; accuracies of the study itself are not comparable.",
            "A continuation that failed counts as wrong. Band, of the oracle: 95 % interval (Wilson), traces "
            "counted; not corrected. Where two lines cross decides nothing.",
        ],
        "slots granted per KV head and layer, mean",
    )
    for axes, place in drawn.panels:
        memory_axis(axes, place)
        axes.axhline(100, color=PALE, linewidth=1, zorder=0.5)
        named_lines.panel(axes, place, style, drawn.size)
        if points := place.arms.get(oracle.NAME):
            low, high = ([100 * one.accuracy[end] for one in points] for end in (1, 2))
            band = {"color": oracle.COLOUR, "alpha": 0.13, "linewidth": 0, "zorder": 1}
            gid = f"limits-{place.model}/{place.task}/{oracle.NAME}"
            axes.fill_between([one.at for one in points], low, high, gid=gid, **band)
    return drawn.sheet.figure
