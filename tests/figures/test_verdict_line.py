"""The line that says how a verdict was reached, for every rule and method that can be registered."""

import judgements
import pytest

from figures.canvas import numbers
from figures.html import glossary
from protocol.plan import rules


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
    line = numbers.verdict_line(judgements.judgement(rule=rule, **changes))
    assert line.startswith(f"rule {rule}: {says}; ")
    assert "Bonferroni" in line


def test_max_t_is_not_said_to_be_bonferroni():
    line = numbers.verdict_line(judgements.judgement(method="max-t"))
    assert line.endswith("; max-t, alpha 0.05")


def test_every_rule_that_can_be_registered_is_explained():
    assert set(glossary.RULES) == set(rules.RULES)
