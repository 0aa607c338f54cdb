"""The rule "superior": the subject is better in at least k contrasts, and worse in none."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.rules.gates import WON, Family, Gate, Outcome, Vacuous, due, lost, ordinary, ungraded, unseen
from analysis.rules.rule import Contrast, Decision, Field, Refusal, Rule, Words, better, harmed, whole, worse
from analysis.rules.sentences import more_right, significant
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.stats.methods import METHODS

__all__ = ["RULE"]

FIELDS = (Field("at_least", "whole", "Contrasts of the family that have to be better.", 4, 1, 10_000),)


def verdict(contrasts: Sequence[Contrast], decision: Decision) -> str:
    """Return the verdict of m contrasts, at least k (`at_least`) of which have to be won.

    REFUTED       some contrast is significantly worse, or fewer than k contrasts have a simultaneous interval
                  that reaches zero, so that k wins are no longer possible
    CONFIRMED     at least k are significantly better, none is significantly worse at the uncorrected alpha,
                  and all are matched in memory
    INCONCLUSIVE  otherwise

    Significant: the p adjusted for the family is at most alpha (by Bonferroni, p at most alpha / m).

    A loss that a shortfall of memory may explain does not refute, but it is not harmless either.

    Unmatched contrasts neither refute nor count as won, and any of them prevents CONFIRMED. An interval that
    ends at zero reaches it: with few discordant problems a percentile interval ends there without evidence.
    """
    needed, alpha = decision["at_least"], float(decision["alpha"])
    losing = any(worse(contrast, alpha) for contrast in whole(contrasts))
    possible = sum(contrast.high >= 0 or not contrast.matched for contrast in contrasts)
    if losing or possible < needed:
        return REFUTED
    wins = sum(better(contrast, alpha) for contrast in contrasts)
    harmless = not any(contrast.net < 0 and harmed(contrast) <= alpha for contrast in contrasts)
    fair = all(contrast.matched for contrast in contrasts)
    return CONFIRMED if wins >= needed and harmless and fair else INCONCLUSIVE


def refusal(decision: Decision, family: int) -> Refusal | None:
    needed = decision["at_least"]
    if needed <= family:
        return None
    return Refusal("at_least", f"{needed} of {family} contrasts never hold; lower it")


def gates(family: Family) -> dict[str, Gate]:
    """Return the cases. Winners are the first contrasts of the family, so that the last one may lose while
    they win, if there is one to spare.
    """
    every, needed = range(len(family.contrasts)), family.decision["at_least"]
    alpha, corrected = family.alpha, family.corrected
    if needed < 1:
        raise Vacuous("superior: at_least: no win is asked for; a rule must be able to fail")
    winners = [index for index in every if family.best(index) <= corrected][:needed]
    if len(winners) < needed:
        raise unseen(family, every, needed, corrected)
    spare = [index for index in every if index not in winners]
    won = {index: family.whole(index) for index in winners}
    last, other = winners[-1], (spare or winners)[-1]
    found = {
        WON: due(CONFIRMED, won),
        **ordinary(family),
        "a win too few": due(INCONCLUSIVE, won | {last: Outcome()}),
        "a contrast that is won has unmatched caches": due(INCONCLUSIVE, won, last),
        **ungraded(family, won, last),
    }
    if spare:
        found["a contrast that is not won has unmatched caches"] = due(INCONCLUSIVE, won, other)
    if just := family.between(last, corrected / 8, corrected):
        found["a win just reaches the corrected level"] = due(CONFIRMED, won | {last: just})
    # Simulated contrasts without a difference cost max-t nothing, so p has to exceed alpha.
    alone = len(every) == 1 or METHODS[family.decision["method"]].family
    if short := family.between(last, *((alpha, 4 * alpha) if alone else (corrected, alpha))):
        found["a win falls short of the corrected level"] = due(INCONCLUSIVE, won | {last: short})
    if loss := family.between(other, corrected / 8, corrected):
        losing = (won if spare else {}) | {other: lost(loss)}
        found["a contrast is lost"] = due(REFUTED, losing)
        found["a contrast is lost with unmatched caches"] = due(INCONCLUSIVE, losing, other)
    if spare and not alone and (harm := family.between(other, corrected, alpha)):
        harmed = won | {other: lost(harm)}
        found["a contrast is worse at the uncorrected level"] = due(INCONCLUSIVE, harmed)
    return found


def _hypothesis(decision: Decision, checks: Mapping[str, Any]) -> str:
    return (
        f"Hypothesis (directional): at equal measured memory, {decision['subject']} "
        f"{more_right(decision, checks)}, significantly so in at "
        f"least {decision['at_least']} of {checks['tests']} contrasts and significantly worse in none."
    )


def _criteria(decision: Decision, checks: Mapping[str, Any]) -> list[str]:
    least, family = decision["at_least"], checks["tests"]
    together = METHODS[decision["method"]].family
    within = (
        f"an adjusted p at most {decision['alpha']}" if together else f"p at most {checks['corrected_alpha']}"
    )
    return [
        f"CONFIRMED: at least {least} of {family} contrasts favour {decision['subject']} with "
        f"{within}, none goes against it with p at most {decision['alpha']}, and in all of them "
        "both arms held the same memory.",
        f"REFUTED: some contrast goes against it with {within}, or fewer than {least} "
        "contrasts have a simultaneous interval that reaches zero or lies above it (those of "
        f"unequal memory counted among them), so that {least} wins are no longer possible.",
    ]


def _proves(judged: Mapping[str, Any]) -> list[str]:
    facts, contrasts = significant(judged), judged["contrasts"]
    if judged["verdict"] == REFUTED:
        possible = sum(float(row["high_simultaneous"]) >= 0 or not row["matched"] for row in contrasts)
        if possible < judged["at_least"]:
            facts.append(
                f"At most {possible} of {len(contrasts)} contrasts can favour {contrasts[0]['subject']}; "
                f"{judged['at_least']} were registered."
            )
    return facts


def _line(judged: Mapping[str, Any]) -> str:
    subject = judged["contrasts"][0]["subject"]
    return f"{subject} better in at least {judged['at_least']} of {judged['family']} contrasts, worse in none"


MEANING = (
    "CONFIRMED asks for the registered number of contrasts significantly better after correction for their "
    "number, none significantly worse without it, and matched memory in all. REFUTED: some contrast is "
    "significantly worse after correction, or so many wins are no longer possible. INCONCLUSIVE: otherwise."
)
RULE = Rule(FIELDS, refusal, verdict, gates, Words(_hypothesis, _criteria, _proves, MEANING, _line))
