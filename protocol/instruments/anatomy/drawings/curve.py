"""Plot of the accuracy of every arm at the cut, by budget, over labelled traces; and of an oracle with the
labels.
"""

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from figures.drawing import named_lines
from figures.drawing.curves import Curves, Point
from figures.drawing.memory_axis import draw_memory_axis
from figures.drawing.page import PALE
from figures.drawing.shares import compute_share
from protocol.instruments.anatomy.analysis.traces import Anatomy
from protocol.instruments.anatomy.drawings import oracle_style
from protocol.instruments.anatomy.drawings.trace_report import AnatomyReport, status_lines
from protocol.instruments.anatomy.fields import ORACLE


def anatomy_curves(anatomy: Anatomy) -> list[Curves]:
    """Return curves for each model and task with a labelled trace: arms in registered order, the oracle last.

    A failed continuation is a wrong answer. Slots are those granted, mean over traces.
    """
    curves = []
    for model, task in anatomy.pairs:
        rows = [
            {
                "problem": item.cluster,
                "arm": outcome.arm,
                "budget": outcome.budget,
                "slots": outcome.slots,
                "correct": outcome.correct is True,
            }
            for item in anatomy.traces_of((model, task))
            for outcome in item.outcomes
        ]
        if not rows:
            continue
        table = pd.DataFrame(rows)
        arms: dict[str, list[Point]] = {}
        for arm in sorted(table["arm"].unique(), key=[*anatomy.arms, ORACLE].index):
            arm_rows = table[table["arm"] == arm]
            points = [
                Point(
                    str(budget),
                    float(group["slots"].mean()),
                    compute_share(group, group["correct"], group["correct"].notna()),
                )
                for budget, group in arm_rows.groupby("budget", sort=False)
            ]
            points = [item for item in points if not math.isnan(item.value)]
            points.sort(key=lambda item: item.value)
            if points:
                arms[oracle_style.NAME if arm == ORACLE else str(arm)] = points
        curves.append(Curves(model, task, arms, None))
    return curves


def anatomy_curve(entry: AnatomyReport, panels: Sequence[Curves]) -> Figure:
    """Draw models by tasks, with the artists of `named_lines.panel`, and "limits-" of the oracle."""
    arms = list(dict.fromkeys(arm for panel in panels for arm in panel.arms if arm != oracle_style.NAME))
    subject = entry.lock["protocol"]["content"]["decision"]["subject"]
    style = named_lines.styles(subject, named_lines.scoring_families(entry.lock, arms))
    style[oracle_style.NAME] = {
        "color": oracle_style.COLOUR,
        "linewidth": 2,
        "linestyle": (0, (4, 1.5)),
        "marker": "*",
        "markersize": 8,
        "zorder": 6,
    }
    drawn = named_lines.build_panels(
        panels,
        "Accuracy at the cut by budget, over labelled traces (exploratory)",
        status_lines(entry),
        [
            oracle_style.WARNING,
            "Every arm evicts once, at the cut, and the model then continues: an arm that evicts at each "
            "step of an answer has a different accuracy. Only traces that the full cache answers correctly "
            "are included, so the full cache is at 100 % (line) by selection; accuracies of the study itself "
            "are not comparable.",
            "A continuation that failed counts as wrong. Band around the oracle: 95 % interval (Wilson) over "
            "traces, not corrected. Nothing may be concluded from where two lines cross.",
        ],
        "slots granted per KV head and layer, mean",
    )
    for axes, panel in drawn.panels:
        draw_memory_axis(axes, panel)
        axes.axhline(100, color=PALE, linewidth=1, zorder=0.5)
        named_lines.draw_panel(axes, panel, style, drawn.size)
        if points := panel.arms.get(oracle_style.NAME):
            low, high = ([100 * entry.accuracy[end] for entry in points] for end in (1, 2))
            band = {"color": oracle_style.COLOUR, "alpha": 0.13, "linewidth": 0, "zorder": 1}
            gid = f"limits-{panel.model}/{panel.task}/{oracle_style.NAME}"
            axes.fill_between([entry.value for entry in points], low, high, gid=gid, **band)
    return drawn.sheet.figure
