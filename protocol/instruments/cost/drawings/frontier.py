"""Plot of accuracy against measured seconds a lane: EpiKV's accuracy-time frontier, from two runs.

Its figure 4 (arXiv:2606.26472) has seconds a problem of the graded answers. Here the seconds are those of a
separate run on made-up prompts and answers of one length, so that no arm is fast because its answers are
short.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from figures.drawing import cost_panels, named_lines, page
from figures.drawing.curves import Curves, build_curves
from protocol.formats.vocabulary import FULL
from protocol.instruments.cost.drawings import labels
from protocol.instruments.cost.summary import DECODE, PREFILL, MachineCosts


def timed_curves(judged: Mapping[str, Any], lanes: Any, machines: Sequence[MachineCosts]) -> list[Curves]:
    """Return the curves in registered order, and likewise the budgets of an arm.

    An arm that was not measured is left out, and the winner of a sweep has the seconds of its candidate.
    lanes: those of `study_files.read`.
    """
    seconds = _lane_seconds(labels.choose_measurement(machines))
    winner = (judged.get("selected") or {}).get("winner")
    subject = judged["contrasts"][0]["subject"]

    def seconds_of(arm_row: Mapping[str, Any], _: Any) -> float:
        arm = winner if winner and arm_row["arm"] == subject else arm_row["arm"]
        return seconds.get((arm_row["model"], arm_row["budget"], arm), math.nan)

    panels = []
    for panel in build_curves(judged, lanes, seconds_of):
        arms = {arm: [point for point in points if not math.isnan(point.value)] for arm, points in panel.arms.items()}
        arms = {arm: points for arm, points in arms.items() if points}
        full = panel.full if panel.full is not None and not math.isnan(panel.full.value) else None
        if arms:
            panels.append(panel._replace(arms=arms, full=full))
    return panels


def cost_frontier(
    judged: Mapping[str, Any], lock: Mapping[str, Any], panels: Sequence[Curves], machines: Sequence[MachineCosts]
) -> Figure:
    """Draw the curves. Rows of panels: models. Columns: tasks. Artists as in `named_lines.panel` and `costs.points`."""
    machine = labels.choose_measurement(machines)
    arms = list(dict.fromkeys(arm for panel in panels for arm in panel.arms))
    subject = judged["contrasts"][0]["subject"]
    style = named_lines.styles(subject, named_lines.scoring_families(lock, arms))
    tokens, lanes = max(machine.cost["prompt_tokens"]), min(machine.cost["lanes"])
    drawn = named_lines.build_panels(
        panels,
        "Accuracy against measured seconds a lane (exploratory)",
        [
            page.study_status(judged),
            "TWO RUNS: accuracy comes from the judged answers, seconds from kv-prereg cost.",
            *labels.heading_lines(machine),
        ],
        [
            *labels.note_lines(machine, machines),
            (
                f"Seconds: prefill and decoding of {tokens} synthetic prompt tokens and "
                f"{machine.cost['new_tokens']} new tokens, {lanes} at once, divided by the lanes; geometric "
                "means, without their intervals. The judged answers differ in length between arms: an arm "
                "with longer answers takes longer than shown. Nothing may be concluded from where lines "
                "cross. After EpiKV's figure 4."
            ),
            f"Larger markers: registered later. Cross: full cache. Error bars of {subject} and band: 95 % "
            "intervals of accuracy (Wilson), not corrected.",
        ],
        f"seconds a lane ({tokens} + {machine.cost['new_tokens']} tokens)",
    )
    for axes, panel in drawn.panels:
        cost_panels.set_cost_axis(axes, panel, lambda x: f"{x:.3g}")
        named_lines.draw_panel(axes, panel, style, drawn.size)
        cost_panels.draw_points(axes, panel, style, subject)
    return drawn.sheet.figure


def _lane_seconds(machine: MachineCosts) -> dict[tuple[str, str, str], float]:
    """Return a lane's share of the seconds at the longest prompt and the fewest lanes, by model, budget and arm."""
    seconds = {}
    for row in machine.rows:
        point = row.place
        is_reference = point.prompt_tokens == max(machine.cost["prompt_tokens"]) and point.lanes == min(
            machine.cost["lanes"]
        )
        if is_reference and row.seconds is not None:
            total = row.seconds[PREFILL].mean + row.seconds[DECODE].mean
            seconds[point.model, point.budget if point.budget != FULL else FULL, point.arm] = total / point.lanes
    return seconds
