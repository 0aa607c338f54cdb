"""Whether two judgements say the same: what may differ between versions of the analysis, and what may not."""

import copy
from typing import Any

import pytest
from looped import looped

from analysis.judgement.compare_judgements import NOTHING, FieldDifference, find_differences

ROW = {
    "model": "tiny",
    "n": 23,
    "gains": 5,
    "difference": "0.100000",
    "low": "0.020000",
    "high": "0.180000",
    "low_simultaneous": "-0.100000",
    "high_simultaneous": "0.300000",
    "p": "0.030000",
    "p_holm": "0.060000",
    "cache_ratio": "1.000000",
    "better": False,
    "memory": {"charge": "0.000000"},
}
TODAY: dict[str, Any] = {
    "verdict": "SCREENED",
    "rule_says": "INCONCLUSIVE",
    "label": "screening-grade",
    "branch": None,
    "alpha": "0.050000",
    "corrected_alpha": "0.025000",
    "contrasts": [ROW],
    "arms": [{"arm": "crystal", "accuracy": "0.500000", "failed": 0}],
    "gate": None,
    "missing": {"lanes": 0, "uneven": []},
    "selected": {"arm": "crystal"},
    "proves": ["That nothing was decided."],
    "does_not_prove": ["Equality.", "Other models."],
}


def before() -> dict[str, Any]:
    """The same judgement as it was printed before there were gates and the word SCREENED."""
    judged = copy.deepcopy(TODAY)
    for fields, name in (
        (judged, "gate"),
        (judged, "rule_says"),
        (judged["missing"], "uneven"),
        (judged["contrasts"][0], "memory"),
    ):
        del fields[name]
    return judged | {"verdict": "INCONCLUSIVE"}


def test_a_judgement_is_like_itself():
    assert find_differences(copy.deepcopy(TODAY), TODAY).all == []


def test_what_was_not_printed_yet_decides_nothing():
    found = find_differences(before(), TODAY)
    later = {one.path for one in found.later}
    assert later == {"gate", "rule_says", "verdict", "missing.uneven", "contrasts[0].memory"}
    assert found.all == found.later


def test_fields_may_be_absent_of_old_judgements_only():
    written = copy.deepcopy(TODAY)
    del written["contrasts"][0]["memory"]
    assert find_differences(written, TODAY).decisive == [FieldDifference("contrasts[0].memory", NOTHING, "1 entries")]


def test_a_gate_that_was_registered_is_not_left_out():
    closed = TODAY | {"gate": {"passed": False}}
    assert "gate" in {one.path for one in find_differences(before(), closed).decisive}


@pytest.mark.parametrize("word", ["CONFIRMED", "REFUTED", "DEVIATED"])
def test_an_old_small_study_that_decided_says_another_word(word):
    found = find_differences(before() | {"verdict": word}, TODAY | {"rule_says": word})
    assert "verdict" in {one.path for one in found.decisive}


def test_a_study_that_is_not_small_has_the_word_of_its_rule():
    large = {name: value for name, value in TODAY.items() if name != "rule_says"} | {"verdict": "INCONCLUSIVE"}
    assert find_differences(before(), large).decisive == []
    assert [one.path for one in find_differences(before() | {"verdict": "CONFIRMED"}, large).decisive] == ["verdict"]


@looped(
    ("field", "value"),
    [
        ("low", "0.000500"),  # 0.0195 of an interval of 0.16 away
        ("high", "0.250000"),
        ("low_simultaneous", "-0.299000"),
        ("p", "0.049000"),  # no side of 0.05 changes, yet that of 0.025 would
        ("p_holm", "0.119000"),
    ],
)
def test_bounds_and_p_of_another_method_that_decide_the_same_are_alike(field, value):
    written = copy.deepcopy(TODAY)
    written["contrasts"][0][field] = value
    found = find_differences(written, TODAY)
    assert found.all == found.computed == [FieldDifference(f"contrasts[0].{field}", value, ROW[field])]


@looped(
    ("field", "value"),
    [
        ("low", "0.000000"),  # reaches zero
        ("low", "0.110000"),  # farther than half of the interval
        ("high", "0.270000"),
        ("high", "-0.000001"),
        ("p", "0.050001"),  # another side of alpha
        ("p", "0.025000"),  # another side of the corrected alpha
        ("p_holm", "0.120001"),  # more than twice
        ("p", "nan"),
        ("p", "1e-1"),
        ("p", ""),
        ("p", 0),
        ("p", None),
        ("low", ["0.020000"]),
        ("difference", "0.100001"),
        ("cache_ratio", "1.000001"),
        ("gains", 6),
        ("gains", "5"),
        ("better", 0),  # which equals False
        ("n", None),
    ],
)
def test_what_decides_otherwise_is_named(field, value):
    written = copy.deepcopy(TODAY)
    written["contrasts"][0][field] = value
    found = find_differences(written, TODAY)
    assert [one.path for one in found.decisive] == [f"contrasts[0].{field}"]
    assert found.all == found.decisive


@looped("field", sorted(TODAY.keys() - {"label", "does_not_prove"}))
def test_every_field_but_sentences_decides(field):
    assert find_differences(TODAY | {field: "CONFIRMED"}, TODAY).decisive


@looped("field", sorted(TODAY.keys() - {"label", "does_not_prove", "gate"}))
def test_no_field_but_that_of_no_gate_may_be_left_out(field):
    written = {name: value for name, value in TODAY.items() if name != field}
    assert [one.path for one in find_differences(written, TODAY).decisive] == [field]


def test_sentences_are_told_apart():
    said = {"label": "screening-grade for tiny alone", "does_not_prove": ["Nothing.", "Other models."]}
    found = find_differences(TODAY | said, TODAY)
    assert [sentence.path for sentence in found.sentences] == ["does_not_prove[0]", "label"]
    assert found.all == found.sentences
    assert find_differences(TODAY | {"does_not_prove": ["Equality."]}, TODAY).decisive == []


@looped(
    ("field", "value"),
    [
        ("label", "confirmatory-grade"),  # another grade
        ("label", "screening-grade-or-better"),
        ("label", ""),
        ("label", None),
        ("does_not_prove", []),
        ("does_not_prove", None),
        ("does_not_prove", ["", "Other models."]),
        ("does_not_prove", [" "]),
        ("does_not_prove", [["Equality."]]),
        ("does_not_prove[0]", "Nothing."),  # a field of this name
        ("proves", ["Everything."]),
    ],
)
def test_a_sentence_that_says_another_grade_or_no_limit_decides(field, value):
    found = find_differences(TODAY | {field: value}, TODAY)
    assert found.decisive
    assert found.all == found.decisive


@pytest.mark.parametrize("field", ["label", "does_not_prove"])
def test_only_the_judgement_itself_has_such_sentences(field):
    written = copy.deepcopy(TODAY)
    written["contrasts"][0][field] = ["Nothing."]
    assert [one.path for one in find_differences(written, TODAY).decisive] == [f"contrasts[0].{field}"]
    assert find_differences(TODAY | {"selected": {field: "x"}}, TODAY | {"selected": {field: "y"}}).decisive


@looped("written", [{}, [], None, "CONFIRMED", {"verdict": []}, {"contrasts": {"0": 1}}])
def test_a_judgement_of_any_shape_is_compared(written):
    assert find_differences(written, TODAY).decisive


def test_what_is_shown_is_short_and_plain():
    found = find_differences(TODAY | {"x\x1b[2J": "\x1b]0;" + 1000 * "y"}, TODAY).decisive
    assert found == [FieldDifference("x\\x1b[2J", "\\x1b]0;" + 56 * "y" + "...", NOTHING)]
