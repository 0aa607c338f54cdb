"""Judged numbers and words as they are printed, for every rule and method that can be registered."""

import judgements
import pytest

from analysis.rules import RULES, judged_numbers
from figures.drawing import formatting


@pytest.mark.parametrize(
    ("rule", "changes", "says"),
    [
        ("superior", {}, "crystal better in at least 3 of 5 contrasts, worse in none"),
        ("branch", {}, "branch table over 5 contrasts of crystal"),
        ("equivalent", {"margin": "0.030000"}, "crystal within 3.0 pp in all 5 contrasts"),
        ("non_inferior", {"margin": "0.005000"}, "crystal worse by less than 0.5 pp in all 5 contrasts"),
    ],
)
def test_every_rule_is_said_with_its_numbers(rule, changes, says):
    line = formatting.rule_line(judgements.judgement(rule=rule, **changes))
    assert line.startswith(f"rule {rule}: {says}; ")
    assert "Bonferroni" in line


def test_max_t_is_not_said_to_be_bonferroni():
    line = formatting.rule_line(judgements.judgement(method="max-t"))
    assert line.endswith("; max-t, alpha 0.05")


def test_the_correction_of_a_family_is_that_of_the_method():
    family = {"alpha": "0.050000", "corrected_alpha": "0.012500"}
    assert formatting.format_correction("sign-flip", family) == "Bonferroni 0.0125"
    assert formatting.format_correction("max-t", family) == "max-t 0.05"


def test_every_rule_that_can_be_registered_is_explained():
    assert all("CONFIRMED" in rule.text.meaning for rule in RULES.values())


@pytest.mark.parametrize(
    ("decimal", "printed"),
    [
        ("0.123456", "+12.3"),
        ("-0.041667", "\N{MINUS SIGN}4.2"),
        ("0.000000", "0.0"),
        ("-0.000400", "0.0"),
        ("1.000000", "+100.0"),
    ],
)
def test_differences_are_signed_percentage_points(decimal, printed):
    assert judged_numbers.format_points(decimal) == printed


@pytest.mark.parametrize(("decimal", "printed"), [("0.000099", "<0.0001"), ("0.0001", "0.0001"), ("1.0", "1.0000")])
def test_a_small_p_is_bounded_and_never_printed_as_zero(decimal, printed):
    assert judged_numbers.format_p(decimal) == printed
