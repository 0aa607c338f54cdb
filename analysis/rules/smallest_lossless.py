"""The rule "smallest lossless": the smallest budget at which the subject is non-inferior to the full cache.

Budgets are tested from the largest down, and the first that fails ends the sequence: a hypothesis is tested
only after all previous ones were rejected, so that each may use the full level (a fixed sequence: Maurer,
Hothorn & Lehmacher 1995; Westfall & Krishen 2001). A budget passes only if every model and task passes, so
that these p need no correction either (an intersection-union test: Berger 1982). Several arms share the level
by Bonferroni.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from analysis.rules.gates import EVEN, LOST, Family, Gate, Outcome, PlannedContrast, due, ungraded
from analysis.rules.margins import MARGIN, SAVES, equal_or_vacuous, limits, refusal
from analysis.rules.rule import (
    BYTES_OF,
    OF_FULL,
    UNITS,
    Contrast,
    Decision,
    Field,
    Rule,
    Words,
    amount,
    fewest,
    whole,
)
from analysis.rules.sentences import listed, short
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED

__all__ = ["RULE", "Step", "sequence"]

FIELDS = (
    MARGIN,
    Field(
        "others",
        "arms",
        "Further arms whose smallest lossless budget is sought too; they share alpha with the subject.",
        ["h2o"],
        without="none",
    ),
)


class Step(NamedTuple):
    """One budget of an arm that was tested."""

    budget: str
    passed: bool
    worst: Contrast  # the contrast with the largest p over models and tasks
    saves: bool  # whether the arm uses less memory than the full cache in every model and task
    memory: float  # the arm's largest memory as a share of the full cache's


def sequence(contrasts: Sequence[Contrast], level: float) -> list[Step]:
    """Return the tested budgets of one arm at `level`, from the largest down to the first that fails.

    contrasts: of one arm against the full cache, with margin limits. Raises ValueError for none.
    """
    steps: list[Step] = []
    for budget in _downwards({contrast.budget for contrast in whole(contrasts)}):
        here = [contrast for contrast in contrasts if contrast.budget == budget]
        worst = max(here, key=lambda contrast: limits(contrast).p_worse)
        steps.append(
            Step(
                budget,
                limits(worst).p_worse <= level,
                worst,
                all(contrast.matched for contrast in here),
                max(contrast.memory for contrast in here),
            )
        )
        if not steps[-1].passed:
            break
    return steps


def verdict(contrasts: Sequence[Contrast], decision: Decision) -> str:
    """Return the verdict of the subject; results of `others` are reported and decide nothing.

    CONFIRMED     some budget at which it saves memory is reached and passed
    REFUTED       at the largest budget at which it saves memory in every model and task, its simultaneous
                  limits are below -margin in one of them
    INCONCLUSIVE  otherwise

    A budget at which it uses as much memory as the full cache may pass, but is never the answer.
    """
    own = [contrast for contrast in whole(contrasts) if contrast.subject == decision["subject"]]
    if _smallest(sequence(own, _level(decision))):
        return CONFIRMED
    saving = [
        budget
        for budget in _downwards({contrast.budget for contrast in own})
        if all(contrast.matched for contrast in own if contrast.budget == budget)
    ]
    margin = float(decision["margin"])
    if any(limits(contrast).high < -margin for contrast in own if contrast.budget in saving[:1]):
        return REFUTED
    return INCONCLUSIVE


def report(contrasts: Sequence[Contrast], decision: Decision) -> dict[str, Any]:
    found = []
    for arm in _arms(decision):
        steps = sequence([one for one in whole(contrasts) if one.subject == arm], _level(decision))
        smallest = _smallest(steps)
        found.append(
            {
                "arm": arm,
                "level": _decimal(_level(decision)),
                "steps": [_printed(step) for step in steps],
                "smallest": smallest and smallest.budget,
                "memory": smallest and _decimal(smallest.memory),
            }
        )
    return {"smallest_lossless": found}


def _printed(step: Step) -> dict[str, Any]:
    return {
        "budget": step.budget,
        "passed": step.passed,
        "saves": step.saves,
        "memory": _decimal(step.memory),
        "p": _decimal(limits(step.worst).p_worse),
        "model": step.worst.model,
        "task": step.worst.task,
    }


def _decimal(value: float) -> str:
    """Format a value that is never negative as judgements print it."""
    return f"{value:.6f}"


def _smallest(steps: Sequence[Step]) -> Step | None:
    return next((step for step in reversed(steps) if step.passed and step.saves), None)


def _arms(decision: Decision) -> list[str]:
    return [decision["subject"], *(decision.get("others") or ())]


def _level(decision: Decision) -> float:
    return float(decision["alpha"]) / len(_arms(decision))


def _downwards(budgets: set[str]) -> list[str]:
    """Sort budgets of one kind, such as slots or shares of the prompt, from the largest down."""
    return sorted(budgets, key=amount, reverse=True)


def lossy(planned: Sequence[PlannedContrast]) -> list[int]:
    """Return, for every arm and budget, the contrast with the fewest problems: if the subject is worse by the
    margin in these, none of its budgets is lossless, and CONFIRMED is wrong as often as possible.
    """
    cells: dict[tuple[str, str], list[int]] = {}
    for index, one in enumerate(planned):
        cells.setdefault((one.subject, one.budget), []).append(index)
    return [each[fewest([planned[index] for index in each])] for each in cells.values()]


def gates(family: Family) -> dict[str, Gate]:
    """Return the cases, CONFIRMED first: this rule confirms equal answers."""
    margin, level = float(family.decision["margin"]), _level(family.decision)
    equal_or_vacuous(family, level)
    of = list(enumerate(family.contrasts))
    own = [(index, one) for index, one in of if one.subject == family.decision["subject"]]
    largest, *smaller = _downwards({one.budget for _, one in own})
    first = [index for index, one in own if one.budget == largest]
    below = [index for index, one in own if one.budget in smaller]
    lost = {index: Outcome(lost=one.problems) for index, one in of}
    some = Outcome(lost=int(margin * family.contrasts[first[-1]].problems))
    found = {
        EVEN: due(CONFIRMED, {}),
        "one contrast of the largest budget is lost by the margin": due(INCONCLUSIVE, {first[-1]: some}),
        LOST: due(REFUTED, lost),
        "every contrast is won": due(CONFIRMED, {index: family.whole(index) for index, _ in of}),
        "one contrast of the largest budget is lost": due(REFUTED, {first[-1]: lost[first[-1]]}),
        "every smaller budget is lost": due(CONFIRMED, {index: lost[index] for index in below}),
        "every smaller budget is lost and the largest saves no memory": due(
            REFUTED, {index: lost[index] for index in below}, *first
        ),
        "the largest budget is lost and saves no memory": due(
            INCONCLUSIVE, {index: lost[index] for index in first}, *first
        ),
        "the largest budget saves no memory": due(CONFIRMED, {}, *first),
        SAVES.all: due(INCONCLUSIVE, {}, *(index for index, _ in own)),
        **ungraded(family, {}, first[-1]),
    }
    others = [index for index, one in of if one.subject != family.decision["subject"]]
    if others:
        found["every contrast of the other arms is lost"] = due(
            CONFIRMED, {index: lost[index] for index in others}
        )
    return found


def _hypothesis(decision: Decision, checks: Mapping[str, Any]) -> str:
    return (
        f"Hypothesis: at some registered budget {decision['subject']} holds less memory than the full cache, "
        f"and its accuracy on held-out problems is worse by less than {decision['margin']} accuracy points, "
        "on every model and task."
    )


def _criteria(decision: Decision, checks: Mapping[str, Any]) -> list[str]:
    margin, arms = decision["margin"], _arms(decision)
    shared = f", which is alpha over {len(arms)} arms ({', '.join(arms)})" if len(arms) > 1 else ""
    return [
        "Budgets are tested from the largest down. A budget passes where on every model and task the "
        f"one-sided test of a difference of -{margin} has p at most {_level(decision):.6g}{shared}. The "
        "first that fails ends the sequence, so that no p is corrected for the number of budgets, models and "
        "tasks. The smallest lossless budget is the last that passed, of those at which memory is saved on "
        "every model and task.",
        f"CONFIRMED: {decision['subject']} has a smallest lossless budget.",
        f"REFUTED: at its largest budget that saves memory on every model and task, some contrast of "
        f"{decision['subject']} has limits, with coverage 1 - 2 x {checks['corrected_alpha']}, that lie "
        f"below -{margin}.",
    ]


def _found(judged: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the results by arm; empty for an incomplete study."""
    return list(judged.get("smallest_lossless", ()))


def _proves(judged: Mapping[str, Any]) -> list[str]:
    points = f"{short(judged['margin'])} accuracy points"
    facts = [
        f"{one['arm']} was worse than the full cache by less than {points} down to "
        f"{_budget(one['smallest'])}, on every model and task, with at most {_percent(one['memory'])} of its "
        f"memory ({judged['method']}, level {short(one['level'])}, fixed sequence)."
        for one in _found(judged)
        if one["smallest"] is not None
    ]
    if judged["verdict"] == REFUTED:
        subject, margin = judged["contrasts"][0]["subject"], float(judged["margin"])
        saving = [one for one in judged["contrasts"] if one["subject"] == subject and one["saves"]]
        below = [one for one in saving if float(one["high_margin"]) < -margin]
        named = [f"{one['model']} {one['task']} at {one['budget']}" for one in below]
        facts.insert(
            0,
            f"{subject} was worse than the full cache by more than {points} in {len(below)} of its contrasts "
            f"({judged['method']}, Bonferroni): {listed(named)}.",
        )
    return facts


def _limits(judged: Mapping[str, Any]) -> list[str]:
    points = f"{short(judged['margin'])} accuracy points"
    return [
        f"Equality with the full cache: a loss below {points} was allowed at every budget.",
        "Anything at other budgets: those after the first that failed were not tested.",
    ]


def _line(judged: Mapping[str, Any]) -> str:
    margin, subject = 100 * float(judged["margin"]), judged["contrasts"][0]["subject"]
    within = f"{subject} within {margin:.1f} pp of the full cache"
    own = next(iter(_found(judged)), None)
    if own is None:
        return f"{within}, from the largest budget down"
    if own["smallest"] is None:
        return f"{within} is shown at no budget that saves memory"
    return f"{within} down to {_budget(own['smallest'])} ({_percent(own['memory'])} of its memory)"


def _budget(text: str) -> str:
    if text.endswith(OF_FULL):
        return f"a budget of {text.removesuffix(OF_FULL)} of the full cache's mean use"
    if text.startswith(BYTES_OF):
        return f"as many bytes as {text.removeprefix(BYTES_OF)} slots as computed"
    if text.partition(" ")[2] in UNITS:
        return f"a budget of {text}"
    return f"a budget of {text} of the prompt" if "." in text else f"{text} slots"


def _percent(share: str) -> str:
    return f"{100 * float(share):.0f} %"


MEANING = (
    "Each arm's budgets are tested from the largest down, and the first at which some model or task does not "
    "rule out a loss of the registered margin ends the sequence. CONFIRMED: the subject passes at some "
    "budget where it holds less memory than the full cache. REFUTED: at its largest budget that saves memory "
    "it is worse by more than the margin on some model and task. INCONCLUSIVE: otherwise."
)
RULE = Rule(
    FIELDS,
    refusal,
    verdict,
    gates,
    Words(_hypothesis, _criteria, _proves, MEANING, _line, limits=_limits),
    report,
    full="asked",
    ordered=True,
    lossy=lossy,
)
