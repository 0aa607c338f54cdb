"""Checks of published numbers against hand counts, brute force, and scipy's own tests."""

import itertools
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from fractions import Fraction
from math import atanh, comb, sqrt
from statistics import NormalDist

import pytest
from looped import looped
from scipy import stats

from analysis.claims.printed_tests import (
    boschloo,
    chance_of_best,
    check_agreement,
    correlation_p,
    count_passing,
    paired_bounds,
)
from analysis.claims.rounding import Range, chance, counts, rounding_range


@looped(
    ("text", "low", "high"),
    [
        ("0.750", "0.7495", "0.7505"),
        ("+4.79", "4.785", "4.795"),
        ("-0.22", "-0.225", "-0.215"),
        ("37", "36.5", "37.5"),
        ("<0.01", "0", "0.01"),
    ],
)
def test_a_printed_decimal_stands_for_all_that_rounds_to_it(text, low, high):
    assert rounding_range(text) == (Fraction(low), Fraction(high))


@looped("text", ["nan", "inf", "1e3", "", " 0.5", "0,5", ".5", "five", "0.5 ", "--1"])
def test_what_is_no_printed_decimal_is_refused(text):
    with pytest.raises(ValueError, match="not a printed decimal"):
        rounding_range(text)


def test_both_manners_of_rounding_are_possible():
    # 1 of 8 is 0.125: half up prints 0.13, half to even 0.12.
    assert list(counts(rounding_range("0.13"), 8)) == [1]
    assert list(counts(rounding_range("0.12"), 8)) == [1]


@looped("answers", [7, 15, 60, 299])
def test_exactly_the_values_that_some_count_rounds_to_are_possible(answers):
    printed = {
        str((Decimal(k) / answers).quantize(Decimal("0.001"), mode))
        for k in range(answers + 1)
        for mode in (ROUND_HALF_UP, ROUND_HALF_EVEN)
    }
    possible = {f"0.{i:03d}" for i in range(1000) if counts(rounding_range(f"0.{i:03d}"), answers)}
    assert possible == printed - {"1.000"}


def test_a_percentage_of_thirty_problems_needs_the_draws_of_a_plain_loop():
    # 31.4 % of 30 x 8 = 75.36 answers: 75 would print 31.3 or 31.2, 76 would print 31.7.
    mean = rounding_range("31.4")
    as_share = Range(mean.low / 100, mean.high / 100)
    assert not counts(as_share, 30 * 8)
    loop = [
        k
        for k in range(1, 65)
        if any(abs(Fraction(100 * c, 30 * k) - Fraction("31.4")) <= Fraction("0.05") for c in range(30 * k + 1))
    ]
    assert [k for k in range(1, 65) if counts(as_share, 30 * k)] == loop
    assert 1 not in loop
    assert set(range(32, 65)) <= set(loop)


def test_differences_of_three_seeds_are_multiples_of_one_897th():
    # 4.79 % of 897 is 42.97: 43/897 = 4.794 %. 4.75 % is 42.6: no count prints it.
    assert list(counts(Range(Fraction("0.04785"), Fraction("0.04795")), 897)) == [43]
    assert not counts(Range(Fraction("0.04745"), Fraction("0.04755")), 897)


def test_the_share_that_passes_by_chance_is_counted():
    # Of 0.0, 0.1, ..., 1.0 two answers give 0.0, 0.5 and 1.0.
    assert chance(Fraction(1, 10), 2) == Fraction(3, 11)
    # With 100 answers every value of one decimal is possible.
    assert chance(Fraction(1, 10), 100) == 1


def test_no_answers_are_refused():
    with pytest.raises(ValueError, match="give at least one"):
        counts(rounding_range("0.5"), 0)


def test_the_paired_bounds_are_those_of_every_two_by_two_table():
    problems = 9
    for first, second in itertools.product(range(problems + 1), repeat=2):
        p = [
            stats.binomtest(first - both, first + second - 2 * both).pvalue if first + second > 2 * both else 1
            for both in range(max(0, first + second - problems), min(first, second) + 1)
        ]
        found = paired_bounds(first, second, problems)
        assert float(found.low) == pytest.approx(min(p))
        assert float(found.high) == pytest.approx(max(p))


def test_the_smallest_paired_p_has_no_problem_lost():
    # 46 and 41 of 60: all five discordant problems one way, 2 / 2^5.
    found = paired_bounds(46, 41, 60)
    assert found.low == Fraction(2, 32)
    # At most 14 + 19 = 33 problems are discordant; 19 against 14.
    assert found.high == Fraction(2 * sum(comb(33, k) for k in range(15)), 2**33)


def test_equal_margins_never_differ():
    assert paired_bounds(30, 30, 60) == (1, 1)


@looped("bad", [(-1, 3, 5), (6, 3, 5), (3, 6, 5), (0, 0, 0)])
def test_impossible_counts_are_refused(bad):
    with pytest.raises(ValueError, match="impossible"):
        paired_bounds(*bad)


def test_boschloo_is_the_largest_chance_of_a_table_as_extreme_by_fisher():
    def one_sided(first, second, side):
        return stats.fisher_exact([[first, second], [6 - first, 7 - second]], alternative=side).pvalue

    def plain(side):
        seen = one_sided(6, 2, side)
        extreme = [(a, b) for a in range(7) for b in range(8) if one_sided(a, b, side) <= seen * (1 + 1e-12)]
        return max(
            sum(comb(6, a) * comb(7, b) * s ** (a + b) * (1 - s) ** (13 - a - b) for a, b in extreme)
            for s in (i / 400 for i in range(1, 400))
        )

    expected = 2 * min(plain("less"), plain("greater"))
    assert boschloo(6, 6, 2, 7) == pytest.approx(expected, rel=1e-3)
    assert boschloo(6, 6, 2, 7) < stats.fisher_exact([[6, 2], [0, 5]]).pvalue


def test_equal_shares_have_p_one():
    assert boschloo(3, 6, 4, 8) == 1


def test_a_p_that_follows_from_its_interval_agrees():
    # 4.79 [1.67, 7.92]: a standard error of 6.25 / 3.92 = 1.594, z = 3.004, p = 0.0027.
    found = check_agreement(*map(rounding_range, ("4.79", "1.67", "7.92", "0.0022")))
    z = 4.79 / (6.25 / (2 * NormalDist().inv_cdf(0.975)))
    assert found.low <= 2 * (1 - NormalDist().cdf(z)) <= found.high
    assert found.decision
    assert found.size


@looped(
    ("p", "decision", "size"),
    [("0.30", False, False), ("0.0001", True, False), ("0.02", True, False), ("0.0040", True, True)],
)
def test_a_p_that_does_not_follow_is_noticed(p, decision, size):
    found = check_agreement(*map(rounding_range, ("4.79", "1.67", "7.92", p)))
    assert (found.decision, found.size) == (decision, size)


def test_an_interval_around_zero_needs_a_large_p():
    assert check_agreement(*map(rounding_range, ("1.56", "-0.89", "4.01", "0.20"))).decision
    assert not check_agreement(*map(rounding_range, ("1.56", "-0.89", "4.01", "0.02"))).decision
    # An end that prints as 0.00 may lie on either side.
    assert check_agreement(*map(rounding_range, ("1.00", "0.00", "2.00", "0.049"))).decision
    assert check_agreement(*map(rounding_range, ("1.00", "0.00", "2.00", "0.051"))).decision


def test_an_interval_that_is_upside_down_is_refused():
    with pytest.raises(ValueError, match="lower end"):
        check_agreement(*map(rounding_range, ("1.0", "2.0", "0.5", "0.1")))


def test_the_p_of_a_correlation_is_fishers():
    z = atanh(0.181) * sqrt(352 - 3)
    assert correlation_p(0.181, 352) == pytest.approx(2 * (1 - NormalDist().cdf(z)))
    assert correlation_p(-0.181, 352) == correlation_p(0.181, 352)
    with pytest.raises(ValueError, match="cannot be tested"):
        correlation_p(0.5, 3)


def test_the_best_of_two_coins_is_counted():
    # Three tosses: at least two heads with 4/8; the best of two has it with 1 - (4/8)^2.
    assert chance_of_best(2, 2, 3, 0.5) == pytest.approx(0.75)


def test_one_candidate_has_its_own_chance_and_more_are_luckier():
    chances = [chance_of_best(m, 11, 30, 1 / 3) for m in (1, 2, 6)]
    assert chances[0] == pytest.approx(sum(comb(30, k) * 2 ** (30 - k) for k in range(11, 31)) / 3**30)
    assert chances == sorted(chances)
    assert len(set(chances)) == 3


def test_a_family_is_counted_as_by_hand():
    # 0.05/6 = 0.0083: two. Holm: also 0.012 <= 0.0125. BH: 0.04 <= 5/6 x 0.05 = 0.0417, so five.
    family = [0.001, 0.008, 0.012, 0.02, 0.04, 0.2]
    assert [count_passing(family, method) for method in ("bonferroni", "holm", "bh")] == [2, 3, 5]
    with pytest.raises(ValueError, match="unknown"):
        count_passing(family, "none")
