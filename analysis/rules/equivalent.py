"""The rule "equivalent": no contrast differs by the registered margin in either direction."""

from collections.abc import Sequence

from analysis.rules import non_inferior
from analysis.rules.margin_rules import MarginText, margin_limits, margin_rule
from analysis.rules.rule import Contrast, Decision
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED


def verdict(contrasts: Sequence[Contrast], decision: Decision) -> str:
    """Return the verdict of `non_inferior.verdict` on both sides: limits above the margin refute too, and
    CONFIRMED also needs p_better at most alpha.
    """
    margin, alpha = float(decision["margin"]), float(decision["alpha"])
    if any(contrast.is_evidence and margin_limits(contrast).low > margin for contrast in contrasts):
        return REFUTED
    lower_verdict = non_inferior.verdict(contrasts, decision)
    if lower_verdict != CONFIRMED or all(margin_limits(contrast).p_better <= alpha for contrast in contrasts):
        return lower_verdict
    return INCONCLUSIVE


RULE = margin_rule(
    MarginText(
        differs="differs",
        differed="differed",
        wins_verdict=REFUTED,
        is_two_sided=True,
        caveat="",
        line="within",
        meaning=(
            "CONFIRMED requires that every contrast rules out a difference of the registered margin or "
            "more, in either direction, with matched memory in all. REFUTED: some contrast differs by more "
            "than the margin. INCONCLUSIVE: otherwise."
        ),
    ),
    verdict,
    {
        **dict.fromkeys(("same", "equal"), 'write "equivalent": within the margin of every comparator'),
        "equivalence": "equivalent",
    },
)
