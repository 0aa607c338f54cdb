"""Plot of accuracy against measured seconds a lane: EpiKV's accuracy-time frontier, from two runs.

Its figure 4 (arXiv:2606.26472) has seconds a problem of the graded answers. Here the seconds are those of a
separate run on made-up prompts and answers of one length, so that no arm is fast because its answers are
short.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from analysis.explored.cost import DECODE, PREFILL, Measured
from analysis.rules.rule import FULL
from figures.canvas import costs, measured, named_lines, page
from figures.canvas.curves import Curves, curved

__all__ = ["cost_frontier", "timed"]


def timed(judged: Mapping[str, Any], lanes: Any, found: Sequence[Measured]) -> list[Curves]:
    """Return the curves in registered order, and likewise the budgets of an arm.

    An arm that was not measured is left out, and the winner of a sweep has the seconds of its candidate.
    lanes: those of `study_files.read`.
    """
    seconds = _seconds(measured.chosen(found))
    winner = (judged.get("selected") or {}).get("winner")
    subject = judged["contrasts"][0]["subject"]

    def at(one: Mapping[str, Any], _: Any) -> float:
        arm = winner if winner and one["arm"] == subject else one["arm"]
        return seconds.get((one["model"], one["budget"], arm), math.nan)

    places = []
    for place in curved(judged, lanes, at):
        arms = {arm: [one for one in own if not math.isnan(one.at)] for arm, own in place.arms.items()}
        arms = {arm: own for arm, own in arms.items() if own}
        full = place.full if place.full is not None and not math.isnan(place.full.at) else None
        if arms:
            places.append(place._replace(arms=arms, full=full))
    return places


def cost_frontier(
    judged: Mapping[str, Any], lock: Mapping[str, Any], places: Sequence[Curves], found: Sequence[Measured]
) -> Figure:
    """Draw the curves. Rows of panels: models. Columns: tasks. Artists as in `named_lines.panel` and
    `costs.points`.
    """
    one = measured.chosen(found)
    arms = list(dict.fromkeys(arm for place in places for arm in place.arms))
    subject = judged["contrasts"][0]["subject"]
    style = named_lines.styles(subject, named_lines.scored(lock, arms))
    tokens, lanes = max(one.cost["prompt_tokens"]), min(one.cost["lanes"])
    drawn = named_lines.laid(
        places,
        "Accuracy against measured seconds a lane (exploratory)",
        [
            page.standing(judged),
            "TWO RUNS: accuracy is that of the judged answers, seconds are those of kv-prereg cost.",
            *measured.heading(one),
        ],
        [
            *measured.notes(one, found),
            f"Seconds: prefill and decoding of {tokens} made-up prompt tokens and {one.cost['new_tokens']} "
            f"new tokens, {lanes} at once, over the lanes; geometric means, their intervals not drawn. "
            "Judged answers are longer or shorter, by arm: one that writes on takes longer than this shows. "
            "Where two lines cross decides nothing. After EpiKV's figure 4.",
            f"Larger markers: later registered. Cross: full cache. Lines at {subject}, and band: 95 % "
            "intervals of accuracy (Wilson), not corrected.",
        ],
        f"seconds a lane ({tokens} + {one.cost['new_tokens']} tokens)",
    )
    for axes, place in drawn.panels:
        costs.axis(axes, place, lambda x: f"{x:.3g}")
        named_lines.panel(axes, place, style, drawn.size)
        costs.points(axes, place, style, subject)
    return drawn.sheet.figure


def _seconds(one: Measured) -> dict[tuple[str, str, str], float]:
    """Return a lane's share of the seconds at the longest prompt and the fewest lanes, by model, budget and
    arm.
    """
    found = {}
    for row in one.rows:
        place = row.place
        at = place.prompt_tokens == max(one.cost["prompt_tokens"]) and place.lanes == min(one.cost["lanes"])
        if at and row.seconds is not None:
            both = row.seconds[PREFILL].mean + row.seconds[DECODE].mean
            found[place.model, place.budget if place.budget != FULL else FULL, place.arm] = both / place.lanes
    return found
