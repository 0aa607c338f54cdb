from fractions import Fraction

import pytest
from looped import looped

from analysis.rules import RULES
from analysis.rules.branch import RoleCell, role_cells
from analysis.rules.branch import branch_letter as branch
from analysis.rules.rule import Contrast
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.stats.comparison import Margins

ALPHA = {"alpha": "0.05"}
MODELS = {"primary_model": "qwen", "transfer_model": "llama"}


def superior(contrasts: list[Contrast], at_least: int) -> str:
    return RULES["superior"].verdict(contrasts, ALPHA | {"at_least": at_least})


def branch_verdict(contrasts: list[Contrast]) -> str:
    return RULES["branch"].verdict(contrasts, ALPHA | MODELS)


def about_a_margin(rule: str, contrasts: list[Contrast]) -> str:
    return RULES[rule].verdict(contrasts, ALPHA | {"margin": "0.05"})


def cell(role: str, delta: str, p: float) -> RoleCell:
    return RoleCell(role, Fraction(delta), p)


# "Minimal-Intervention KV Retention via Set-Conditioned Diversity", Table 2.
QWEN_64 = cell("primary", "0.0156", 0.20)
QWEN_128 = cell("primary", "0.0479", 0.0022)
LLAMA_64 = cell("transfer", "0.0223", 0.0054)
LLAMA_128 = cell("transfer", "-0.0022", 0.86)
TABLE_2 = [QWEN_64, QWEN_128, LLAMA_64, LLAMA_128]


def flipped(old: RoleCell, new: RoleCell) -> list[RoleCell]:
    return [new if cell is old else cell for cell in TABLE_2]


def of(
    model: str,
    delta: float,
    p: float,
    *,
    matched: bool = True,
    high: float | None = None,
    adjusted: float | None = None,
) -> Contrast:
    """1,000 lanes. adjusted: four times p (Bonferroni in a family of four) unless it is given."""
    return Contrast(
        model=model,
        task="task",
        budget="64",
        subject="own",
        against="other",
        delta=delta,
        high=delta + 0.05 if high is None else high,
        p=p,
        adjusted=min(1.0, 4 * p) if adjusted is None else adjusted,
        matched=matched,
        net=round(1000 * delta),
        lanes=1000,
    )


# ---------------------------------------------------------------- branch


def test_the_papers_table_gives_branch_a_in_both_forms():
    assert branch(TABLE_2) == branch(TABLE_2, symmetric=True) == "A"


@looped(
    ("changed", "letter", "symmetric"),
    [
        # the only qualifying primary cell
        (flipped(QWEN_128, cell("primary", "0.0479", 0.20)), "C", "C"),
        (flipped(QWEN_128, cell("primary", "-0.0479", 0.0022)), "C", "C"),
        (flipped(QWEN_128, cell("primary", "0.0479", 0.05)), "C", "C"),
        (flipped(QWEN_128, cell("primary", "0.0479", 0.049)), "A", "A"),
        # the mean of the transfer cells
        (flipped(LLAMA_64, cell("transfer", "0.0021", 0.80)), "B", "B"),
        (flipped(LLAMA_64, cell("transfer", "0.0022", 0.80)), "B", "B"),
        (flipped(LLAMA_64, cell("transfer", "0.0023", 0.80)), "A", "A"),
        # a transfer cell significantly negative while the mean stays positive
        (flipped(LLAMA_128, cell("transfer", "-0.0200", 0.04)), "B", "B"),
        (flipped(LLAMA_128, cell("transfer", "-0.0200", 0.06)), "A", "A"),
        # a primary cell significantly negative: the registered guard does not look there
        (flipped(QWEN_64, cell("primary", "-0.0156", 0.04)), "A", "B"),
        (flipped(QWEN_64, cell("primary", "-0.0156", 0.06)), "A", "A"),
    ],
)
def test_flips_of_single_cells_change_the_branch_as_registered(changed, letter, symmetric):
    assert branch(changed) == letter
    assert branch(changed, symmetric=True) == symmetric


def test_the_level_of_one_cell_is_the_registered_alpha():
    assert branch(TABLE_2, alpha=0.001) == "C"


@looped("some", [[QWEN_64], [LLAMA_64], [], [*TABLE_2, cell("third", "0.1", 0.01)]])
def test_a_branch_needs_both_roles_and_no_third(some):
    with pytest.raises(ValueError, match="primary and transfer"):
        branch(some)


def test_contrasts_take_the_roles_of_their_models():
    contrasts = [of("qwen", 0.1, 0.01), of("llama", 0.2, 0.02)]
    assert role_cells(contrasts, MODELS) == [cell("primary", "0.1", 0.01), cell("transfer", "0.2", 0.02)]
    with pytest.raises(ValueError, match="primary and transfer"):
        branch(role_cells([*contrasts, of("gemma", 0.1, 0.5)], MODELS))


WON, FLAT, LOST = (0.05, 0.001), (0.001, 0.9), (-0.05, 0.001)


@looped(
    ("qwen", "llama", "unmatched", "letter", "verdict"),
    [
        (WON, WON, None, "A", CONFIRMED),
        (WON, WON, "qwen", "A", INCONCLUSIVE),
        (WON, WON, "llama", "A", INCONCLUSIVE),
        (WON, (-0.001, 0.9), None, "B", INCONCLUSIVE),
        (WON, LOST, None, "B", REFUTED),
        (WON, LOST, "llama", "B", INCONCLUSIVE),
        (WON, LOST, "qwen", "B", REFUTED),
        (FLAT, WON, None, "C", INCONCLUSIVE),
        (FLAT, LOST, None, "C", INCONCLUSIVE),
        (LOST, WON, None, "C", REFUTED),
        (LOST, WON, "qwen", "C", INCONCLUSIVE),
    ],
)
def test_the_verdict_of_a_branch(qwen, llama, unmatched, letter, verdict):
    contrasts = [of(name, *one, matched=name != unmatched) for name, one in (("qwen", qwen), ("llama", llama))]
    assert branch(role_cells(contrasts, MODELS)) == letter
    assert branch_verdict(contrasts) == verdict


@looped(
    ("other", "symmetric", "verdict"),
    [
        ((-0.418, 0.0001), "B", INCONCLUSIVE),  # far beyond the corrected level
        ((-0.418, 0.049), "B", INCONCLUSIVE),
        ((-0.418, 0.05), "A", CONFIRMED),
        ((0.418, 0.0001), "A", CONFIRMED),
    ],
)
def test_a_primary_contrast_that_is_lost_keeps_branch_a_from_confirming(other, symmetric, verdict):
    contrasts = [of("qwen", 0.087, 0.0001), of("qwen", *other), of("llama", 0.05, 0.001)]
    assert branch(role_cells(contrasts, MODELS)) == "A"
    assert branch(role_cells(contrasts, MODELS), symmetric=True) == symmetric
    for order in (contrasts, contrasts[::-1]):
        assert branch_verdict(order) == verdict


@looped(
    ("qwen", "llama", "void", "letter", "verdict"),
    [
        (WON, WON, "qwen", None, INCONCLUSIVE),  # a loss there would rule A out in the symmetric form
        (WON, WON, "llama", None, INCONCLUSIVE),  # so would one here
        (WON, LOST, "qwen", "B", REFUTED),  # a primary win and a transfer loss, whatever else
        (WON, LOST, "llama", "B", REFUTED),
        (LOST, WON, "llama", "C", REFUTED),
        (LOST, WON, "qwen", None, INCONCLUSIVE),  # a win there would make it no C
        (FLAT, WON, "qwen", None, INCONCLUSIVE),
    ],
)
@looped("seen", [WON, FLAT, LOST])
def test_a_letter_stands_only_where_no_uninformative_cell_could_change_it(qwen, llama, void, letter, verdict, seen):
    contrasts = [of("qwen", *qwen), of("llama", *llama), of(void, *seen)._replace(informative=False)]
    assert branch_verdict(contrasts) == verdict
    found = RULES["branch"].report(contrasts, ALPHA | MODELS, 3)
    assert found == ({"branch": {"registered": letter, "symmetric": letter}} if letter else {})


def test_a_transfer_mean_of_zero_lanes_is_not_positive_whatever_its_rounded_means():
    # Three lanes won and three lost of 861, whose means as binary numbers sum to more than nothing.
    up, down = 3 / 861, -(1 / 861 + 2 / 861)
    contrasts = [
        of("qwen", 0.1, 0.001),
        *(
            of("llama", delta, 0.9)._replace(delta=delta + 1e-18, net=net, lanes=861)
            for delta, net in ((up, 3), (down, -3))
        ),
    ]
    assert branch(role_cells(contrasts, MODELS)) == "B"
    assert branch_verdict(contrasts) == INCONCLUSIVE
    contrasts[-1] = contrasts[-1]._replace(net=-2)
    assert branch(role_cells(contrasts, MODELS)) == "A"


@looped("rule", RULES)
def test_an_empty_family_has_no_verdict_and_no_report(rule):
    decision = ALPHA | MODELS | {"at_least": 0, "margin": "0.05", "subject": "own", "others": []}
    with pytest.raises(ValueError, match=r"contrasts|cells"):
        RULES[rule].verdict([], decision)
    if rule == "branch":
        with pytest.raises(ValueError, match="primary and transfer"):
            RULES[rule].report([], decision, 3)


# ---------------------------------------------------------------- superior: four contrasts, level 0.0125


BETTER, NOT_YET, EVEN = of("m", 0.1, 0.0125), of("m", 0.1, 0.0126), of("m", 0.0, 1.0)
HARM, HARM_UNCORRECTED, NO_HARM = (of("m", -0.1, p, high=0.01) for p in (0.0125, 0.05, 0.051))
BELOW_ZERO, TO_ZERO = (of("m", -0.1, 0.06, high=high) for high in (-0.0001, 0.0))
UNMATCHED_BETTER, UNMATCHED_HARM = (one._replace(matched=False) for one in (BETTER, HARM))
UNMATCHED_EVEN, UNMATCHED_BELOW = (one._replace(matched=False) for one in (EVEN, BELOW_ZERO))


@looped(
    ("four", "verdict"),
    [
        ([BETTER, BETTER, EVEN, EVEN], CONFIRMED),
        ([BETTER, NOT_YET, EVEN, EVEN], INCONCLUSIVE),
        ([BETTER, EVEN, EVEN, EVEN], INCONCLUSIVE),
        # a loss at the corrected level refutes; one at the uncorrected level only denies
        ([BETTER, BETTER, BETTER, HARM], REFUTED),
        ([BETTER, BETTER, BETTER, HARM_UNCORRECTED], INCONCLUSIVE),
        ([BETTER, BETTER, BETTER, NO_HARM], CONFIRMED),
        # two wins are impossible once three intervals end below zero; one that ends at zero reaches it
        ([EVEN, BELOW_ZERO, BELOW_ZERO, BELOW_ZERO], REFUTED),
        ([EVEN, EVEN, BELOW_ZERO, BELOW_ZERO], INCONCLUSIVE),
        ([EVEN, TO_ZERO, BELOW_ZERO, BELOW_ZERO], INCONCLUSIVE),
        # an unmatched contrast is never won, never lost, never excluded, and rules CONFIRMED out
        ([BETTER, BETTER, BETTER, UNMATCHED_EVEN], INCONCLUSIVE),
        ([BETTER, UNMATCHED_BETTER, EVEN, EVEN], INCONCLUSIVE),
        ([EVEN, EVEN, EVEN, UNMATCHED_HARM], INCONCLUSIVE),
        ([EVEN, UNMATCHED_BELOW, BELOW_ZERO, BELOW_ZERO], INCONCLUSIVE),
    ],
)
def test_the_verdict_table_of_superior(four, verdict):
    for order in (four, four[::-1]):
        assert superior(order, 2) == verdict


def test_a_significant_zero_is_neither_better_nor_worse():
    nothing = of("m", 0.0, 0.0)
    assert superior([nothing] * 4, 1) == INCONCLUSIVE


@pytest.mark.parametrize(("alone", "adjusted", "verdict"), [(0.04, 0.05, REFUTED), (0.04, 0.051, INCONCLUSIVE)])
def test_wins_and_losses_are_told_by_the_adjusted_p_and_harm_by_p_alone(alone, adjusted, verdict):
    won = of("m", 0.1, alone, adjusted=adjusted)
    lost = of("m", -0.1, alone, adjusted=adjusted, high=0.1)
    assert superior([won, EVEN], 1) == (CONFIRMED if adjusted <= 0.05 else INCONCLUSIVE)
    assert superior([BETTER, EVEN, lost], 1) == verdict


@looped(
    ("p", "others", "verdict"),
    [(0.04, 0, REFUTED), (0.026, 1, INCONCLUSIVE), (0.024, 1, REFUTED), (0.024, 2, INCONCLUSIVE)],
)
@looped("decisive", ["qwen", "llama"])
def test_a_branch_is_refuted_at_alpha_divided_by_the_contrasts_of_the_deciding_model(decisive, p, others, verdict):
    rest = [of(decisive, 0.001, 0.9)] * others + ([of("qwen", 0.1, 0.001)] if decisive == "llama" else [])
    contrasts = [of(decisive, -0.1, p), *rest, *[of("llama", -0.01, 0.9)] * 3]
    if decisive == "llama":
        contrasts = contrasts[:-3]
    assert branch(role_cells(contrasts, MODELS)) == ("B" if decisive == "llama" else "C")
    assert branch_verdict(contrasts) == verdict


# ---------------------------------------------------------------- a margin of five points


def about(low: float, high: float, worse: float, better: float, *, matched: bool = True) -> Contrast:
    return of("m", 0.0, 1.0, matched=matched)._replace(margins=Margins(0.0, low, high, worse, better))


INSIDE, ABOVE, OPEN, BELOW = (
    about(-0.01, 0.01, 0.05, 0.05),
    about(0.051, 0.09, 0.0001, 0.99),
    about(-0.07, 0.02, 0.051, 0.01),
    about(-0.12, -0.051, 0.999, 0.0001),
)
TOO_GOOD = about(-0.01, 0.06, 0.001, 0.051)
UNFAIR, UNFAIR_BELOW, UNFAIR_ABOVE = (one._replace(matched=False) for one in (INSIDE, BELOW, ABOVE))


@looped(
    ("family", "both_sides", "one_side"),
    [
        ([INSIDE], CONFIRMED, CONFIRMED),
        ([INSIDE, INSIDE], CONFIRMED, CONFIRMED),
        ([INSIDE, OPEN], INCONCLUSIVE, INCONCLUSIVE),
        ([INSIDE, TOO_GOOD], INCONCLUSIVE, CONFIRMED),
        ([INSIDE, ABOVE], REFUTED, CONFIRMED),
        ([INSIDE, BELOW], REFUTED, REFUTED),
        ([OPEN, BELOW], REFUTED, REFUTED),
        ([INSIDE, UNFAIR], INCONCLUSIVE, INCONCLUSIVE),
        ([INSIDE, UNFAIR_BELOW], INCONCLUSIVE, INCONCLUSIVE),
        ([INSIDE, UNFAIR_ABOVE], INCONCLUSIVE, INCONCLUSIVE),
        ([BELOW, UNFAIR], REFUTED, REFUTED),
    ],
)
def test_every_contrast_must_hold_and_one_beyond_the_margin_refutes(family, both_sides, one_side):
    for order in (family, family[::-1]):
        assert about_a_margin("equivalent", order) == both_sides
        assert about_a_margin("non_inferior", order) == one_side


def test_a_rule_with_a_margin_needs_limits_about_it():
    with pytest.raises(ValueError, match=r"decision\.margin"):
        about_a_margin("non_inferior", [EVEN])
