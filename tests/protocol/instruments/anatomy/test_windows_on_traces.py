"""Where windows lie and what they say, by hand."""

from fractions import Fraction

import pytest

from protocol.instruments.anatomy.windows import Span, count_flips, oracle_priorities, span_of, windows

ONE, HALF = Fraction(1), Fraction(1, 2)


def test_windows_step_by_the_stride_and_the_last_one_ends_with_the_span():
    assert windows(Span(20, 19, 3, 13), 4, 3) == (range(3, 7), range(6, 10), range(9, 13))
    assert windows(Span(20, 19, 3, 12), 4, 3) == (range(3, 7), range(6, 10), range(8, 12))
    assert windows(Span(20, 19, 3, 7), 4, 3) == (range(3, 7),)
    assert windows(Span(20, 19, 3, 6), 4, 3) == ()
    assert windows(Span(20, 19, 3, 3), 4, 4) == ()


@pytest.mark.parametrize(
    ("occlude", "query", "reasoning", "cut", "due"),
    [
        ("reasoning", 0, 9, ONE, Span(19, 18, 10, 18)),
        ("reasoning", 0, 9, HALF, Span(14, 13, 10, 13)),  # 4.5 tokens, rounded down
        ("reasoning", 0, 0, ONE, Span(10, 9, 10, 10)),  # nothing to occlude
        ("reasoning", 3, 9, ONE, Span(22, 21, 13, 21)),
        ("prompt", 0, 9, ONE, Span(10, 9, 0, 9)),
        ("prompt", 3, 9, ONE, Span(13, 10, 0, 10)),  # the question is fed after the event
        ("all", 0, 9, HALF, Span(14, 13, 0, 13)),
        ("all", 3, 0, ONE, Span(13, 10, 0, 10)),
        ("all", 3, 1, ONE, Span(14, 13, 0, 13)),
    ],
)
def test_what_is_fed_and_what_may_be_occluded_of_a_context_of_ten(occlude, query, reasoning, cut, due):
    assert span_of(occlude, 10, query, reasoning, cut) == due


FOUND = [[1, 4, "a", "correct"], [3, 6, "b", "wrong"], [5, 8, "c", "no answer"]]


def test_a_token_is_needed_where_any_window_over_it_is_not_correct():
    assert count_flips(9, FOUND) == [None, 0, 0, 1, 1, 2, 1, 1, None]


def order(budget, found=FOUND, tokens=9):
    scores = oracle_priorities(tokens, found, budget)
    assert len(set(scores)) == tokens
    return sorted(range(tokens), key=lambda at: -scores[at])


def test_the_oracle_keeps_most_flips_then_untested_then_latest():
    assert order(7) == [5, 7, 6, 4, 3, 8, 0, 2, 1]
    late = [[6, 8, "", "wrong"], [4, 6, "", "correct"]]  # 0 to 3 and 8 to 11 are untested: eight tokens
    assert order(10, late, 12) == [7, 6, 11, 10, 9, 8, 3, 2, 1, 0, 5, 4]
    late = [[8, 10, "", "wrong"], [6, 8, "", "correct"]]  # 0 to 5 and 10 to 11
    assert order(9, late, 12) == [9, 8, 3, 2, 1, 0, 11, 10, 7, 6, 5, 4]  # they do not fit: the first four
