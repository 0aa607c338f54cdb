"""The common part of rules about a registered margin: field, limits, self-test cases and sentences."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from analysis.rules.judged_numbers import format_points
from analysis.rules.rule import (
    Contrast,
    Decision,
    Field,
    Refusal,
    Rule,
    RuleText,
    is_against_full,
    measures_memory,
    memory_condition,
)
from analysis.rules.self_test_cases import (
    EVEN,
    LOST,
    Case,
    Outcome,
    PlannedFamily,
    Vacuous,
    lose_all,
    make_case,
    ungraded_cases,
)
from analysis.rules.sentences import (
    Row,
    contrast_name,
    count_contrasts,
    difference_of,
    evidence_rows,
    format_limits,
    format_location,
    format_p_value,
    list_first,
    strip_zeros,
)
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.stats.comparison import Margins
from analysis.stats.methods import MARGIN_METHODS
from protocol.formats.vocabulary import FULL

MARGIN = Field(
    "margin",
    "decimal",
    "Accuracy points by which the subject may differ, or be worse.",
    0.03,
    Decimal("0.001"),
    Decimal("0.5"),
)


AGREEMENT = "agreement"  # what is scored, in a judgement of agreement with the full cache
LEAD_SHARE = Field(
    "lead_share",
    "decimal",
    "The largest share that the margin may be of the lead that the full cache has over a guess.",
    0.25,
    Decimal("0.01"),
    Decimal("0.5"),
    without="a third",
)


class MarginText(NamedTuple):
    """The phrases in which a rule describes its margin."""

    differs: str  # "the accuracy of the subject ... by less than"
    differed: str
    wins_verdict: str  # the verdict if every contrast is won
    is_two_sided: bool  # whether the margin applies above too
    caveat: str  # what CONFIRMED leaves open besides small differences
    line: str  # "{subject} ... {margin} pp in all contrasts"
    meaning: str


class MemoryCaseNames(NamedTuple):
    """The names of the self-test cases about memory."""

    lost: str
    single: str
    every: str


UNMATCHED_CASES = MemoryCaseNames(
    "one contrast is lost with unmatched caches",
    "a contrast has unmatched caches",
    "every contrast has unmatched caches",
)
UNSAVED_CASES = MemoryCaseNames(
    "one contrast is lost where the subject saves no memory",
    "the subject saves no memory in one contrast",
    "the subject saves no memory",
)


def memory_clause(decision: Decision) -> str:
    """Return the requirement on memory as a clause after others; empty where none is measured."""
    if not measures_memory(decision):
        return ""
    if not is_against_full(decision):
        return ", and memory is matched"
    return (
        f", and the measured memory of the full cache exceeds that of {decision['subject']} by more than "
        f"{strip_zeros(str(decision['cache_tolerance']))} of it"
    )


def name_points(contrasts: Sequence[Row]) -> str:
    """Return what a margin is counted in: points of accuracy, or of agreement with the full cache on its text."""
    return "points of agreement" if contrasts[0].get("scored") == AGREEMENT else "accuracy points"


def margin_limits(contrast: Contrast) -> Margins:
    if contrast.margins is None:
        raise ValueError("contrasts: limits need a margin; write decision.margin for this rule")
    return contrast.margins


def margin_rule(
    wording: MarginText, verdict: Callable[[Sequence[Contrast], Decision], str], aliases: Mapping[str, str]
) -> Rule:
    text = RuleText(
        partial(_hypothesis, wording),
        partial(_criteria, wording),
        partial(_proves, wording),
        partial(_answer, wording),
        wording.meaning,
        partial(_line, wording),
        partial(_limitations, wording),
    )
    return Rule(
        (MARGIN, LEAD_SHARE),
        refusal,
        verdict,
        partial(_self_test_cases, wording),
        text,
        full="allowed",
        aliases=aliases,
        has_two_sided_margin=wording.is_two_sided,
        refuting_rows=partial(_refuting_rows, wording),
    )


def _refuting_rows(wording: MarginText, rows: Sequence[Row], decision: Decision) -> list[Row]:
    return list(itertools.chain(*beyond_margin(decision, evidence_rows(rows), wording.is_two_sided)))


def refusal(decision: Decision, family: int) -> Refusal | None:
    if FULL in decision["against"] and not is_against_full(decision):
        return Refusal(
            "against",
            f"{FULL} uses more memory on purpose, unlike the other comparators; name it alone or leave it out",
        )
    if decision["method"] in MARGIN_METHODS:
        return None
    return Refusal(
        "method",
        f"{decision['method']} cannot test a margin here; write t, restricted-likelihood, auto, betting or "
        f"cr2, which keep {decision['rule']} at or above the exact chance if few problems differ",
    )


def _self_test_cases(wording: MarginText, family: PlannedFamily) -> dict[str, Case]:
    """Return the cases, CONFIRMED first: these rules confirm equal answers."""
    margin, indices = float(family.decision["margin"]), range(len(family.contrasts))
    check_equal_answers(family, family.alpha)
    last, names = indices[-1], UNSAVED_CASES if is_against_full(family.decision) else UNMATCHED_CASES
    loss_by_margin = Outcome(lost=int(margin * family.contrasts[last].problems))  # at least one, else p exceeds alpha
    losses, wins = lose_all(family, indices), {index: family.largest_win(index) for index in indices}
    return {
        EVEN: make_case(CONFIRMED, {}),
        "one contrast is lost by the margin": make_case(INCONCLUSIVE, {last: loss_by_margin}),
        LOST: make_case(REFUTED, losses),
        "every contrast is won": make_case(wording.wins_verdict, wins),
        "one contrast is lost": make_case(REFUTED, {last: losses[last]}),
        names.lost: make_case(INCONCLUSIVE, {last: losses[last]}, last),
        names.single: make_case(INCONCLUSIVE, {}, last),
        names.every: make_case(INCONCLUSIVE, {}, *indices),
        **ungraded_cases(family, {}, last),
    }


def check_equal_answers(family: PlannedFamily, level: float) -> None:
    """Raise Vacuous if not even equal answers pass the margin test."""
    margin = float(family.decision["margin"])
    least, p = family.equal_answers_p(margin)
    if p > level:
        raise Vacuous(
            f"{family.decision['rule']}: cannot give {CONFIRMED}: even identical answers to {least} "
            f"problems have p = {p:.6f} at margin {margin:g} and alpha {level:g}; plan more problems or a "
            "wider margin"
        )


def _hypothesis(wording: MarginText, decision: Decision, checks: Mapping[str, Any]) -> str:
    quantity = f"the accuracy of {decision['subject']} on held-out problems"
    if checks.get("outcome"):
        quantity = f"the agreement of {decision['subject']} with the full cache, on its text,"
    return (
        f"Hypothesis: {memory_condition(decision)}, {quantity} {wording.differs} by less than "
        f"{100 * float(decision['margin']):g} percentage points from that of "
        f"{', '.join(decision['against'])}, in all {checks['tests']} contrasts."
    )


def _criteria(wording: MarginText, decision: Decision, checks: Mapping[str, Any]) -> list[str]:
    margin = decision["margin"]
    return [
        f"CONFIRMED: in every contrast the one-sided test of a difference of -{margin}"
        + (f" and that of {margin} have" if wording.is_two_sided else " has")
        + f" p at most {decision['alpha']}{memory_clause(decision)}. p is never below the "
        "exact chance of the observed sum where so many problems are lost as put the truth on the "
        "margin.",
        f"REFUTED: some contrast has limits, with coverage 1 - 2 x {checks['corrected_alpha']}, that lie "
        f"below -{margin}" + (f" or above {margin}." if wording.is_two_sided else "."),
    ]


def _proves(wording: MarginText, judged: Mapping[str, Any]) -> list[str]:
    contrasts, subject = judged["contrasts"], judged["contrasts"][0]["subject"]
    how = f"{judged['method']}, level {strip_zeros(judged['alpha'])}"
    points = f"{strip_zeros(judged['margin'])} {name_points(contrasts)}"
    if judged["verdict"] == CONFIRMED:
        claim = f"{subject} {wording.differed} by less than {points}"
        return [f"{claim} in each of {len(contrasts)} contrasts ({how})."]
    refuting = beyond_margin(judged, evidence_rows(contrasts), wording.is_two_sided)
    low, high = ([contrast_name(row) for row in rows] for rows in refuting)
    return [
        f"{subject} was {word} by more than {points} in {len(named)} of {len(contrasts)} contrasts "
        f"({how}, Bonferroni): {list_first(named)}."
        for word, named in (("worse", low), ("better", high))
        if named
    ]


def _limitations(wording: MarginText, judged: Mapping[str, Any]) -> list[str]:
    points = f"{strip_zeros(judged['margin'])} {name_points(judged['contrasts'])}"
    return [f"Equality: differences smaller than {points} were not asked about{wording.caveat}."]


def _line(wording: MarginText, judged: Mapping[str, Any]) -> str:
    margin, subject = 100 * float(judged["margin"]), judged["contrasts"][0]["subject"]
    return f"{subject} {wording.line} {margin:.1f} pp in all {judged['family']} contrasts"


def _answer(wording: MarginText, judged: Row, rule_verdict: str, decision: Decision) -> str:
    contrasts, points = judged["contrasts"], f"{100 * float(judged['margin']):g} points"
    points += " of agreement" if contrasts[0].get("scored") == AGREEMENT else ""
    alpha, subject, among = float(judged["alpha"]), contrasts[0]["subject"], count_contrasts(contrasts)
    matched = evidence_rows(contrasts)
    comparator_phrase = f"compared with {contrasts[0]['against']}" if len(contrasts) == 1 else f"in all {among}"
    differ = f"differ by less than {points}, either way," if wording.is_two_sided else f"lose less than {points}"
    claim = f"{subject} was required to {differ} {comparator_phrase}"

    def p(contrast: Row) -> float:
        sides = ("p_worse", "p_better") if wording.is_two_sided else ("p_worse",)
        return max(float(contrast[side]) for side in sides)

    def where(rows: Sequence[Row]) -> str:
        return f" in {len(rows)}" if len(contrasts) > 1 else ""

    def nearest(rows: Sequence[Row]) -> str:
        closest = max(rows, key=p)
        estimate = f"{format_points(closest['difference'])} points, {format_p_value(str(p(closest)))}"
        name = "the difference is" if len(contrasts) == 1 else "the closest is"
        return f"{name} {estimate}{format_location(judged, closest)}"

    if rule_verdict == CONFIRMED:
        excluded_loss = (
            f"a difference of {points} or more, either way," if wording.is_two_sided else f"a loss of {points} or more"
        )
        return f"{excluded_loss} is ruled out for {subject} {comparator_phrase}; {nearest(contrasts)}"
    if rule_verdict == REFUTED:
        low, high = beyond_margin(judged, matched, wording.is_two_sided)
        furthest_phrase = "the furthest " if len(contrasts) > 1 else ""
        parts = [
            f"{word} by more{where(rows)}, {furthest_phrase}{format_limits(judged, end(rows, key=difference_of))}"
            for word, rows, end in (("worse", low, min), ("better", high, max))
            if rows
        ]
        return f"{claim}; it was {' and '.join(parts)}"
    within = sum(p(contrast) <= alpha for contrast in matched)
    if within == len(contrasts):  # as printed; the rule uses more digits
        return f"{claim}; {nearest(matched)}"
    outside = [contrast for contrast in matched if p(contrast) > alpha]
    furthest = f"; {nearest(outside)}" if outside else ""
    shown_phrase = "not shown" if len(contrasts) == 1 else f"shown in {within} of {len(contrasts)}"
    return f"{claim}, and this is {shown_phrase}{furthest}"


def beyond_margin(judged: Row, rows: Sequence[Row], is_two_sided: bool) -> tuple[list[Row], list[Row]]:
    """Return the rows that refute by their margin: on the lower side, and on the upper one for a two-sided
    rule.
    """
    margin = float(judged["margin"])
    low = [row for row in rows if float(row["high_margin"]) < -margin]
    return low, [row for row in rows if is_two_sided and float(row["low_margin"]) > margin]
