"""The committed rules: from the contrasts of a family to one word.

CONFIRMED, REFUTED or INCONCLUSIVE; nothing else leaves this module. A contrast whose arms did not hold the
same measured memory says nothing about the policies: it is never won and never lost, and while one is in the
family no rule confirms.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = [
    "CONFIRMED",
    "INCONCLUSIVE",
    "REFUTED",
    "RULES",
    "Cell",
    "Contrast",
    "better",
    "branch",
    "branch_verdict",
    "cells",
    "superior",
    "worse",
]

CONFIRMED, REFUTED, INCONCLUSIVE = "CONFIRMED", "REFUTED", "INCONCLUSIVE"


class Contrast(NamedTuple):
    """Subject minus comparator in one (model, task, budget), by the registered method."""

    model: str
    delta: float
    high: float  # upper end of the simultaneous interval
    p: float
    matched: bool


class Cell(NamedTuple):
    """What the branch rule sees of a contrast. role: "primary" or "transfer", the part its model plays."""

    role: str
    delta: float
    p: float


def better(contrast: Contrast | Cell, level: float) -> bool:
    return contrast.delta > 0 and contrast.p <= level


def worse(contrast: Contrast | Cell, level: float) -> bool:
    return contrast.delta < 0 and contrast.p <= level


def superior(contrasts: Sequence[Contrast], at_least: int, alpha: float) -> str:
    """Is the subject better in at least `at_least` of these m contrasts, and worse in none?

    REFUTED       some contrast is significantly worse at alpha / m, or fewer than `at_least` contrasts have
                  a simultaneous interval that reaches zero: so many wins are no longer possible
    CONFIRMED     at least `at_least` are significantly better at alpha / m, none is significantly worse at
                  the uncorrected alpha, and all are matched in memory
    INCONCLUSIVE  otherwise

    Unmatched contrasts neither refute nor count as won, and any of them rules CONFIRMED out. An interval that
    ends at zero reaches it: with few discordant problems a percentile interval ends there on no evidence.
    """
    level = alpha / len(contrasts)
    lost = any(contrast.matched and worse(contrast, level) for contrast in contrasts)
    possible = sum(contrast.high >= 0 or not contrast.matched for contrast in contrasts)
    if lost or possible < at_least:
        return REFUTED
    won = sum(better(contrast, level) for contrast in contrasts)
    harmless = not any(worse(contrast, alpha) for contrast in contrasts)
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

    A negative cell counts at the level of one cell, as in the branch, and only if it is matched in memory.
    """
    letter = branch(cells(contrasts, primary, transfer), alpha=alpha)
    if letter == "A":
        return CONFIRMED if all(contrast.matched for contrast in contrasts) else INCONCLUSIVE
    decisive = transfer if letter == "B" else primary
    lost = any(
        contrast.model == decisive and contrast.matched and _negative(contrast, alpha)
        for contrast in contrasts
    )
    return REFUTED if lost else INCONCLUSIVE


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


# name in the registration -> rule of the contrasts and the registered decision table
RULES: Mapping[str, Callable[[Sequence[Contrast], Mapping[str, Any]], str]] = MappingProxyType(
    {"superior": _superior, "branch": _branch}
)
