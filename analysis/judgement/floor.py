"""The floor of a contrast: whether its arms can do the task, so that the contrast can show anything.

Two arms that guess are alike whatever the policies do, and a difference below what a guess gets right is none of
accuracy. A win shows something where the subject does better than a guess, whatever its comparator does; a loss, and
being no worse, only where the comparator does. A margin that is large beside what the full cache has over a guess would
call a guess lossless.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from analysis.judgement.contrasts import Pairing
from analysis.judgement.judging_rules import read_judging
from analysis.rules.judged_numbers import format_p, format_share
from analysis.rules.rule import lead_share
from analysis.stats.above_chance import p_above
from protocol.formats.json_text import format_decimal


class Floor(NamedTuple):
    """What a study requires of an informative contrast.

    chances: by task, the share of answers that a guess gets right. full_accuracy: of the full cache by (model,
    task), with ungraded lanes wrong; empty without a gate, and of agreement. margin: registered, 0 without one.
    share: the largest that the margin may be of the full cache's lead over chance. level: of the one-sided test.
    has_wins: a contrast without a margin asks the arm with more right answers, either arm at half of the level; else
    the comparator.
    """

    chances: Mapping[str, Fraction]
    full_accuracy: Mapping[tuple[str, str], Fraction]
    margin: Fraction
    share: Fraction
    level: float
    has_wins: bool


def read_floor(lock: Mapping[str, Any], gate_result: Mapping[str, Any] | None) -> Floor:
    """Return the floor of a study. gate_result: as a judgement has it."""
    content = lock["protocol"]["content"]
    decision, chances = content["decision"], lock.get("chance", {})
    # A margin of agreement is no share of what the full cache gets right.
    places = () if gate_result is None or "outcome" in content else gate_result["places"]
    return Floor(
        {task["name"]: Fraction(chances.get(task["name"], 0)) for task in content["tasks"]},
        {(entry["model"], entry["task"]): Fraction(entry["accuracy"]) for entry in places},
        Fraction(decision.get("margin", 0)),
        lead_share(decision),
        float(decision["alpha"]),
        read_judging(lock) > 2,
    )


def floor_row(pairing: Pairing, floor: Floor) -> dict[str, Any]:
    """Return the floor of one contrast: `chance`, the `accuracy` of the arm that has to be above it, `p` of that it is
    at most chance, or chance and the margin, and a clause why the contrast is `uninformative`, empty if it is not. The
    arm is the comparator; of the two that may win, the one with more right answers, and named (`arm`).
    """
    chance, margin = floor.chances[pairing.task], floor.margin
    is_either = floor.has_wins and not margin
    is_subject = is_either and pairing.net > 0
    arm, correct = (
        (pairing.subject, pairing.subject_correct) if is_subject else (pairing.against, pairing.comparator_correct)
    )
    p = p_above(correct, float(chance + margin), pairing.clusters)
    accuracy = float(correct.mean()) if len(correct) else 0.0
    full = floor.full_accuracy.get((pairing.model, pairing.task))
    why = ""
    if p > (floor.level / 2 if is_either else floor.level):
        bar = f"{format_share(chance + margin)}, what a guess gets right" + (" and the margin" if margin else "")
        result = f"{arm} gets {format_share(accuracy)} right"
        result += ", the other arm no more, and neither is" if is_either else ", not"
        why = f"{result} shown to be above {bar} (p = {format_p(str(p))})"
    elif full is not None and margin > floor.share * (full - chance):
        why = (
            f"the margin of {format_share(margin)} is above {format_share(floor.share)} of the "
            f"{format_share(full - chance)} by which the full cache exceeds a guess"
        )
    return ({"arm": arm} if is_either else {}) | {
        "chance": format_decimal(chance),
        "accuracy": format_decimal(accuracy),
        "p": format_decimal(p),
        "uninformative": why,
    }
