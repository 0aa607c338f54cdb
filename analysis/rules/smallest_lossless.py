"""The rule "smallest lossless": the smallest budget at which the subject is non-inferior to the full cache.

Budgets are tested from the largest down, and the first that fails ends the sequence: a hypothesis is tested
only after all previous ones were rejected, so that each may use the full level (a fixed sequence: Maurer,
Hothorn & Lehmacher 1995; Westfall & Krishen 2001). A budget passes only if every model and task passes, so
that these p need no correction either (an intersection-union test: Berger 1982). Several arms share the level
by Bonferroni.
"""

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any, NamedTuple

from analysis.rules.judged_numbers import format_whole_percent
from analysis.rules.margin_rules import (
    LEAD_SHARE,
    MARGIN,
    UNSAVED_CASES,
    beyond_margin,
    check_equal_answers,
    margin_limits,
    refusal,
)
from analysis.rules.rule import (
    UNITS,
    Contrast,
    Decision,
    Field,
    Rule,
    RuleText,
    budget_amount,
    fewest_problems,
    require_contrasts,
)
from analysis.rules.self_test_cases import (
    EVEN,
    LOST,
    Case,
    Outcome,
    PlannedContrast,
    PlannedFamily,
    make_case,
    ungraded_cases,
)
from analysis.rules.sentences import (
    Row,
    difference_of,
    format_estimate,
    format_limits,
    format_location,
    format_p_value,
    list_first,
    strip_zeros,
)
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from protocol.formats.vocabulary import BYTES_OF, OF_FULL

FIELDS = (
    MARGIN,
    LEAD_SHARE,
    Field(
        "others",
        "arms",
        "Further arms whose smallest lossless budget is also determined; they share alpha with the subject.",
        ["h2o"],
        without="none",
    ),
)


class BudgetTest(NamedTuple):
    """One budget of an arm that was tested."""

    budget: str
    passed: bool
    worst: Contrast  # the contrast with the largest p over models and tasks
    saves_memory: bool  # whether the arm uses less memory than the full cache in every model and task
    memory: float  # the arm's largest memory as a share of the full cache's


def fixed_sequence(contrasts: Sequence[Contrast], level: float) -> list[BudgetTest]:
    """Return the tested budgets of one arm at `level`, from the largest down to the first that fails.

    contrasts: of one arm against the full cache, with margin limits. Raises ValueError for none.
    """
    steps: list[BudgetTest] = []
    for budget in _descending({contrast.budget for contrast in require_contrasts(contrasts)}):
        budget_contrasts = [contrast for contrast in contrasts if contrast.budget == budget]
        worst = max(budget_contrasts, key=lambda contrast: margin_limits(contrast).p_worse)
        steps.append(
            BudgetTest(
                budget,
                margin_limits(worst).p_worse <= level and all(contrast.informative for contrast in budget_contrasts),
                worst,
                all(contrast.matched for contrast in budget_contrasts),
                max(contrast.memory for contrast in budget_contrasts),
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

    A budget at which it uses as much memory as the full cache may pass, but is never the answer. One with an
    uninformative contrast neither passes nor refutes.
    """
    subject_contrasts = [
        contrast for contrast in require_contrasts(contrasts) if contrast.subject == decision["subject"]
    ]
    if _smallest(fixed_sequence(subject_contrasts, _level(decision))):
        return CONFIRMED
    saving = [
        budget
        for budget in _descending({contrast.budget for contrast in subject_contrasts})
        if all(contrast.is_evidence for contrast in subject_contrasts if contrast.budget == budget)
    ]
    margin = float(decision["margin"])
    if any(margin_limits(contrast).high < -margin for contrast in subject_contrasts if contrast.budget in saving[:1]):
        return REFUTED
    return INCONCLUSIVE


def report(contrasts: Sequence[Contrast], decision: Decision, judging: int) -> dict[str, Any]:
    arm_reports = []
    for arm in _arms(decision):
        steps = fixed_sequence(
            [contrast for contrast in require_contrasts(contrasts) if contrast.subject == arm], _level(decision)
        )
        smallest = _smallest(steps)
        arm_reports.append(
            {
                "arm": arm,
                "level": _decimal(_level(decision)),
                "steps": [_format_step(step) for step in steps],
                "smallest": smallest and smallest.budget,
                "memory": smallest and _decimal(smallest.memory),
            }
        )
    return {"smallest_lossless": arm_reports}


def _format_step(step: BudgetTest) -> dict[str, Any]:
    return {
        "budget": step.budget,
        "passed": step.passed,
        "saves": step.saves_memory,
        "memory": _decimal(step.memory),
        "p": _decimal(margin_limits(step.worst).p_worse),
        "model": step.worst.model,
        "task": step.worst.task,
    }


def _decimal(value: float) -> str:
    """Format a value that is never negative as judgements print it."""
    return f"{value:.6f}"


def _smallest(steps: Sequence[BudgetTest]) -> BudgetTest | None:
    return next((step for step in reversed(steps) if step.passed and step.saves_memory), None)


def _arms(decision: Decision) -> list[str]:
    return [decision["subject"], *(decision.get("others") or ())]


def _level(decision: Decision) -> float:
    return float(decision["alpha"]) / len(_arms(decision))


def _descending(budgets: set[str]) -> list[str]:
    """Sort budgets of one kind, such as slots or shares of the prompt, from the largest down."""
    return sorted(budgets, key=budget_amount, reverse=True)


def lossy_indices(planned: Sequence[PlannedContrast]) -> list[int]:
    """Return, for every arm and budget, the contrast with the fewest problems: if the subject is worse by the
    margin in these, none of its budgets is lossless, and CONFIRMED is wrong as often as possible.
    """
    cells: dict[tuple[str, str], list[int]] = {}
    for index, contrast in enumerate(planned):
        cells.setdefault((contrast.subject, contrast.budget), []).append(index)
    return [indices[fewest_problems([planned[index] for index in indices])] for indices in cells.values()]


def self_test_cases(family: PlannedFamily) -> dict[str, Case]:
    """Return the cases, CONFIRMED first: this rule confirms equal answers."""
    margin, level = float(family.decision["margin"]), _level(family.decision)
    check_equal_answers(family, level)
    numbered = list(enumerate(family.contrasts))
    subject_contrasts = [
        (index, contrast) for index, contrast in numbered if contrast.subject == family.decision["subject"]
    ]
    largest, *smaller = _descending({contrast.budget for _, contrast in subject_contrasts})
    largest_indices = [index for index, contrast in subject_contrasts if contrast.budget == largest]
    smaller_indices = [index for index, contrast in subject_contrasts if contrast.budget in smaller]
    losses = {index: Outcome(lost=contrast.problems) for index, contrast in numbered}
    loss_by_margin = Outcome(lost=int(margin * family.contrasts[largest_indices[-1]].problems))
    cases = {
        EVEN: make_case(CONFIRMED, {}),
        "one contrast of the largest budget is lost by the margin": make_case(
            INCONCLUSIVE, {largest_indices[-1]: loss_by_margin}
        ),
        LOST: make_case(REFUTED, losses),
        "every contrast is won": make_case(CONFIRMED, {index: family.largest_win(index) for index, _ in numbered}),
        "one contrast of the largest budget is lost": make_case(
            REFUTED, {largest_indices[-1]: losses[largest_indices[-1]]}
        ),
        "every smaller budget is lost": make_case(CONFIRMED, {index: losses[index] for index in smaller_indices}),
        "every smaller budget is lost and the largest saves no memory": make_case(
            REFUTED, {index: losses[index] for index in smaller_indices}, *largest_indices
        ),
        "the largest budget is lost and saves no memory": make_case(
            INCONCLUSIVE, {index: losses[index] for index in largest_indices}, *largest_indices
        ),
        "the largest budget saves no memory": make_case(CONFIRMED, {}, *largest_indices),
        UNSAVED_CASES.every: make_case(INCONCLUSIVE, {}, *(index for index, _ in subject_contrasts)),
        **ungraded_cases(family, {}, largest_indices[-1]),
    }
    others = [index for index, contrast in numbered if contrast.subject != family.decision["subject"]]
    if others:
        cases["every contrast of the other arms is lost"] = make_case(
            CONFIRMED, {index: losses[index] for index in others}
        )
    return cases


def _hypothesis(decision: Decision, checks: Mapping[str, Any]) -> str:
    return (
        f"Hypothesis: at some registered budget {decision['subject']} uses less memory than the full cache, "
        f"and its accuracy on held-out problems is worse by less than {100 * float(decision['margin']):g} percentage "
        "points, on every model and task."
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


def _arm_reports(judged: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the results by arm; empty for an incomplete study."""
    return list(judged.get("smallest_lossless", ()))


def _proves(judged: Mapping[str, Any]) -> list[str]:
    points = f"{strip_zeros(judged['margin'])} accuracy points"
    facts = [
        f"{entry['arm']} was worse than the full cache by less than {points} down to "
        f"{_describe_budget(entry['smallest'])}, on every model and task, with at most "
        f"{format_whole_percent(entry['memory'])} of its memory ({judged['method']}, level "
        f"{strip_zeros(entry['level'])}, fixed sequence)."
        for entry in _arm_reports(judged)
        if entry["smallest"] is not None
    ]
    if judged["verdict"] == REFUTED:
        subject, margin = judged["contrasts"][0]["subject"], float(judged["margin"])
        saving = [entry for entry in judged["contrasts"] if entry["subject"] == subject and entry["saves"]]
        below = [entry for entry in saving if float(entry["high_margin"]) < -margin]
        named = [f"{entry['model']} {entry['task']} at {entry['budget']}" for entry in below]
        facts.insert(
            0,
            f"{subject} was worse than the full cache by more than {points} in {len(below)} of its contrasts "
            f"({judged['method']}, Bonferroni): {list_first(named)}.",
        )
    return facts


def _refuting_rows(rows: Sequence[Row], decision: Decision) -> list[Row]:
    """Return the subject's contrasts that refute, all of its largest budget that saves memory."""
    subject_rows = [row for row in rows if row["subject"] == decision["subject"]]
    saving = [
        budget
        for budget in _descending({row["budget"] for row in subject_rows})
        if all(row["matched"] for row in subject_rows if row["budget"] == budget)
    ]
    margin = float(decision["margin"])
    return [row for row in subject_rows if row["budget"] in saving[:1] and float(row["high_margin"]) < -margin]


def _limits(judged: Mapping[str, Any]) -> list[str]:
    points = f"{strip_zeros(judged['margin'])} accuracy points"
    return [
        f"Equality with the full cache: a loss below {points} was allowed at every budget.",
        "Anything at other budgets: budgets after the first that failed were not tested.",
    ]


def _line(judged: Mapping[str, Any]) -> str:
    margin, subject = 100 * float(judged["margin"]), judged["contrasts"][0]["subject"]
    within = f"{subject} within {margin:.1f} pp of the full cache"
    arm_report = next(iter(_arm_reports(judged)), None)
    if arm_report is None:
        return f"{within}, from the largest budget down"
    if arm_report["smallest"] is None:
        return f"{within} is shown at no budget that saves memory"
    budget, memory = _describe_budget(arm_report["smallest"]), format_whole_percent(arm_report["memory"])
    return f"{within} down to {budget} ({memory} of its memory)"


def _describe_budget(text: str) -> str:
    if text.endswith(OF_FULL):
        return f"a budget of {text.removesuffix(OF_FULL)} of the full cache's mean use"
    if text.startswith(BYTES_OF):
        return f"as many bytes as {text.removeprefix(BYTES_OF)} slots as computed"
    if text.partition(" ")[2] in UNITS:
        return f"a budget of {text}"
    return f"a budget of {text} of the prompt" if "." in text else f"{text} slots"


def _answer(judged: Row, rule_verdict: str, decision: Decision) -> str:
    points = f"{100 * float(judged['margin']):g} points"
    subject_result = judged["smallest_lossless"][0]
    subject, steps = subject_result["arm"], subject_result["steps"]
    if rule_verdict == CONFIRMED:
        memory = f"{(100 * Decimal(subject_result['memory'])).to_integral_value(ROUND_CEILING)} %"
        return (
            f"down to {_format_budget(subject_result['smallest'])} a loss of {points} or more is ruled out for "
            f"{subject} on every model and task, with at most {memory} of the full cache's memory"
        )
    if rule_verdict == REFUTED:
        subject_contrasts = [contrast for contrast in judged["contrasts"] if contrast["subject"] == subject]
        full_budgets = {
            contrast["budget"] for contrast in subject_contrasts if not contrast["matched"]
        }  # with the full cache's memory
        largest = max({contrast["budget"] for contrast in subject_contrasts} - full_budgets, key=budget_amount)
        beyond, _ = beyond_margin(judged, subject_contrasts, False)
        worst = min((contrast for contrast in beyond if contrast["budget"] == largest), key=difference_of)
        return (
            f"already at {_format_budget(largest)} {subject} was worse than the full cache by more than {points}, "
            f"{format_limits(judged, worst, 'budget')}"
        )
    last = steps[-1]
    if last["passed"]:
        return f"{subject} passed at no budget that saves memory"
    worst = next(
        contrast
        for contrast in judged["contrasts"]
        if (contrast["subject"], *(contrast[name] for name in ("model", "task", "budget")))
        == (subject, *(last[name] for name in ("model", "task", "budget")))
    )
    first = "its largest budget" if len(steps) == 1 else "and no larger budget that passed saves memory"
    return (
        f"at {_format_budget(last['budget'])}, {first}, a loss of {points} or more is not ruled out for {subject}: "
        f"{format_estimate(worst)}, {format_p_value(last['p'])}{format_location(judged, worst, 'budget')}"
    )


def _format_budget(text: str) -> str:
    return f"{text} slots" if text.isdigit() else f"a budget of {text}"


def _smallest_budgets(judged: Row) -> dict[str, str | None]:
    return {entry["arm"]: entry["smallest"] for entry in _arm_reports(judged)}


MEANING = (
    "Each arm's budgets are tested from the largest down; the sequence ends at the first budget at "
    "which some model or task does not rule out a loss of the registered margin. CONFIRMED: the "
    "subject passes at some budget where it uses less memory than the full cache. REFUTED: at its "
    "largest budget that saves memory, it is worse by more than the margin on some model and task. "
    "INCONCLUSIVE: otherwise."
)
RULE = Rule(
    FIELDS,
    refusal,
    verdict,
    self_test_cases,
    RuleText(_hypothesis, _criteria, _proves, _answer, MEANING, _line, limits=_limits),
    report,
    full="asked",
    has_ordered_budgets=True,
    lossy_indices=lossy_indices,
    smallest_budgets=_smallest_budgets,
    refuting_rows=_refuting_rows,
    aliases={"lossless": 'write "smallest_lossless" to determine the smallest budget, else "non_inferior"'},
)
