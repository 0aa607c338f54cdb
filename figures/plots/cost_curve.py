"""Plot of accuracy against the slots that decoding read: a line for each arm over its budgets.

EpiKV draws accuracy against seconds a problem (arXiv:2606.26472, figure 4). Our seconds are those of a lane in its
batch, where the lanes of all arms take the same steps, so that they do not distinguish arms. The slots that an answer
read are counted instead: they depend on its length and on its cache. Why: docs/decisions/29-counted-cost.md.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from analysis.judgement.study_table import slots_read
from figures.drawing import cost_panels as costs_of
from figures.drawing import named_lines, page
from figures.drawing.curves import Curves, build_curves


def decoding_costs(judged: Mapping[str, Any], lanes: Any) -> list[Curves]:
    """Return the curves in registered order; the budgets of an arm by measured memory, the smallest first.

    Cost of an answer: its tokens times the mean number of slots that a token read, per KV head and layer, which are
    those held while it was decoded unless records say fewer; of an arm the mean over its answers. lanes: those of
    `study_files.read`.
    """
    curves = build_curves(judged, lanes, lambda _, group: float((group["tokens"] * slots_read(group)).mean()))
    slots_of = {
        tuple(entry[name] for name in ("model", "task", "budget", "arm")): entry["mean_slots"]
        for entry in judged["arms"]
    }
    for panel in curves:
        for arm, points in panel.arms.items():
            points.sort(key=lambda entry: float(slots_of[panel.model, panel.task, entry.budget, arm]))
    return curves


def cost_curve(judged: Mapping[str, Any], lock: Mapping[str, Any], panels: Sequence[Curves]) -> Figure:
    """Draw the curves. Rows of panels: models. Columns: tasks.

    The gids of artists in a panel are "line-" and "points-<model>/<task>/<arm>", "limits-..." of the subject,
    "full-<model>/<task>", and "whole-<model>/<task>" for the position of the full cache.
    """
    arms = list(dict.fromkeys(arm for panel in panels for arm in panel.arms))
    subject = judged["contrasts"][0]["subject"]
    slots = "that each token read" if "mean_reads" in judged["arms"][0] else "in use when it was decoded"
    style = named_lines.styles(subject, named_lines.scoring_families(lock, arms))
    drawn = named_lines.build_panels(
        panels,
        "Accuracy against slots read while decoding (exploratory)",
        [page.study_status(judged), "Further left is cheaper. A crossing of two lines decides nothing."],
        [
            (
                f"Slots read: the tokens of an answer times the slots {slots}, per KV head and layer; mean "
                "over answers. Slots are counted, not timed, because seconds would be those of a batch in "
                "which the arms decode together. The computation by which a policy selects slots is not "
                "included, nor is the prompt. An arm that stops its answers early also reads little."
            ),
            (
                f"Larger markers: larger budgets. Cross: the full cache. Lines at {subject}, and band: 95 % "
                "intervals (Wilson) over problems, not answers; not corrected."
            ),
        ],
        "slots read per answer, thousands",
    )
    for axes, panel in drawn.panels:
        costs_of.set_cost_axis(axes, panel, lambda x: f"{x / 1000:g}")
        named_lines.draw_panel(axes, panel, style, drawn.size)
        costs_of.draw_points(axes, panel, style, subject)
    return drawn.sheet.figure
