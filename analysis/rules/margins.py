"""The common part of rules about a registered margin: field, limits, self-test cases and sentences."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from analysis.rules.gates import EVEN, LOST, Family, Gate, Outcome, Vacuous, all_lost, due, ungraded
from analysis.rules.rule import FULL, Contrast, Decision, Field, Refusal, Rule, Words, against_full
from analysis.rules.sentences import contrast, listed, short
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.stats.comparison import Margins
from analysis.stats.methods import MARGINS

__all__ = ["MARGIN", "SAVES", "Side", "equal_or_vacuous", "fair", "limits", "lossless", "refusal"]

MARGIN = Field(
    "margin",
    "decimal",
    "Accuracy points by which the subject may differ, or be worse.",
    0.03,
    Decimal("0.001"),
    Decimal("0.5"),
)


class Side(NamedTuple):
    """The phrases in which a rule describes its margin."""

    differs: str  # "the accuracy of the subject ... by less than"
    differed: str
    wins: str  # the verdict if every contrast is won
    both: bool  # whether the margin applies above too
    open: str  # what CONFIRMED leaves open besides small differences
    line: str  # "{subject} ... {margin} pp in all contrasts"
    meaning: str


class Gates(NamedTuple):
    """The names of the self-test cases about memory."""

    lost: str
    one: str
    all: str


MATCHES = Gates(
    "one contrast is lost with unmatched caches",
    "a contrast has unmatched caches",
    "every contrast has unmatched caches",
)
SAVES = Gates(
    "one contrast is lost where the subject saves no memory",
    "the subject saves no memory in one contrast",
    "the subject saves no memory",
)


def fair(decision: Decision) -> str:
    """Return the requirement on memory as a clause."""
    if not against_full(decision):
        return "both arms held the same memory"
    return (
        f"the full cache held more than {decision['subject']} by more than "
        f"{short(str(decision['cache_tolerance']))} of it, as measured"
    )


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
    return Rule((MARGIN,), refusal, verdict, partial(_gates, side), words, full="allowed")


def refusal(decision: Decision, family: int) -> Refusal | None:
    if FULL in decision["against"] and not against_full(decision):
        return Refusal(
            "against",
            f"{FULL} holds more memory on purpose and the others do not; name it alone or leave it out",
        )
    if decision["method"] in MARGINS:
        return None
    return Refusal(
        "method",
        f"{decision['method']} has no test of a margin here; write t, restricted-likelihood or auto, "
        f"which keep {decision['rule']} at or above the exact chance where few problems differ",
    )


def _gates(side: Side, family: Family) -> dict[str, Gate]:
    """Return the cases, CONFIRMED first: these rules confirm equal answers."""
    margin, every = float(family.decision["margin"]), range(len(family.contrasts))
    equal_or_vacuous(family, family.alpha)
    last, names = every[-1], SAVES if against_full(family.decision) else MATCHES
    some = Outcome(lost=int(margin * family.contrasts[last].problems))  # at least one, else p exceeds alpha
    lost, won = all_lost(family, every), {index: family.whole(index) for index in every}
    return {
        EVEN: due(CONFIRMED, {}),
        "one contrast is lost by the margin": due(INCONCLUSIVE, {last: some}),
        LOST: due(REFUTED, lost),
        "every contrast is won": due(side.wins, won),
        "one contrast is lost": due(REFUTED, {last: lost[last]}),
        names.lost: due(INCONCLUSIVE, {last: lost[last]}, last),
        names.one: due(INCONCLUSIVE, {}, last),
        names.all: due(INCONCLUSIVE, {}, *every),
        **ungraded(family, {}, last),
    }


def equal_or_vacuous(family: Family, level: float) -> None:
    """Raise Vacuous if not even equal answers pass the margin test."""
    margin = float(family.decision["margin"])
    least, p = family.equal(margin)
    if p > level:
        raise Vacuous(
            f"{family.decision['rule']}: cannot say {CONFIRMED}: equal answers to {least} problems have p "
            f"= {p:.6f} at margin {margin:g} and alpha {level:g}; plan more problems or a wider margin"
        )


def _hypothesis(side: Side, decision: Decision, checks: Mapping[str, Any]) -> str:
    memory = "with less memory than the full cache" if against_full(decision) else "at equal measured memory"
    return (
        f"Hypothesis: {memory}, the accuracy of {decision['subject']} on held-out "
        f"problems {side.differs} by less than {decision['margin']} accuracy points from that of "
        f"{', '.join(decision['against'])}, in all {checks['tests']} contrasts."
    )


def _criteria(side: Side, decision: Decision, checks: Mapping[str, Any]) -> list[str]:
    margin = decision["margin"]
    return [
        f"CONFIRMED: in every contrast the one-sided test of a difference of -{margin}"
        + (f" and that of {margin} have" if side.both else " has")
        + f" p at most {decision['alpha']}, and {fair(decision)}. p is never below the "
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
