"""The committed rules: from the contrasts of a family to one word.

CONFIRMED, REFUTED or INCONCLUSIVE; nothing else leaves this module. A contrast whose arms did not hold the
same measured memory says nothing about the policies: it is never won and never lost, and while one is in the
family no rule confirms. How often each rule errs is simulated in `benchmarks/validity.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from analysis.stats.equivalence import Margins

__all__ = [
    "CONFIRMED",
    "INCONCLUSIVE",
    "LOSSLESS",
    "REFUTED",
    "RULES",
    "Cell",
    "Contrast",
    "better",
    "branch",
    "branch_verdict",
    "cells",
    "equivalent",
    "harmful",
    "non_inferior",
    "superior",
    "worse",
]

CONFIRMED, REFUTED, INCONCLUSIVE = "CONFIRMED", "REFUTED", "INCONCLUSIVE"
LOSSLESS = ("equivalent", "non_inferior")  # rules with a margin


class Contrast(NamedTuple):
    """Subject minus comparator in one (model, task, budget), by the registered method."""

    model: str
    delta: float
    high: float  # upper end of the simultaneous interval
    p: float  # of this contrast alone
    adjusted: float  # p that holds for the whole family: min(1, m p), or that of max-t
    matched: bool
    margins: Margins | None = None  # at alpha / m, where a margin is registered


class Cell(NamedTuple):
    """What the branch rule sees of a contrast. role: "primary" or "transfer", the part its model plays."""

    role: str
    delta: float
    p: float


def better(contrast: Contrast, alpha: float) -> bool:
    return contrast.delta > 0 and contrast.adjusted <= alpha


def worse(contrast: Contrast, alpha: float) -> bool:
    return contrast.delta < 0 and contrast.adjusted <= alpha


def harmful(contrast: Contrast, alpha: float) -> bool:
    """Worse when it is looked at alone."""
    return contrast.delta < 0 and contrast.p <= alpha


def superior(contrasts: Sequence[Contrast], at_least: int, alpha: float) -> str:
    """Is the subject better in at least `at_least` of these m contrasts ("superior in k cells"), and worse
    in none?

    REFUTED       some contrast is significantly worse, or fewer than `at_least` contrasts have a simultaneous
                  interval that reaches zero: so many wins are no longer possible
    CONFIRMED     at least `at_least` are significantly better, none is significantly worse at the uncorrected
                  alpha, and all are matched in memory
    INCONCLUSIVE  otherwise

    Significant: the p that is adjusted for the family is at most alpha (by Bonferroni, p at most alpha / m).

    Unmatched contrasts neither refute nor count as won, and any of them rules CONFIRMED out. An interval that
    ends at zero reaches it: with few discordant problems a percentile interval ends there on no evidence.
    """
    lost = any(contrast.matched and worse(contrast, alpha) for contrast in contrasts)
    possible = sum(contrast.high >= 0 or not contrast.matched for contrast in contrasts)
    if lost or possible < at_least:
        return REFUTED
    won = sum(better(contrast, alpha) for contrast in contrasts)
    harmless = not any(harmful(contrast, alpha) for contrast in contrasts)
    fair = all(contrast.matched for contrast in contrasts)
    return CONFIRMED if won >= at_least and harmless and fair else INCONCLUSIVE


def branch(cells: Sequence[Cell], *, symmetric: bool = False, alpha: float = 0.05) -> str:
    """Branch "A", "B" or "C", as registered in "Minimal-Intervention KV Retention via Set-Conditioned
    Diversity", section 4.2.

    A  some primary cell has delta > 0 at p < alpha, the mean delta of the transfer cells is positive, and
       no transfer cell is significantly negative
    B  the primary condition holds and a transfer condition fails
    C  no primary cell qualifies

    alpha is the level of one cell. `symmetric` is the stricter guard that the paper reports beside its rule:
    a significantly negative cell on either model rules A out. Raises ValueError without a cell of each role.
    """
    primary = [cell for cell in cells if cell.role == "primary"]
    transfer = [cell for cell in cells if cell.role == "transfer"]
    if not primary or not transfer or len(primary) + len(transfer) < len(cells):
        raise ValueError("cells: roles are primary and transfer; name one model for each and no other")
    if not any(cell.delta > 0 and cell.p < alpha for cell in primary):
        return "C"
    guarded = cells if symmetric else transfer
    harmless = not any(_negative(cell, alpha) for cell in guarded)
    return "A" if sum(cell.delta for cell in transfer) > 0 and harmless else "B"


def branch_verdict(contrasts: Sequence[Contrast], primary: str, transfer: str, alpha: float) -> str:
    """The verdict of a branch, for the models named `primary` and `transfer`.

    branch   and                                        verdict
    A        every contrast matched in memory           CONFIRMED
    B        a significantly negative transfer cell     REFUTED
    C        a significantly negative primary cell      REFUTED
    any      otherwise                                  INCONCLUSIVE

    Such a cell is negative at p < alpha / (contrasts of its model), and matched in memory. The letters are
    the paper's, at the level of one cell; this verdict is ours, and at that level it would come in another
    5 % of studies in which nothing differs (6.6 to 7.8 % decided in all, 4.9 % at the corrected level).
    """
    letter = branch(cells(contrasts, primary, transfer), alpha=alpha)
    if letter == "A":
        return CONFIRMED if all(contrast.matched for contrast in contrasts) else INCONCLUSIVE
    decisive = [one for one in contrasts if one.model == (transfer if letter == "B" else primary)]
    lost = any(one.matched and _negative(one, alpha / len(decisive)) for one in decisive)
    return REFUTED if lost else INCONCLUSIVE


def non_inferior(contrasts: Sequence[Contrast], margin: float, alpha: float) -> str:
    """Is the subject nowhere worse than a comparator by `margin` accuracy points?

    REFUTED       some contrast is worse by more than the margin: its simultaneous limits lie below it
    CONFIRMED     every contrast has p_worse at most alpha, and all are matched in memory
    INCONCLUSIVE  otherwise

    Every contrast has to hold for CONFIRMED, so that its p needs no correction (Berger 1982); one is enough
    for REFUTED, so that limits are those at alpha / m. Unmatched contrasts do not refute.
    """
    if any(one.matched and _limits(one).high < -margin for one in contrasts):
        return REFUTED
    holds = all(one.matched and _limits(one).p_worse <= alpha for one in contrasts)
    return CONFIRMED if holds else INCONCLUSIVE


def equivalent(contrasts: Sequence[Contrast], margin: float, alpha: float) -> str:
    """The same on both sides: does the subject nowhere differ from a comparator by `margin`? Limits above
    the margin refute as well, and p_better has to be at most alpha as well.
    """
    if any(one.matched and _limits(one).low > margin for one in contrasts):
        return REFUTED
    said = non_inferior(contrasts, margin, alpha)
    if said != CONFIRMED or all(_limits(one).p_better <= alpha for one in contrasts):
        return said
    return INCONCLUSIVE


def _limits(contrast: Contrast) -> Margins:
    if contrast.margins is None:
        raise ValueError("contrasts: no limits about a margin; this rule needs decision.margin")
    return contrast.margins


def cells(contrasts: Sequence[Contrast], primary: str, transfer: str) -> list[Cell]:
    """The contrasts with the roles of their models; a third model raises in `branch`."""
    roles = {primary: "primary", transfer: "transfer"}
    return [Cell(roles.get(one.model, one.model), one.delta, one.p) for one in contrasts]


def _negative(contrast: Contrast | Cell, alpha: float) -> bool:
    return contrast.delta < 0 and contrast.p < alpha


def _superior(contrasts: Sequence[Contrast], decision: Mapping[str, Any]) -> str:
    return superior(contrasts, decision["at_least"], float(decision["alpha"]))


def _branch(contrasts: Sequence[Contrast], decision: Mapping[str, Any]) -> str:
    return branch_verdict(
        contrasts, decision["primary_model"], decision["transfer_model"], float(decision["alpha"])
    )


def _equivalent(contrasts: Sequence[Contrast], decision: Mapping[str, Any]) -> str:
    return equivalent(contrasts, float(decision["margin"]), float(decision["alpha"]))


def _non_inferior(contrasts: Sequence[Contrast], decision: Mapping[str, Any]) -> str:
    return non_inferior(contrasts, float(decision["margin"]), float(decision["alpha"]))


# name in the registration -> rule of the contrasts and the registered decision table
RULES: Mapping[str, Callable[[Sequence[Contrast], Mapping[str, Any]], str]] = MappingProxyType(
    {"superior": _superior, "branch": _branch, "equivalent": _equivalent, "non_inferior": _non_inferior}
)
