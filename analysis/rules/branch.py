"""Branch: the three-way rule of "Minimal-Intervention KV Retention via Set-Conditioned Diversity", section
4.2, and a verdict for each of its letters. It tests on one model and checks for harm on another.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple

from analysis.rules.judged_numbers import format_level
from analysis.rules.rule import Contrast, Decision, Field, PartialNull, Refusal, Rule, RuleText, charged_gain, harm_p
from analysis.rules.self_test_cases import (
    WON,
    Case,
    Outcome,
    PlannedContrast,
    PlannedFamily,
    as_loss,
    cannot_confirm,
    lose_all,
    make_case,
    standard_cases,
    ungraded_cases,
)
from analysis.rules.sentences import (
    Row,
    accuracy_clause,
    difference_of,
    format_comparator,
    format_contrast,
    significance_sentences,
    uninformative_rows,
)
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.stats.methods import METHODS

FIELDS = (
    Field("primary_model", "model", "The model on which the subject must be better.", "chain-qwen2"),
    Field(
        "transfer_model",
        "model",
        "The guard model: on it the subject must be better on average, and significantly worse in no contrast.",
        "chain-llama",
    ),
)


class RoleCell(NamedTuple):
    """The part of a contrast that decides the letter. role: of its model, "primary" or "transfer"."""

    role: str
    delta: Fraction  # exact, so that a mean of zero is zero
    p: float


def branch_letter(cells: Sequence[RoleCell], *, symmetric: bool = False, alpha: float = 0.05) -> str:
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
        raise ValueError("cells: the roles are primary and transfer; name exactly one model for each")
    if not any(cell.delta > 0 and cell.p < alpha for cell in primary):
        return "C"
    guarded = cells if symmetric else transfer
    is_harmless = not any(_is_negative(cell, alpha) for cell in guarded)
    return "A" if sum(cell.delta for cell in transfer) > 0 and is_harmless else "B"


def role_cells(contrasts: Sequence[Contrast], decision: Decision) -> list[RoleCell]:
    """Return the contrasts that count, with the roles of their models; `branch_letter` refuses a third model. Wins
    are charged for memory, losses are not.
    """
    roles = {decision["primary_model"]: "primary", decision["transfer_model"]: "transfer"}
    return [
        RoleCell(roles.get(contrast.model, contrast.model), charged_gain(contrast), harm_p(contrast))
        for contrast in contrasts
        if contrast.counts
    ]


def _lacks_a_role(contrasts: Sequence[Contrast], informative_cells: Sequence[RoleCell]) -> bool:
    """Return whether uninformative contrasts were left out, and none of the primary or the transfer model is left."""
    is_left = {"primary", "transfer"} <= {cell.role for cell in informative_cells}
    return len(informative_cells) < len(contrasts) and not is_left


def verdict(contrasts: Sequence[Contrast], decision: Decision) -> str:
    """Return the verdict that results whether uninformative cells were won or lost; INCONCLUSIVE if it depends on that.

    So a study with such a cell is never CONFIRMED, and REFUTED only if no result there could have prevented it.
    """
    verdicts = {_corrected_verdict(completed, decision) for completed in _completions(contrasts, decision)}
    return verdicts.pop() if len(verdicts) == 1 else INCONCLUSIVE


def _completions(contrasts: Sequence[Contrast], decision: Decision) -> list[list[Contrast]]:
    """Return the contrasts with the uninformative ones of each model as all won and as all lost; only `contrasts` if
    all are informative.
    """
    open_models = {contrast.model for contrast in contrasts if not contrast.informative}
    completions = []
    for signs in itertools.product((1, -1), repeat=len(open_models)):
        sign_of = dict(zip(sorted(open_models), signs, strict=True))
        completions.append(
            [
                contrast
                if contrast.informative
                else contrast._replace(
                    net=sign_of[contrast.model] * contrast.lanes, p=0.0, uncharged_p=None, charge=0.0, informative=True
                )
                for contrast in contrasts
            ]
        )
    return completions


def _corrected_verdict(contrasts: Sequence[Contrast], decision: Decision) -> str:
    """Return `shipped_verdict`, with CONFIRMED only if some primary cell is won at p < alpha / (primary cells).

    At the level of one cell CONFIRMED would be wrong in 4 to 14 % of studies with 2 to 8 cells a model if the subject
    is better on the transfer model alone, whose mean is then positive for sure. Divided by the cells of the primary
    model it is wrong in at most alpha / 2, whatever is true of the transfer model.
    """
    shipped = shipped_verdict(contrasts, decision)
    if shipped != CONFIRMED:
        return shipped
    level = float(decision["alpha"]) / sum(contrast.model == decision["primary_model"] for contrast in contrasts)
    primary = [cell for cell in role_cells(contrasts, decision) if cell.role == "primary"]
    return CONFIRMED if any(cell.delta > 0 and cell.p < level for cell in primary) else INCONCLUSIVE


def shipped_verdict(contrasts: Sequence[Contrast], decision: Decision) -> str:
    """Return the verdict of a branch as it was before the correction of its wins.

    branch   and                                        verdict
    A        no significantly negative primary cell,
             every contrast matched in memory           CONFIRMED
    B        a significantly negative transfer cell     REFUTED
    C        a significantly negative primary cell      REFUTED
    any      otherwise                                  INCONCLUSIVE

    A cell that prevents CONFIRMED is negative at p < alpha, which is the symmetric form of the guard: the
    paper's letter ignores a primary cell that is lost while another is won. A cell that refutes is negative
    at p < alpha / (contrasts of its model), matched in memory, and by more than a shortfall of memory may
    have cost. An uninformative cell is left out, and without one of each role nothing is decided. The letters are
    the paper's, at the level of one cell; this verdict is ours. At the level of
    one cell a loss would refute another 5 % of studies in which nothing differs (6.6 to 7.8 % decided in all,
    4.9 % at the corrected level).
    """
    alpha, counted = float(decision["alpha"]), [contrast for contrast in contrasts if contrast.counts]
    model_cells = role_cells(contrasts, decision)
    if _lacks_a_role(contrasts, model_cells):
        return INCONCLUSIVE
    branch = branch_letter(model_cells, alpha=alpha)
    if branch == "A":
        is_harmless = branch_letter(model_cells, symmetric=True, alpha=alpha) == "A"
        is_matched = all(contrast.matched for contrast in counted)
        return CONFIRMED if is_harmless and is_matched else INCONCLUSIVE
    role = "transfer" if branch == "B" else "primary"
    level = alpha / sum(contrast.model == decision[f"{role}_model"] for contrast in contrasts)
    pairs = zip(counted, model_cells, strict=True)
    decisive = [(member, cell._replace(p=member.p)) for member, cell in pairs if cell.role == role]
    is_losing = any(contrast.matched and _is_negative(cell, level) for contrast, cell in decisive)
    return REFUTED if is_losing else INCONCLUSIVE


def partial_nulls(planned: Sequence[PlannedContrast], decision: Decision) -> list[PartialNull]:
    """Return the nulls in which the subject is better on one model alone."""
    won = {
        role: frozenset(index for index, contrast in enumerate(planned) if contrast.model == decision[f"{role}_model"])
        for role in ("primary", "transfer")
    }
    return [
        PartialNull("the subject is better on the transfer model", won["transfer"], (CONFIRMED, REFUTED)),
        PartialNull("the subject is better on the primary model", won["primary"], (REFUTED,)),
    ]


def _is_negative(cell: RoleCell, alpha: float) -> bool:
    return cell.delta < 0 and cell.p < alpha


def refusal(decision: Decision, family: int) -> Refusal | None:
    if METHODS[decision["method"]].family:
        return Refusal(
            "method",
            "max-t tests a whole family at once, but branch tests each contrast at alpha; name bootstrap, "
            "t or sign-flip",
        )
    if decision["primary_model"] == decision["transfer_model"]:
        return Refusal("transfer_model", "name a different model than primary_model")
    return None


def self_test_cases(family: PlannedFamily) -> dict[str, Case]:
    alpha = family.alpha
    primary, transfer = (family.model_indices(family.decision[f"{role}_model"]) for role in ("primary", "transfer"))
    win_level = alpha if family.judging == 1 else alpha / len(primary)
    winnable = [index for index in primary if family.smallest_p(index) < win_level]
    if not winnable:
        raise cannot_confirm(family, primary, 1, win_level)
    primary_index, transfer_index = winnable[0], max(transfer, key=lambda index: family.contrasts[index].problems)
    wins = {primary_index: family.largest_win(primary_index), transfer_index: family.largest_win(transfer_index)}
    losing = wins | lose_all(family, primary)
    cases = {
        WON: make_case(CONFIRMED, wins),
        **standard_cases(family),
        "no primary contrast is won": make_case(INCONCLUSIVE, wins | {primary_index: Outcome()}),
        "the transfer contrasts show no difference": make_case(INCONCLUSIVE, wins | {transfer_index: Outcome()}),
        "the sign of the transfer contrasts is flipped": make_case(
            INCONCLUSIVE, wins | {transfer_index: Outcome(lost=1)}
        ),
        "the primary contrasts are lost": make_case(REFUTED, losing),
        "the primary contrasts are lost with unmatched caches": make_case(INCONCLUSIVE, losing, *primary),
        "a primary contrast that is won has unmatched caches": make_case(INCONCLUSIVE, wins, primary_index),
        "a transfer contrast has unmatched caches": make_case(INCONCLUSIVE, wins, transfer_index),
        **ungraded_cases(family, wins, primary_index),
    }
    if family.smallest_p(transfer_index) < alpha:
        flipped = wins | lose_all(family, [transfer_index])
        cases["a transfer contrast is lost"] = make_case(REFUTED, flipped)
        cases["a transfer contrast is lost with unmatched caches"] = make_case(INCONCLUSIVE, flipped, transfer_index)
    if narrow_win := family.win_between(primary_index, max(family.corrected, win_level / 8), win_level):
        cases["a primary win just reaches its level"] = make_case(CONFIRMED, wins | {primary_index: narrow_win})
    if short_win := family.win_between(primary_index, win_level, alpha if win_level < alpha else 4 * alpha):
        cases["a primary win falls short of its level"] = make_case(INCONCLUSIVE, wins | {primary_index: short_win})
    primary_level, transfer_level = (alpha / len(indices) for indices in (primary, transfer))
    if len(primary) > 1 and (harm := family.win_between(primary_index, primary_level, alpha)):
        cases["a primary loss falls short of the level of a loss"] = make_case(
            INCONCLUSIVE, {primary_index: as_loss(harm)}
        )
    others = [index for index in primary if index != primary_index]
    if others and (harm := family.win_between(others[-1], alpha / 8, alpha)):
        mixed = wins | {others[-1]: as_loss(harm)}
        cases["a primary contrast is lost while another is won"] = make_case(INCONCLUSIVE, mixed)
    spare = [index for index in transfer if index != transfer_index]
    if spare and (loss := family.win_between(spare[-1], transfer_level / 8, transfer_level)):
        mixed_transfer = wins | {spare[-1]: as_loss(loss)}
        cases["a transfer contrast is lost while another is won by more"] = make_case(REFUTED, mixed_transfer)
    return cases


def report(contrasts: Sequence[Contrast], decision: Decision, judging: int) -> dict[str, Any]:
    """Return both letters. A letter that a result in an uninformative cell could change is none; before judging 3 such
    cells were left out.
    """
    letters, alpha = [], float(decision["alpha"])
    for completed in _completions(contrasts, decision) if judging > 2 else [contrasts]:
        model_cells = role_cells(completed, decision)
        if _lacks_a_role(completed, model_cells):
            return {}
        letters.append([branch_letter(model_cells, symmetric=form, alpha=alpha) for form in (False, True)])
    is_known = all(pair == letters[0] for pair in letters)
    return {"branch": dict(zip(("registered", "symmetric"), letters[0], strict=True))} if is_known else {}


def _hypothesis(decision: Decision, checks: Mapping[str, Any]) -> str:
    return (
        f"Hypothesis (directional): at equal measured memory, {decision['subject']} "
        f"{accuracy_clause(decision, checks)} on "
        f"{decision['primary_model']}; on {decision['transfer_model']} it is better on average and significantly worse "
        "in no contrast."
    )


def _criteria(decision: Decision, checks: Mapping[str, Any]) -> list[str]:
    primary, transfer, alpha = (decision[name] for name in ("primary_model", "transfer_model", "alpha"))
    # Older locks have no error rates of the decision; their rule tests a loss at alpha itself and ignores a
    # loss on the primary model if another contrast is won.
    has_model_level = checks.get("decision_errors") is not None
    level = "alpha divided by the number of contrasts on that model"
    loss = level if has_model_level else alpha
    is_corrected = checks.get("judging", 1) > 1
    return [
        f"Branch A: some contrast on {primary} favours {decision['subject']} with p below "
        f"{alpha}, the mean difference on {transfer} is positive, and no contrast there "
        f"goes against it with p below {alpha}. Branch B: the first of these holds and "
        "another does not. Branch C: the first does not hold. These p are compared with alpha "
        "itself.",
        "CONFIRMED: branch A, "
        + (f"some contrast on {primary} favours {decision['subject']} with p below {level}, " * is_corrected)
        + (f"no contrast on {primary} goes against {decision['subject']} with p below {alpha}, " * has_model_level)
        + "and memory is matched in all contrasts.",
        f"REFUTED: branch B with a contrast on {transfer}, or branch C with one on {primary}, that "
        f"goes against it with p below {loss}.",
    ]


def _proves(judged: Mapping[str, Any]) -> list[str]:
    if judged["branch"] is None:
        return significance_sentences(judged)
    registered, symmetric = judged["branch"]["registered"], judged["branch"]["symmetric"]
    sentence = f"The registered rule gives branch {registered}, its symmetric form branch {symmetric}."
    return [*significance_sentences(judged), sentence]


def _line(judged: Mapping[str, Any]) -> str:
    return f"branch table over {judged['family']} contrasts of {judged['contrasts'][0]['subject']}"


def _letters(judged: Mapping[str, Any]) -> tuple[str, ...]:
    letters = judged["branch"]
    return (f"branch {letters['registered']}", f"symmetric {letters['symmetric']}") if letters else ()


def _answer(judged: Row, rule_verdict: str, decision: Decision) -> str:
    """Return the answer of the rule `branch`. `primary` and `transfer` are all contrasts and none if the
    models are not named.
    """
    subject, branch = judged["contrasts"][0]["subject"], judged["branch"]
    names = {role: decision.get(f"{role}_model") for role in ("primary", "transfer")}
    first, second = (names[role] or f"its {role} model" for role in names)
    informative = [
        contrast for contrast in judged["contrasts"] if contrast not in uninformative_rows(judged["contrasts"])
    ]
    primary, transfer = ([contrast for contrast in informative if contrast["model"] == name] for name in names.values())
    level = float(judged["alpha"])
    if branch is None:  # whatever the uninformative cells were, a loss on the transfer model refutes
        lowest = _format_extreme(judged, _refuting_rows(transfer, level), min)
        return f"the branch is not known, and {subject} was worse on {second}{lowest}"
    letter = branch["registered"]
    alpha = f"p below {format_level(judged['alpha'])}"
    best = _format_extreme(judged, _winning_rows(primary, level), max)
    won = f"{subject} was better{format_comparator(judged)} on {first}{best}"
    if letter == "C":
        finding = f"branch C, no contrast on {first} favours {subject}{format_comparator(judged, 'over')} with {alpha}"
        if rule_verdict == REFUTED:
            return f"{finding}, and one goes against it{_format_extreme(judged, _refuting_rows(primary, level), min)}"
        highest = (
            f"; the highest is {format_contrast(judged, max(primary, key=difference_of), 'model')}" if primary else ""
        )
        top = max(informative, key=difference_of)
        transfer_note = ""
        if top in transfer and float(top["p"]) < float(judged["alpha"]):
            transfer_note = (
                f". The largest difference of all, {format_contrast(judged, top)}, is on the transfer "
                "model, where a win does not count"
            )
        return f"{finding}{highest}{transfer_note}"
    if letter == "B":
        if rule_verdict == REFUTED:
            return (
                f"branch B, {won}, but worse on {second}{_format_extreme(judged, _refuting_rows(transfer, level), min)}"
            )
        return f"branch B, {won}, but on {second} its mean is not above zero, or a contrast goes against it"
    if rule_verdict == CONFIRMED:
        return f"branch A, {won}; on {second} better on average and significantly worse in no contrast"
    if branch["symmetric"] != "A":
        lost = [contrast for contrast in primary if difference_of(contrast) < 0 and float(contrast["p"]) < level]
        return f"branch A, {won}, but another contrast there goes against it{_format_extreme(judged, lost, min)}"
    if not all(contrast["matched"] for contrast in judged["contrasts"]):
        return f"branch A, {won}, but memory that is not matched rules out a confirmation"
    return (
        f"branch A, {won}, but no p there is below {level / len(primary):.2g}, the level for {len(primary)} contrasts"
    )


def _winning_rows(rows: Sequence[Row], level: float) -> Sequence[Row]:
    """Return the rows that make a branch; the largest difference of all need not be among them."""
    won = [row for row in rows if difference_of(row) > 0 and float(row["p"]) < level]
    return [row for row in won if row["matched"]] or won


def _refuting_rows(rows: Sequence[Row], level: float) -> Sequence[Row]:
    """Return the rows that refute a branch, at the level of older locks if none does at the current one."""
    lost = [row for row in rows if row["matched"] and difference_of(row) < 0 and float(row["p"]) < level]
    return [row for row in lost if float(row["p"]) < level / len(rows)] or lost


def _decisive_losses(rows: Sequence[Row], decision: Decision) -> list[Row]:
    """Return the cells that refute: of the transfer model if a primary cell is won or none is lost, else of the primary
    one.
    """
    alpha = float(decision["alpha"])
    counted = [row for row in rows if "repeats" not in row and row not in uninformative_rows(rows)]
    primary, transfer = (
        [row for row in counted if row["model"] == decision[f"{role}_model"]] for role in ("primary", "transfer")
    )
    is_won = any(difference_of(row) > 0 and float(row["p"]) < alpha for row in primary)
    lost = [] if is_won else _refuting_rows(primary, alpha)
    return list(lost or _refuting_rows(transfer, alpha))


def _format_extreme(judged: Row, rows: Sequence[Row], end: Callable[..., Row]) -> str:
    return f", {format_contrast(judged, end(rows, key=difference_of), 'model')}" if rows else ""


MEANING = (
    "For the branch, each contrast is tested at the uncorrected level. Branch A: some contrast on the "
    "primary model is significantly better, the mean difference on the transfer model is positive, and "
    "no contrast on it is significantly worse. Branch B: the primary condition is met and a transfer "
    "condition fails. Branch C: no contrast on the primary model qualifies. The symmetric form also "
    "rules A out for a significantly worse contrast on the primary model. CONFIRMED: branch A with "
    "matched memory, in both forms if the locked rule requires both. REFUTED: branch B with a "
    "significantly worse contrast on the transfer model, or branch C with one on the primary model, at "
    "the level of the locked rule. INCONCLUSIVE: otherwise."
)
TEXT = RuleText(_hypothesis, _criteria, _proves, _answer, MEANING, _line, letters=_letters, unmatched="")
RULE = Rule(
    FIELDS,
    refusal,
    verdict,
    self_test_cases,
    TEXT,
    report,
    has_cell_levels=True,
    refuting_rows=_decisive_losses,
    earlier_verdicts=MappingProxyType({1: shipped_verdict, 2: _corrected_verdict}),
    partial_nulls=partial_nulls,
)
