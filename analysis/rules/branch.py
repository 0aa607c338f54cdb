"""Branch: the three-way rule of "Minimal-Intervention KV Retention via Set-Conditioned Diversity", section
4.2, and a verdict for each of its letters. It tests on one model and checks for harm on another.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from analysis.rules.gates import WON, Family, Gate, Outcome, all_lost, due, lost, ordinary, ungraded, unseen
from analysis.rules.rule import Contrast, Decision, Field, Refusal, Rule, Words, gain, harmed
from analysis.rules.sentences import more_right, significant
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.stats.methods import METHODS

__all__ = ["RULE", "Cell", "cells", "letter"]

FIELDS = (
    Field("primary_model", "model", "The model on which it has to be better.", "chain-qwen2"),
    Field("transfer_model", "model", "The model that it must not harm.", "chain-llama"),
)


class Cell(NamedTuple):
    """The part of a contrast that decides the letter. role: of its model, "primary" or "transfer"."""

    role: str
    delta: Fraction  # exact, so that a mean of zero is zero
    p: float


def letter(cells: Sequence[Cell], *, symmetric: bool = False, alpha: float = 0.05) -> str:
    """Return branch "A", "B" or "C", as the paper registers it.

    A  some primary cell has delta > 0 at p < alpha, the mean delta of the transfer cells is positive, and
       no transfer cell is significantly negative
    B  the primary condition holds and a transfer condition fails
    C  no primary cell qualifies

    alpha is the level of one cell. `symmetric` is the stricter guard that the paper reports as well:
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


def cells(contrasts: Sequence[Contrast], decision: Decision) -> list[Cell]:
    """Return the contrasts with the roles of their models; `branch_letter` refuses a third model. Wins are
    charged for memory, losses are not.
    """
    roles = {decision["primary_model"]: "primary", decision["transfer_model"]: "transfer"}
    return [
        Cell(roles.get(contrast.model, contrast.model), gain(contrast), harmed(contrast))
        for contrast in contrasts
    ]


def verdict(contrasts: Sequence[Contrast], decision: Decision) -> str:
    """Return the verdict of a branch.

    branch   and                                        verdict
    A        no significantly negative primary cell,
             every contrast matched in memory           CONFIRMED
    B        a significantly negative transfer cell     REFUTED
    C        a significantly negative primary cell      REFUTED
    any      otherwise                                  INCONCLUSIVE

    A cell that prevents CONFIRMED is negative at p < alpha, which is the symmetric form of the guard: the
    paper's letter ignores a primary cell that is lost while another is won. A cell that refutes is negative
    at p < alpha / (contrasts of its model), matched in memory, and by more than a shortfall of memory may
    have cost. The letters are the paper's, at the level of one cell; this verdict is ours. At the level of
    one cell a loss would refute another 5 % of studies in which nothing differs (6.6 to 7.8 % decided in all,
    4.9 % at the corrected level).
    """
    alpha = float(decision["alpha"])
    seen = cells(contrasts, decision)
    branch = letter(seen, alpha=alpha)
    if branch == "A":
        harmless = letter(seen, symmetric=True, alpha=alpha) == "A"
        fair = all(contrast.matched for contrast in contrasts)
        return CONFIRMED if harmless and fair else INCONCLUSIVE
    role = "transfer" if branch == "B" else "primary"
    pairs = zip(contrasts, seen, strict=True)
    decisive = [(one, cell._replace(p=one.p)) for one, cell in pairs if cell.role == role]
    losing = any(contrast.matched and _negative(cell, alpha / len(decisive)) for contrast, cell in decisive)
    return REFUTED if losing else INCONCLUSIVE


def _negative(cell: Cell, alpha: float) -> bool:
    return cell.delta < 0 and cell.p < alpha


def refusal(decision: Decision, family: int) -> Refusal | None:
    if METHODS[decision["method"]].family:
        return Refusal(
            "method",
            "max-t is for whole families, and branch takes each contrast at alpha; "
            "name bootstrap, t or sign-flip",
        )
    if decision["primary_model"] == decision["transfer_model"]:
        return Refusal("transfer_model", "name another model than primary_model")
    return None


def gates(family: Family) -> dict[str, Gate]:
    alpha = family.alpha
    primary, transfer = (family.at(family.decision[f"{role}_model"]) for role in ("primary", "transfer"))
    seen = [index for index in primary if family.best(index) < alpha]
    if not seen:
        raise unseen(family, primary, 1, alpha)
    first, other = seen[0], max(transfer, key=lambda index: family.contrasts[index].problems)
    won = {first: family.whole(first), other: family.whole(other)}
    losing = won | all_lost(family, primary)
    found = {
        WON: due(CONFIRMED, won),
        **ordinary(family),
        "no primary contrast is won": due(INCONCLUSIVE, won | {first: Outcome()}),
        "the transfer contrasts show no difference": due(INCONCLUSIVE, won | {other: Outcome()}),
        "the sign of the transfer contrasts is flipped": due(INCONCLUSIVE, won | {other: Outcome(lost=1)}),
        "the primary contrasts are lost": due(REFUTED, losing),
        "the primary contrasts are lost with unmatched caches": due(INCONCLUSIVE, losing, *primary),
        "a primary contrast that is won has unmatched caches": due(INCONCLUSIVE, won, first),
        "a transfer contrast has unmatched caches": due(INCONCLUSIVE, won, other),
        **ungraded(family, won, first),
    }
    if family.best(other) < alpha:
        flipped = won | all_lost(family, [other])
        found["a transfer contrast is lost"] = due(REFUTED, flipped)
        found["a transfer contrast is lost with unmatched caches"] = due(INCONCLUSIVE, flipped, other)
    if just := family.between(first, max(family.corrected, alpha / 8), alpha):
        found["a primary win just reaches alpha"] = due(CONFIRMED, won | {first: just})
    if short := family.between(first, alpha, 4 * alpha):
        found["a primary win falls short of alpha"] = due(INCONCLUSIVE, won | {first: short})
    of_primary, of_transfer = (alpha / len(indices) for indices in (primary, transfer))
    if len(primary) > 1 and (harm := family.between(first, of_primary, alpha)):
        found["a primary loss falls short of the level of a loss"] = due(INCONCLUSIVE, {first: lost(harm)})
    others = [index for index in primary if index != first]
    if others and (harm := family.between(others[-1], alpha / 8, alpha)):
        mixed = won | {others[-1]: lost(harm)}
        found["a primary contrast is lost while another is won"] = due(INCONCLUSIVE, mixed)
    spare = [index for index in transfer if index != other]
    if spare and (loss := family.between(spare[-1], of_transfer / 8, of_transfer)):
        turned = won | {spare[-1]: lost(loss)}
        found["a transfer contrast is lost while another is won by more"] = due(REFUTED, turned)
    return found


def report(contrasts: Sequence[Contrast], decision: Decision) -> dict[str, Any]:
    seen, alpha = cells(contrasts, decision), float(decision["alpha"])
    return {
        "branch": {
            "registered": letter(seen, alpha=alpha),
            "symmetric": letter(seen, symmetric=True, alpha=alpha),
        }
    }


def _hypothesis(decision: Decision, checks: Mapping[str, Any]) -> str:
    return (
        f"Hypothesis (directional): at equal measured memory, {decision['subject']} "
        f"{more_right(decision, checks)} on "
        f"{decision['primary_model']}, and is not harmed on {decision['transfer_model']}."
    )


def _criteria(decision: Decision, checks: Mapping[str, Any]) -> list[str]:
    primary, transfer, alpha = (decision[name] for name in ("primary_model", "transfer_model", "alpha"))
    # Older locks have no error rates of the decision; their rule tests a loss at alpha itself and ignores a
    # loss on the primary model if another contrast is won.
    by_model = "decision_errors" in checks
    loss = "alpha divided by the number of contrasts on that model" if by_model else alpha
    return [
        f"Branch A: some contrast on {primary} favours {decision['subject']} with p below "
        f"{alpha}, the mean difference on {transfer} is positive, and no contrast there "
        f"goes against it with p below {alpha}. Branch B: the first of these holds and "
        "another does not. Branch C: the first does not hold. These p are compared with alpha "
        "itself.",
        "CONFIRMED: branch A, "
        + (f"no contrast on {primary} goes against {decision['subject']} with p below {alpha}, " * by_model)
        + "and in all contrasts both arms held the same memory.",
        f"REFUTED: branch B with a contrast on {transfer}, or branch C with one on {primary}, that "
        f"goes against it with p below {loss}.",
    ]


def _proves(judged: Mapping[str, Any]) -> list[str]:
    registered, symmetric = judged["branch"]["registered"], judged["branch"]["symmetric"]
    said = f"The registered rule gives branch {registered}, its symmetric form branch {symmetric}."
    return [*significant(judged), said]


def _line(judged: Mapping[str, Any]) -> str:
    return f"branch table over {judged['family']} contrasts of {judged['contrasts'][0]['subject']}"


def _letters(judged: Mapping[str, Any]) -> tuple[str, ...]:
    given = judged["branch"]
    return (f"branch {given['registered']}", f"symmetric {given['symmetric']}") if given else ()


MEANING = (
    "Each contrast is tested at the uncorrected level for the branch. Branch A: some contrast on the "
    "primary model is significantly better, the mean difference on the transfer model is positive and "
    "none there is significantly worse. Branch B: the primary condition holds and a transfer condition "
    "fails. Branch C: no contrast on the primary model qualifies. The symmetric form also rules A out for "
    "a significantly worse contrast on the primary model. CONFIRMED: branch A with matched memory, in "
    "both forms where the locked rule asks for both. REFUTED: branch B with a significantly worse "
    "contrast on the transfer model, or branch C with one on the primary model, at the level of the "
    "locked rule. INCONCLUSIVE: otherwise."
)
WORDS = Words(_hypothesis, _criteria, _proves, MEANING, _line, letters=_letters)
RULE = Rule(FIELDS, refusal, verdict, gates, WORDS, report)
