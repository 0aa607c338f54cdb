"""The rule "non-inferior": no contrast is worse by the registered margin."""

from collections.abc import Sequence

from analysis.rules.margin_rules import MarginText, margin_limits, margin_rule
from analysis.rules.rule import Contrast, Decision, require_contrasts
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED


def verdict(contrasts: Sequence[Contrast], decision: Decision) -> str:
    """Return the verdict of contrasts with margin limits.

    REFUTED       some contrast is worse by more than the margin: its simultaneous limits are below -margin
    CONFIRMED     every contrast has p_worse at most alpha, is matched in memory and informative
    INCONCLUSIVE  otherwise

    CONFIRMED requires every contrast, so that p needs no correction (Berger 1982); one contrast suffices for
    REFUTED, so that limits are at alpha / m. An unmatched or uninformative contrast does not refute, and prevents
    CONFIRMED.
    """
    margin, alpha = float(decision["margin"]), float(decision["alpha"])
    if any(
        contrast.is_evidence and margin_limits(contrast).high < -margin for contrast in require_contrasts(contrasts)
    ):
        return REFUTED
    is_confirmed = all(contrast.is_evidence and margin_limits(contrast).p_worse <= alpha for contrast in contrasts)
    return CONFIRMED if is_confirmed else INCONCLUSIVE


RULE = margin_rule(
    MarginText(
        differs="is worse",
        differed="was worse",
        wins_verdict=CONFIRMED,
        is_two_sided=False,
        caveat=", and in the other direction none was",
        line="worse by less than",
        meaning=(
            "CONFIRMED requires that every contrast rules out a loss of the registered margin or more, "
            "with matched memory in all. REFUTED: the subject is worse by more than the margin in some "
            "contrast. INCONCLUSIVE: otherwise."
        ),
    ),
    verdict,
    {"not_worse": "non_inferior"},
)
