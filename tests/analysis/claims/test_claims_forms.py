"""The checkable forms of claims: what holds, what fails, what rounding or pairing hides, what is refused."""

import tomllib
from pathlib import Path

import pytest
from looped import looped

from analysis.claims.expression import ExpressionError, decide
from analysis.claims.levels import Level
from analysis.claims.paper_file import read_paper
from analysis.claims.printed_tests import correlations_differ_p

HERE = Path(__file__).parent
FORMS = tomllib.loads((HERE / "forms.toml").read_text())


@pytest.fixture(scope="module")
def paper():
    return read_paper(HERE / "forms_paper.toml")


def truth(paper, form):
    return decide(form, paper, paper.names).truth


@looped(
    ("form", "holds"),
    [(form, holds) for name, holds in (("hold", True), ("fail", False), ("undecided", None)) for form in FORMS[name]],
)
def test_forms_hold_fail_or_cannot_be_decided(paper, form, holds):
    assert truth(paper, form) is holds


def test_one_failure_decides_whatever_is_not_printed(paper):
    assert truth(paper, "v('R', 'b') > v('R', 'a') and unprinted('more')") is False
    assert truth(paper, "v('R', 'a') > v('R', 'b') or unprinted('more')") is True


def test_the_reasons_of_a_failure_are_the_comparisons_that_fail(paper):
    assert decide("all(v('R', x) > 0.6 for x in ARMS)", paper, paper.names).reasons == ("0.583 > 0.6",)


def test_a_range_of_p_is_said_with_its_counts(paper):
    reasons = decide("paired(v('R', 'double'), v('R', 'low')) <= 0.05", paper, paper.names).reasons
    # All ten one way: 2 / 2^10 = 0.002; 20 against 10: 0.0987.
    assert reasons == ("McNemar p (20 and 10 of 60) 0.002 to 0.099 <= 0.05",)


@looped(("form", "why"), FORMS["refused"])
def test_a_form_that_means_nothing_is_refused(paper, form, why):
    with pytest.raises(ValueError, match=why.replace("(", r"\(")) as refused:
        decide(form, paper, paper.names)
    assert isinstance(refused.value, ExpressionError) or "table" in why


def test_a_family_of_unknown_pairings_passes_between_two_counts(paper):
    family = "[paired(v('R', 'double'), v('R', 'low')), paired(v('R', 'a'), v('R', 'c'))]"
    # Twice 0.002 passes, twice 0.099 does not.
    found = decide(f"passing('bonferroni', {family}) <= 1", paper, paper.names)
    assert found == (True, ("0 to 1 of 2 are significant by bonferroni <= 1",), Level.INFERENCE)


def test_what_is_denied_is_said_with_a_not(paper):
    found = decide("not v('R', 'b') > v('R', 'a')", paper, paper.names)
    assert found == (True, ("not (0.583 > 0.767)",), Level.ARITHMETIC)


@looped(("form", "level"), [(form, Level[name.upper()]) for name, forms in FORMS["levels"].items() for form in forms])
def test_the_level_of_a_form_is_what_its_numbers_went_through(paper, form, level):
    assert decide(form, paper, paper.names).level is level


def test_a_value_that_does_not_halve_is_refused(paper):
    with pytest.raises(ExpressionError, match="it is not yet halved"):
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
    with pytest.raises(ValueError, match="give at least 4 observations"):
        correlations_differ_p(0.3, 50, 0.3, 3)
