"""The checkable forms of claims: what holds, what fails, what rounding or pairing hides, what is refused."""

import pytest

from analysis.claims.expression import ExpressionError, decide
from analysis.claims.levels import Level
from analysis.claims.paper_file import read_paper
from analysis.claims.printed_p import correlations_differ_p

FILE = """
format = 1
[source]
key = "p"
title = "T"
authors = "A"
link = "unknown"
[names]
ARMS = ["a", "b", "c"]
gain = "lambda x, y: v('R', x) - v('R', y)"
[[table]]
id = "R"
title = "right or wrong"
of = "answers"
unit = "share"
n = 60
draws = 1
[table.values]
a = "0.767"
b = "0.583"
c = "0.767"
low = "0.167"
double = "0.333"
odd = "0.765"
[[table]]
id = "S"
title = "scores"
of = "scores"
unit = "share"
n = 20
[table.values]
a = "0.131"
b = "0.131"
c = "0.140"
[[table]]
id = "P"
title = "eight draws"
of = "answers"
unit = "percent"
n = 30
draws = 8
[table.values]
a = "50.0"
b = "40.0"
[[table]]
id = "B"
title = "so many answers that a decimal is no single count"
of = "answers"
unit = "share"
n = 5000
draws = 1
[table.values]
a = "0.500"
b = "0.600"
[[table]]
id = "M"
title = "measures"
of = "measures"
unit = "s"
[table.values]
fast = "440.5"
slow = "1238.7"
p = "0.0078"
word = "GQA"
"""


@pytest.fixture
def paper(tmp_path):
    path = tmp_path / "file.toml"
    path.write_text(FILE)
    return read_paper(path)


def truth(paper, form):
    return decide(form, paper, paper.names).truth


@pytest.mark.parametrize(
    "form",
    [
        "v('R', 'a') > v('R', 'b')",
        "v('R', 'a') - v('R', 'b') == 0.184",  # of the rounded numbers; 11/60 would be 0.183
        "v('R', 'a') - v('R', 'b') == 0.183",
        "v('R', 'double') == 2 * v('R', 'low')",
        "v('M', 'slow') / v('M', 'fast') == 2.8",
        "gain('a', 'b') > 0.18",
        "max(each('R', ARMS)) == 0.767 and min(each('R', ARMS)) == 0.583",
        "mean(each('R', ['low', 'double'])) == 0.25",
        "sum([1, 2, 3]) == 6 and len(ARMS) == 3 and distinct(['x', 'x', 'y']) == 2",
        "count([v('R', x) > 0.6 for x in ARMS]) == 2",
        "all(v('R', x) > 0.5 for x in ARMS if x != 'b')",
        "any(v('R', x) < 0.6 for x in ARMS)",
        "abs(v('R', 'b') - v('R', 'a')) == 0.183 and not v('R', 'b') > v('R', 'a')",
        "sqrt(54 / 60 * 6 / 60 / 60) == 0.039 and log(8) / log(2) == 3.0",
        "v('M', 'word') == 'GQA' and v('M', 'word') in ['GQA', 'MHA']",
        "all(x > y for x, y in [(2, 1), (3, 2)])",
        "1 < 2 < 3",
        "paired(v('R', 'double'), v('R', 'low')) < 0.1",
        "unpaired(v('R', 'a'), v('R', 'low')) < 0.001",
        "choose([[1], [2]], 0.5) == 1 and choose([[2], [2.5]], 0.5) == 0",
        "branch([['primary', 1, 0.01], ['transfer', 1, 0.5]]) == 'A'",
        "passing('holm', [0.001, 0.5]) == 1",
        "answerable(v('R', 'a'), 60)",
        "agree(4.79, 1.67, 7.92, 0.0022)",
        "exp(0) == 1 and 1 / (1 + exp(0 - 5)) == 0.993",
        "corrected(v('M', 'p'), 4) == 0.0312 and corrected(0.5, 4) == 1",
        "halving(1, lambda x: 0.5) == 1 and halving(8, lambda x: 0.25) == 3",
    ],
)
def test_forms_that_hold(paper, form):
    assert truth(paper, form) is True


@pytest.mark.parametrize(
    "form",
    [
        "v('R', 'a') > v('R', 'c')",  # both 46 of 60
        "v('R', 'a') == 0.768",
        "v('S', 'a') == 0.132",
        "v('R', 'a') - v('R', 'b') > 0.1834",  # 11/60, although 0.767 - 0.583 could round from 0.1845
        "2 * 0.5 == 1.04",  # a literal is exact but for what it is equal to
        "v('R', 'low') * 3 == v('R', 'double')",
        "paired(v('R', 'a'), v('R', 'c')) < 1",
        "all(v('R', x) > 0.6 for x in ARMS)",
        "any(v('R', x) > 0.8 for x in ARMS)",
        "v('M', 'slow') / v('M', 'fast') == 2.9",
        "branch([['primary', 1, 0.2], ['transfer', 1, 0.5]]) == 'A'",
        "answerable(v('R', 'odd'), 60)",
        "agree(4.79, 1.67, 7.92, 0.3)",
    ],
)
def test_forms_that_fail(paper, form):
    assert truth(paper, form) is False


@pytest.mark.parametrize(
    "form",
    [
        "v('S', 'a') > v('S', 'b')",  # rounding hides which is larger
        "paired(v('R', 'double'), v('R', 'low')) <= 0.05",  # it depends on who solved what
        "unprinted('the raw answers')",
        "v('R', 'a') > v('R', 'b') and unprinted('more')",
        "not unprinted('more')",
        "abs(gap(v('R', 'a'), v('R', 'c'))) <= 0.05",
    ],
)
def test_forms_that_the_numbers_cannot_decide(paper, form):
    assert truth(paper, form) is None


def test_one_failure_decides_whatever_is_not_printed(paper):
    assert truth(paper, "v('R', 'b') > v('R', 'a') and unprinted('more')") is False
    assert truth(paper, "v('R', 'a') > v('R', 'b') or unprinted('more')") is True


def test_the_reasons_of_a_failure_are_the_comparisons_that_fail(paper):
    assert decide("all(v('R', x) > 0.6 for x in ARMS)", paper, paper.names).reasons == ("0.583 > 0.6",)


def test_a_range_of_p_is_said_with_its_counts(paper):
    reasons = decide("paired(v('R', 'double'), v('R', 'low')) <= 0.05", paper, paper.names).reasons
    # All ten one way: 2 / 2^10 = 0.002; 20 against 10: 0.0987.
    assert reasons == ("McNemar p (20 and 10 of 60) 0.002 to 0.099 <= 0.05",)


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ("v('R', 'nobody') > 1", "no cell 'nobody'"),
        ("v('X', 'a') > 1", "has no table"),
        ("max(each('R', ['nobody'])) > 1", "none of these cells"),
        ("v('R', 'a')", "not a statement"),
        ("v('R', 'a') > 'x'", "different kinds"),
        ("v('R', 'a') >", "invalid syntax"),
        ("unheard('R') > 1", "no function, list or form"),
        ("(1).__class__ == 1", "not in this notation"),
        ("__import__('os') == 1", "no function, list or form"),
        ("open('x') == 1", "no function, list or form"),
        ("v('R', 'a') > 1 if 1 else 2", "not in this notation"),
        ("1 / (1 - 1) > 0", "divisor"),
        ("paired(v('P', 'a'), v('P', 'b')) < 1", "one answer to each same problem"),
        ("paired(v('R', 'odd'), v('R', 'b')) < 1", "no count of 60 problems gives 0.765"),
        ("paired(v('S', 'a'), v('S', 'c')) < 1", "counts of known answers"),
        ("paired(v('B', 'a'), v('B', 'b')) < 1", "counts of known answers"),
        ("(1 < 2) == (2 < 3)", "joined by and"),
    ],
)
def test_a_form_that_means_nothing_is_refused(paper, form, why):
    with pytest.raises(ValueError, match=why.replace("(", r"\(")) as refused:
        decide(form, paper, paper.names)
    assert isinstance(refused.value, ExpressionError) or "table" in why


def test_a_family_of_unknown_pairings_passes_between_two_counts(paper):
    family = "[paired(v('R', 'double'), v('R', 'low')), paired(v('R', 'a'), v('R', 'c'))]"
    # Twice 0.002 passes, twice 0.099 does not.
    found = decide(f"passing('bonferroni', {family}) <= 1", paper, paper.names)
    assert found == (True, ("0 to 1 of 2 pass bonferroni <= 1",), Level.INFERENCE)


def test_what_is_denied_is_said_with_a_not(paper):
    found = decide("not v('R', 'b') > v('R', 'a')", paper, paper.names)
    assert found == (True, ("not (0.583 > 0.767)",), Level.ARITHMETIC)


@pytest.mark.parametrize(
    ("form", "level"),
    [
        ("1 + 1 == 2", Level.LITERAL),
        ("all(x > 0 for x in [1, 2])", Level.LITERAL),
        ("all([])", Level.LITERAL),
        ("passing('holm', [0.001, 0.5]) == 1", Level.LITERAL),
        ("correlated(0.9, 100) <= 0.05", Level.LITERAL),
        ("'a' in ARMS", Level.LITERAL),
        ("unprinted('x')", Level.LITERAL),
        ("v('R', 'a') == 0.767", Level.TRANSCRIBED),
        ("v('R', 'a') == v('R', 'c')", Level.TRANSCRIBED),
        ("v('M', 'word') == 'GQA' and v('M', 'word') in ['GQA']", Level.TRANSCRIBED),
        ("all(v('R', x) != 0 for x in ARMS)", Level.TRANSCRIBED),
        ("v('R', 'a') == 0.5 + 0.267", Level.ARITHMETIC),
        ("v('R', 'a') > 0.5", Level.ARITHMETIC),
        ("distinct([v('M', 'word')]) == 1", Level.ARITHMETIC),
        ("len(each('R', ARMS)) == 3", Level.ARITHMETIC),
        ("gain('a', 'b') == 0.183", Level.ARITHMETIC),
        ("choose([[gain('a', 'b')], [gain('b', 'a')]], 0.5) == 0", Level.ARITHMETIC),
        ("branch([['primary', gain('a', 'b'), 0.01], ['transfer', 1, 0.5]]) == 'A'", Level.ARITHMETIC),
        ("agree(v('M', 'fast'), 400, 480, 0.0001)", Level.ARITHMETIC),
        ("answerable(v('R', 'a'), 60)", Level.ARITHMETIC),
        ("halving(v('M', 'fast'), lambda x: 0.5) == 1", Level.ARITHMETIC),
        ("paired(v('R', 'a'), v('R', 'low')) <= 0.05", Level.INFERENCE),
        ("v('R', 'a') > v('R', 'low') and unpaired(v('R', 'a'), v('R', 'low')) <= 0.05", Level.INFERENCE),
        ("abs(gap(v('R', 'a'), v('R', 'c'))) <= 0.5", Level.INFERENCE),
        ("count([corrected(v('M', 'p'), 2) <= 0.05]) == 1", Level.INFERENCE),
        ("not lucky(2, v('R', 'a'), v('R', 'b')) <= 0.0001", Level.INFERENCE),
        # One is enough, and the lowest of those that hold, or that fail, decides.
        ("v('R', 'a') == 0.767 or paired(v('R', 'a'), v('R', 'low')) <= 0.05", Level.TRANSCRIBED),
        ("v('R', 'a') == 0.1 and paired(v('R', 'a'), v('R', 'low')) <= 0.05", Level.TRANSCRIBED),
        # A part of literals is no part of a check.
        ("paired(v('R', 'a'), v('R', 'low')) <= 0.05 and 1 < 2", Level.LITERAL),
    ],
)
def test_the_level_of_a_form_is_what_its_numbers_went_through(paper, form, level):
    assert decide(form, paper, paper.names).level is level


def test_a_value_that_does_not_halve_is_refused(paper):
    with pytest.raises(ExpressionError, match="more than half"):
        decide("halving(1, lambda x: 0) > 1", paper, paper.names)


def test_a_claim_of_luck_takes_the_number_of_candidates(paper):
    one, six = (
        decide(f"lucky({m}, v('R', 'double'), v('R', 'low')) <= 1", paper, paper.names).reasons[0] for m in (1, 6)
    )
    assert float(one.split()[1]) < float(six.split()[1])


def test_two_correlations_are_told_apart_by_fishers_z():
    """By hand: atanh(0.5) = 0.549306, atanh(-0.2) = -0.202733, over sqrt(1/100 + 1/25) = 0.223607: 3.3632."""
    assert correlations_differ_p(0.5, 103, -0.2, 28) == pytest.approx(0.00077, abs=5e-6)
    assert correlations_differ_p(0.3, 50, 0.3, 90) == 1.0
    with pytest.raises(ValueError, match="4 or more"):
        correlations_differ_p(0.3, 50, 0.3, 3)
