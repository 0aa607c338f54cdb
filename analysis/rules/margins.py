"""What rules about a registered margin share: its field, their limits, their gates and their sentences."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from analysis.rules.gates import EVEN, LOST, Family, Gate, Outcome, Vacuous, all_lost, due, ungraded
from analysis.rules.rule import Contrast, Decision, Field, Refusal, Rule, Words
from analysis.rules.sentences import contrast, listed, short
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.stats.comparison import Margins
from analysis.stats.methods import MARGINS

__all__ = ["Side", "limits", "lossless"]

MARGIN = Field(
    "margin",
    "decimal",
    "Accuracy points by which the subject may differ, or be worse.",
    0.03,
    Decimal("0.001"),
    Decimal("0.5"),
)


class Side(NamedTuple):
    """How a rule speaks of its margin."""

    differs: str  # "the accuracy of the subject ... by less than"
    differed: str
    wins: str  # the verdict where every contrast is won
    both: bool  # whether the margin holds above as well
    open: str  # what a CONFIRMED leaves open beside small differences
    line: str  # "{subject} ... {margin} pp in all contrasts"
    meaning: str


def limits(contrast: Contrast) -> Margins:
    if contrast.margins is None:
        raise ValueError("contrasts: no limits about a margin; this rule needs decision.margin")
    return contrast.margins


def lossless(side: Side, verdict: Callable[[Sequence[Contrast], Decision], str]) -> Rule:
    words = Words(
        partial(_hypothesis, side),
        partial(_criteria, side),
        partial(_proves, side),
        side.meaning,
        partial(_line, side),
        partial(_unproved, side),
    )
    return Rule((MARGIN,), _refusal, verdict, partial(_gates, side), words)


def _refusal(decision: Decision, family: int) -> Refusal | None:
    if decision["method"] in MARGINS:
        return None
    return Refusal(
        "method",
        f"{decision['method']} has no test of a margin here; write t, restricted-likelihood or auto, "
        f"which keep {decision['rule']} at or above the exact chance where few problems differ",
    )


def _gates(side: Side, family: Family) -> dict[str, Gate]:
    """CONFIRMED comes first: it is what these rules say of equal answers."""
    margin, every = float(family.decision["margin"]), range(len(family.contrasts))
    least, p = family.equal(margin)
    if p > family.alpha:
        raise Vacuous(
            f"{family.decision['rule']}: cannot say {CONFIRMED}: equal answers to {least} problems have p "
            f"= {p:.6f} at margin {margin:g} and alpha {family.alpha:g}; plan more problems or a wider "
            "margin"
        )
    last = every[-1]
    some = Outcome(lost=int(margin * family.contrasts[last].problems))  # one or more, or p was above
    lost, won = all_lost(family, every), {index: family.whole(index) for index in every}
    return {
        EVEN: due(CONFIRMED, {}),
        "one contrast is lost by the margin": due(INCONCLUSIVE, {last: some}),
        LOST: due(REFUTED, lost),
        "every contrast is won": due(side.wins, won),
        "one contrast is lost": due(REFUTED, {last: lost[last]}),
        "one contrast is lost with unmatched caches": due(INCONCLUSIVE, {last: lost[last]}, last),
        "a contrast has unmatched caches": due(INCONCLUSIVE, {}, last),
        **ungraded(family, {}, last),
    }


def _hypothesis(side: Side, decision: Decision, checks: Mapping[str, Any]) -> str:
    return (
        f"Hypothesis: at equal measured memory, the accuracy of {decision['subject']} on held-out "
        f"problems {side.differs} by less than {decision['margin']} accuracy points from that of "
        f"{', '.join(decision['against'])}, in all {checks['tests']} contrasts."
    )


def _criteria(side: Side, decision: Decision, checks: Mapping[str, Any]) -> list[str]:
    margin = decision["margin"]
    return [
        f"CONFIRMED: in every contrast the one-sided test of a difference of -{margin}"
        + (f" and that of {margin} have" if side.both else " has")
        + f" p at most {decision['alpha']}, and both arms held the same memory. p is never below the "
        "exact chance of the observed sum where so many problems are lost as put the truth on the "
        "margin.",
        f"REFUTED: some contrast has limits, with coverage 1 - 2 x {checks['corrected_alpha']}, that lie "
        f"below -{margin}" + (f" or above {margin}." if side.both else "."),
    ]


def _proves(side: Side, judged: Mapping[str, Any]) -> list[str]:
    contrasts, subject = judged["contrasts"], judged["contrasts"][0]["subject"]
    how = f"{judged['method']}, level {short(judged['alpha'])}"
    points = f"{short(judged['margin'])} accuracy points"
    if judged["verdict"] == CONFIRMED:
        sure = f"{subject} {side.differed} by less than {points}"
        return [f"{sure} in each of {len(contrasts)} contrasts ({how})."]
    margin = float(judged["margin"])
    fair = [row for row in contrasts if row["matched"]]
    low = [contrast(row) for row in fair if float(row["high_margin"]) < -margin]
    high = [contrast(row) for row in fair if side.both and float(row["low_margin"]) > margin]
    return [
        f"{subject} was {word} by more than {points} in {len(beyond)} of {len(contrasts)} contrasts "
        f"({how}, Bonferroni): {listed(beyond)}."
        for word, beyond in (("worse", low), ("better", high))
        if beyond
    ]


def _unproved(side: Side, judged: Mapping[str, Any]) -> list[str]:
    points = f"{short(judged['margin'])} accuracy points"
    return [f"Equality: differences smaller than {points} were not asked about{side.open}."]


def _line(side: Side, judged: Mapping[str, Any]) -> str:
    margin, subject = 100 * float(judged["margin"]), judged["contrasts"][0]["subject"]
    return f"{subject} {side.line} {margin:.1f} pp in all {judged['family']} contrasts"
