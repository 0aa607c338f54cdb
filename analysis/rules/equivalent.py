"""The rule "equivalent": no contrast differs by the registered margin in either direction."""

from collections.abc import Sequence

from analysis.rules import non_inferior
from analysis.rules.margins import Side, limits, lossless
from analysis.rules.rule import Contrast, Decision
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED

__all__ = ["RULE"]


def verdict(contrasts: Sequence[Contrast], decision: Decision) -> str:
    """Return the verdict of `non_inferior.verdict` on both sides: limits above the margin refute too, and
    CONFIRMED also needs p_better at most alpha.
    """
    margin, alpha = float(decision["margin"]), float(decision["alpha"])
    if any(contrast.matched and limits(contrast).low > margin for contrast in contrasts):
        return REFUTED
    below = non_inferior.verdict(contrasts, decision)
    if below != CONFIRMED or all(limits(contrast).p_better <= alpha for contrast in contrasts):
        return below
    return INCONCLUSIVE


RULE = lossless(
    Side(
        differs="differs",
        differed="differed",
        wins=REFUTED,
        both=True,
        open="",
        line="within",
        meaning=(
            "CONFIRMED asks that every contrast rules out a difference of the registered margin or more, in "
            "either direction, with matched memory in all. REFUTED: some contrast differs by more than the "
            "margin. INCONCLUSIVE: otherwise."
        ),
    ),
    verdict,
)
