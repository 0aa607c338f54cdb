"""A replication agrees where words and what the rules say are the same; words of before are read as such."""

from types import SimpleNamespace

import pytest

from protocol import replicate
from protocol import replicate as command

CHILD = SimpleNamespace(reproduces=False)  # lanes are then not compared
OLD = {"verdict": "CONFIRMED", "label": "screening-grade"}
NEW = {"verdict": "SCREENED", "rule_says": "CONFIRMED", "gate": {"passed": True}}


def compared(before: dict, judged: dict) -> dict:
    parent = SimpleNamespace(verdict=SimpleNamespace(content={"judged": before}))
    return replicate.compare_verdicts(parent, CHILD, judged)


@pytest.mark.parametrize(
    ("before", "judged", "agrees"),
    [
        (OLD, NEW, True),  # twelve problems: the word of then, and what the rule says now
        (OLD, NEW | {"rule_says": "INCONCLUSIVE"}, False),
        (OLD | {"verdict": "INCONCLUSIVE"}, NEW | {"rule_says": "INCONCLUSIVE"}, True),
        (NEW, NEW, True),
        (NEW, NEW | {"rule_says": "REFUTED"}, False),  # both are SCREENED, and their rules differ
        (NEW, {"verdict": "CONFIRMED", "gate": {"passed": True}}, False),
        ({"verdict": "CONFIRMED", "gate": None}, {"verdict": "CONFIRMED", "gate": None}, True),
        ({"verdict": "CONFIRMED", "gate": None}, {"verdict": "INCONCLUSIVE", "gate": None}, False),
    ],
)
def test_agreement_is_of_the_word_and_of_what_the_rule_says(before, judged, agrees):
    assert compared(before, judged)["agrees"] is agrees


def test_the_printed_line_names_what_the_parents_rule_says():
    parent = SimpleNamespace(folder=SimpleNamespace(name="study"))
    line = command.format_comparison(parent, compared(NEW, NEW), is_fresh=True)
    assert "agrees with study (SCREENED, but the rule says CONFIRMED)" in line
    assert "agrees with study (CONFIRMED)" in command.format_comparison(parent, compared(OLD, NEW), is_fresh=True)
