"""The rule "superior": the subject is better in at least k contrasts, and worse in none."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.rules.judged_numbers import format_level, format_p, format_points
from analysis.rules.rule import (
    Contrast,
    Decision,
    Field,
    PartialNull,
    Refusal,
    Rule,
    RuleText,
    harm_p,
    is_better,
    is_worse,
    measures_memory,
    memory_condition,
    require_contrasts,
)
from analysis.rules.self_test_cases import (
    WON,
    Case,
    Outcome,
    PlannedContrast,
    PlannedFamily,
    Vacuous,
    as_loss,
    cannot_confirm,
    make_case,
    standard_cases,
    ungraded_cases,
)
from analysis.rules.sentences import (
    Row,
    accuracy_clause,
    count_contrasts,
    difference_of,
    evidence_rows,
    format_comparator,
    format_contrast,
    format_estimate,
    format_location,
    format_p_value,
    significance_sentences,
)
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.stats.methods import METHODS

FIELDS = (Field("at_least", "whole", "The number of contrasts of the family that must be better.", 4, 1, 10_000),)


def verdict(contrasts: Sequence[Contrast], decision: Decision) -> str:
    """Return the verdict of m contrasts, at least k (`at_least`) of which have to be won.

    REFUTED       some contrast is significantly worse, or fewer than k contrasts have a simultaneous interval
                  that reaches zero, so that k wins are no longer possible
    CONFIRMED     at least k are significantly better, none is significantly worse at the uncorrected alpha,
                  and all are matched in memory
    INCONCLUSIVE  otherwise

    Significant: the p adjusted for the family is at most alpha (by Bonferroni, p at most alpha / m).

    A loss that a shortfall of memory may explain does not refute, but it is not harmless either.

    Unmatched contrasts neither refute nor count as won, and any of them prevents CONFIRMED. Uninformative ones are
    left out: they are not won or lost, and whether they could have been won is unknown. An interval that
    ends at zero reaches it: with few discordant problems a percentile interval ends there without evidence.
    """
    needed, alpha = decision["at_least"], float(decision["alpha"])
    is_losing = any(is_worse(contrast, alpha) for contrast in require_contrasts(contrasts))
    possible = sum(contrast.high >= 0 or not contrast.is_evidence for contrast in contrasts)
    if is_losing or possible < needed:
        return REFUTED
    wins = sum(is_better(contrast, alpha) for contrast in contrasts)
    informative = [contrast for contrast in contrasts if contrast.informative]
    is_harmless = not any(contrast.net < 0 and harm_p(contrast) <= alpha for contrast in informative)
    is_matched = all(contrast.matched for contrast in informative)
    return CONFIRMED if wins >= needed and is_harmless and is_matched else INCONCLUSIVE


def partial_nulls(planned: Sequence[PlannedContrast], decision: Decision) -> list[PartialNull]:
    """Return the null in which one contrast fewer than registered is better."""
    better = decision["at_least"] - 1
    text = f"the subject is better in {better} of {len(planned)} contrasts"
    return [PartialNull(text, frozenset(range(better)), (CONFIRMED, REFUTED))] if better else []


def refusal(decision: Decision, family: int) -> Refusal | None:
    needed = decision["at_least"]
    if needed <= family:
        return None
    return Refusal("at_least", f"{needed} of {family} contrasts can never be reached; lower it")


def self_test_cases(family: PlannedFamily) -> dict[str, Case]:
    """Return the cases. Winners are the first contrasts of the family, so that the last one may lose while
    they win, if there is one to spare.
    """
    indices, needed = range(len(family.contrasts)), family.decision["at_least"]
    alpha, corrected = family.alpha, family.corrected
    if needed < 1:
        raise Vacuous("superior: at_least: must be at least 1, because a rule must be able to fail")
    winners = [index for index in indices if family.smallest_p(index) <= corrected][:needed]
    if len(winners) < needed:
        raise cannot_confirm(family, indices, needed, corrected)
    spare = [index for index in indices if index not in winners]
    wins = {index: family.largest_win(index) for index in winners}
    last_winner, loser = winners[-1], (spare or winners)[-1]
    cases = {
        WON: make_case(CONFIRMED, wins),
        **standard_cases(family),
        "a win too few": make_case(INCONCLUSIVE, wins | {last_winner: Outcome()}),
        "a contrast that is won has unmatched caches": make_case(INCONCLUSIVE, wins, last_winner),
        **ungraded_cases(family, wins, last_winner),
    }
    if spare:
        cases["a contrast that is not won has unmatched caches"] = make_case(INCONCLUSIVE, wins, loser)
    if narrow_win := family.win_between(last_winner, corrected / 8, corrected):
        cases["a win just reaches the corrected level"] = make_case(CONFIRMED, wins | {last_winner: narrow_win})
    # Simulated contrasts without a difference cost max-t nothing, so p has to exceed alpha.
    is_uncorrected = len(indices) == 1 or METHODS[family.decision["method"]].family
    if short_win := family.win_between(last_winner, *((alpha, 4 * alpha) if is_uncorrected else (corrected, alpha))):
        cases["a win falls short of the corrected level"] = make_case(INCONCLUSIVE, wins | {last_winner: short_win})
    if loss := family.win_between(loser, corrected / 8, corrected):
        losing = (wins if spare else {}) | {loser: as_loss(loss)}
        cases["a contrast is lost"] = make_case(REFUTED, losing)
        cases["a contrast is lost with unmatched caches"] = make_case(INCONCLUSIVE, losing, loser)
    if spare and not is_uncorrected and (harm := family.win_between(loser, corrected, alpha)):
        harmed = wins | {loser: as_loss(harm)}
        cases["a contrast is worse at the uncorrected level"] = make_case(INCONCLUSIVE, harmed)
    return cases


def _hypothesis(decision: Decision, checks: Mapping[str, Any]) -> str:
    return (
        f"Hypothesis (directional): {memory_condition(decision)}, {decision['subject']} "
        f"{accuracy_clause(decision, checks)}, significantly so in at "
        f"least {decision['at_least']} of {checks['tests']} contrasts and significantly worse in none."
    )


def _criteria(decision: Decision, checks: Mapping[str, Any]) -> list[str]:
    least, family = decision["at_least"], checks["tests"]
    is_family_method = METHODS[decision["method"]].family
    level_clause = (
        f"an adjusted p at most {decision['alpha']}" if is_family_method else f"p at most {checks['corrected_alpha']}"
    )
    return [
        f"CONFIRMED: at least {least} of {family} contrasts favour {decision['subject']} with "
        f"{level_clause}, none goes against it with p at most {decision['alpha']}"
        + (", and memory is matched in all of them." if measures_memory(decision) else "."),
        f"REFUTED: some contrast goes against it with {level_clause}, or fewer than {least} "
        "contrasts have a simultaneous interval that reaches zero or lies above it"
        + (" (those of unequal memory counted among them)" if measures_memory(decision) else "")
        + f", so that {least} wins are no longer possible.",
    ]


def _proves(judged: Mapping[str, Any]) -> list[str]:
    facts, contrasts = significance_sentences(judged), judged["contrasts"]
    if judged["verdict"] == REFUTED:
        possible = _count_winnable(contrasts)
        if possible < judged["at_least"]:
            facts.append(
                f"At most {possible} of {len(contrasts)} contrasts can favour {contrasts[0]['subject']}; "
                f"{judged['at_least']} were registered."
            )
    return facts


def _count_winnable(contrasts: Sequence[Row]) -> int:
    """Return how many contrasts are won or may have been: those without evidence count as well."""
    return len(contrasts) - sum(float(row["high_simultaneous"]) < 0 for row in evidence_rows(contrasts))


def _line(judged: Mapping[str, Any]) -> str:
    subject = judged["contrasts"][0]["subject"]
    return f"{subject} better in at least {judged['at_least']} of {judged['family']} contrasts, worse in none"


def _answer(judged: Row, rule_verdict: str, decision: Decision) -> str:
    contrasts, least = judged["contrasts"], judged["at_least"]
    matched = evidence_rows(contrasts)
    wins, losses = ([contrast for contrast in matched if contrast[way]] for way in ("better", "worse"))
    subject, among = contrasts[0]["subject"], count_contrasts(contrasts)
    requirement = f"all {among}" if least == len(contrasts) else f"at least {least} of {among}"
    if len(contrasts) == 1:
        return _single_answer(judged, rule_verdict)
    if rule_verdict == CONFIRMED:
        return (
            f"{subject} was significantly better{format_comparator(judged)} in {len(wins)} of {among} "
            f"({least} required), {_format_range(judged, wins)}, and significantly worse in none"
        )
    finding = (
        f"it was required that {subject} is significantly better{format_comparator(judged)} in {requirement} and "
        f"worse in none; observed: better in {len(wins) or 'none'}, worse in {len(losses) or 'none'}"
    )
    if rule_verdict == REFUTED:
        possible = _count_winnable(contrasts)
        late = f", and can be better in at most {possible}" if possible < least else ""
        lowest, name = (losses, "worst") if losses else (matched, "lowest")
        return f"{finding}{late}; the {name} difference is {format_contrast(judged, min(lowest, key=difference_of))}"
    if len(wins) >= least:
        harmed = [
            contrast
            for contrast in matched
            if difference_of(contrast) < 0 and float(contrast["p"]) <= float(judged["alpha"])
        ]
        if harmed:
            why = f"{format_contrast(judged, min(harmed, key=difference_of))} goes against it before correction"
        elif len(matched) < len(contrasts):
            why = "memory that is not matched rules out a confirmation"
        else:
            why = "a contrast goes against it before correction"
        return f"{finding}, but {why}"
    return f"{finding}; {_nearest_win(judged, matched)}" if not wins else finding


def _single_answer(judged: Row, rule_verdict: str) -> str:
    """Return the answer for a family of one contrast."""
    (contrast,) = judged["contrasts"]
    if rule_verdict == CONFIRMED:
        better = f"{contrast['subject']} was significantly better{format_comparator(judged)}"
        return f"{better}, by {format_contrast(judged, contrast)}"
    claim = f"it was required that {contrast['subject']} is significantly better{format_comparator(judged)}"
    if rule_verdict == REFUTED or not contrast["matched"] or difference_of(contrast) <= 0:
        return f"{claim}; the difference is {format_contrast(judged, contrast)}"
    return f"{claim}; {_nearest_win(judged, [contrast])}"


def _nearest_win(judged: Row, matched: Sequence[Row]) -> str:
    """Return how near a family without a win came to one."""
    ahead = [contrast for contrast in matched if difference_of(contrast) > 0]
    matched_phrase = " with matched memory" if len(matched) < len(judged["contrasts"]) else ""
    if not ahead:
        highest = f"; the highest is {format_contrast(judged, max(matched, key=difference_of))}" if matched else ""
        return f"no contrast{matched_phrase} favours it{highest}"
    is_family_method = METHODS[judged["method"]].family
    p = "p_adjusted" if is_family_method else "p"
    best = min(ahead, key=lambda contrast: (float(contrast[p]), -difference_of(contrast)))
    level = format_level(judged["alpha" if is_family_method else "corrected_alpha"])
    family_size = len(judged["contrasts"])
    threshold = level if is_family_method or family_size == 1 else f"the {level} that a family of {family_size} needs"
    adjusted = "adjusted " if is_family_method else ""
    name = "the difference is" if family_size == 1 else f"the best{matched_phrase} was"
    printed = format_p_value(best[p])
    if format_p(best[p]).rstrip("0") == level:  # although p is above it
        printed = f"p = {float(best[p]):.6f}"
    return f"{name} {format_estimate(best)}, {adjusted}{printed}, above {threshold}{format_location(judged, best)}"


def _format_range(judged: Row, winning: Sequence[Row]) -> str:
    if len(winning) == 1:
        return f"by {format_contrast(judged, winning[0])}"
    ends = [format_points(end(winning, key=difference_of)["difference"]) for end in (min, max)]
    return f"by {ends[0]} to {ends[1]} points"


MEANING = (
    "CONFIRMED requires the registered number of contrasts to be significantly better after correction "
    "for their number, none to be significantly worse without it, and matched memory in all. REFUTED: "
    "some contrast is significantly worse after correction, or the registered number of wins is no "
    "longer possible. INCONCLUSIVE: otherwise."
)
RULE = Rule(
    FIELDS,
    refusal,
    verdict,
    self_test_cases,
    RuleText(_hypothesis, _criteria, _proves, _answer, MEANING, _line),
    partial_nulls=partial_nulls,
    aliases=dict.fromkeys(("better", "greater"), 'write "superior": better in at_least contrasts, and worse in none'),
)
