"""When a gate has failed, and when its family is closed: the rule case by case."""

import pytest
from made_up import contrast, write

from analysis.hypotheses import families, outcomes, tables
from analysis.hypotheses.declared import gates, surface
from analysis.hypotheses.families import CLOSED, FAILED, NOT_TESTED, OPEN, SURVIVED, UNDECIDED

LOST = [contrast("1d", "variant_b", better=True), contrast("1d", "variant_b", model="two", better=True)]


def told(tmp_path, contrasts, verdict="REFUTED", name="a", **judged):
    return outcomes.read(write(tmp_path / name, contrasts, verdict, **judged))


@pytest.mark.parametrize("verdict", ["CONFIRMED", "REFUTED"])
def test_a_gate_has_failed_that_is_worse_on_both_models_and_better_on_none(tmp_path, verdict):
    assert families.fate("variant_b", told(tmp_path, LOST, verdict)) == FAILED


def test_a_gate_may_be_the_subject_too(tmp_path):
    rows = [contrast("variant_b", "1d", model=model, worse=True) for model in ("one", "two")]
    assert families.fate("variant_b", told(tmp_path, rows)) == FAILED
    rows = [contrast("variant_b", "1d", better=True), contrast("variant_b", "1d", model="two")]
    assert families.fate("variant_b", told(tmp_path, rows, name="b")) == SURVIVED


@pytest.mark.parametrize(
    ("contrasts", "verdict", "judged"),
    [
        (LOST, "SCREENED", {"label": "screening-grade"}),
        (LOST, "INCONCLUSIVE", {}),
        (LOST, "DEVIATED", {"rule_says": "REFUTED"}),
        (LOST, "REFUTED", {"label": "uninformative"}),
        ([one | {"n": 199} for one in LOST], "REFUTED", {}),  # of before there was SCREENED
        ([one | {"model": "one"} for one in LOST], "REFUTED", {}),
        ([one | {"matched": False} for one in LOST], "REFUTED", {}),
        ([LOST[0], LOST[1] | {"better": False}], "REFUTED", {}),  # null on one of two models
        ([*LOST, contrast("1d", "variant_b", worse=True)], "REFUTED", {}),  # better somewhere
        ([one | {"better": False} for one in LOST], "REFUTED", {}),
    ],
    ids=[
        *("screening", "inconclusive", "deviated", "uninformative", "199 problems", "one model"),
        *("memory unmatched", "null on one model", "both ways", "no difference"),
    ],
)
def test_nothing_less_decides_about_a_gate(tmp_path, contrasts, verdict, judged):
    assert families.fate("variant_b", told(tmp_path, contrasts, verdict, **judged)) == UNDECIDED


def test_contrasts_with_what_a_gate_does_not_start_from_do_not_test_it(tmp_path):
    rows = [one | {"subject": "h2o"} for one in LOST]
    assert families.fate("variant_b", told(tmp_path, rows)) == NOT_TESTED


def test_a_gate_two_components_away_is_tested_against_each_of_its_ancestors(tmp_path):
    for gate, parent in (
        ("1d_div-per-head", "1d"),
        ("1d_div-per-head", "1d_div"),
        ("ada-1d_div", "1d-per-head"),
    ):
        rows = [contrast(parent, gate, model=model, better=True) for model in ("one", "two")]
        assert families.fate(gate, told(tmp_path, rows, name=f"{gate} {parent}")) == FAILED


def test_a_gate_of_another_mode_is_tested_against_1d_too(tmp_path):
    rows = [contrast("1d", "static_route", model=model, better=True) for model in ("one", "two")]
    assert families.fate("static_route", told(tmp_path, rows)) == FAILED


def test_studies_that_disagree_leave_a_gate_undecided(tmp_path):
    won = [one | {"better": False, "worse": True} for one in LOST]
    records = told(tmp_path, LOST) + told(tmp_path, won, name="b")
    assert families.fate("variant_b", records) == UNDECIDED
    undecided = told(tmp_path, LOST, "INCONCLUSIVE", name="c")
    assert families.fate("variant_b", told(tmp_path, LOST, name="d") + undecided) == FAILED


def everything_lost(tmp_path, family, *but):
    rows = [
        contrast("1d", gate, model=model, better=True)
        for gate in gates()
        if surface(gate) == family and gate not in but
        for model in ("one", "two")
    ]
    return {one.name: one.standing for one in families.families(told(tmp_path, rows, name=family))}


@pytest.mark.parametrize("family", ["state", "routing", "cadence", "decoding", "scoring"])
def test_a_family_is_closed_when_all_its_attempts_have_failed(tmp_path, family):
    standing = everything_lost(tmp_path, family)
    assert standing.pop(family) == CLOSED
    assert set(standing.values()) == {NOT_TESTED}


def test_one_attempt_that_nobody_tested_keeps_a_family_open(tmp_path):
    assert everything_lost(tmp_path, "cadence", "schedule-back")["cadence"] == OPEN


def test_an_undecided_attempt_keeps_a_family_open(tmp_path):
    rows = [
        contrast("1d", f"schedule-{load}", model=model, better=True)
        for load in ("front", "back", "inverted")
        for model in ("one", "two")
    ]
    rows[-1]["better"] = False
    standing = {one.name: one.standing for one in families.families(told(tmp_path, rows))}
    assert standing["cadence"] == OPEN


def test_a_gate_that_failed_died_of_what_deciding_studies_show(tmp_path):
    records = told(tmp_path, LOST)
    assert families.died_of("variant_b", records) == ["iso-cache underperformance"]
    assert families.died_of("q_stats", records) == []
    assert families.died_of("variant_b", told(tmp_path, LOST, "INCONCLUSIVE", name="b")) == []


def test_rows_have_a_cell_for_each_head(tmp_path):
    records = told(tmp_path, LOST)
    for heads, rows in (
        (tables.FAMILIES, tables.families_of(records)),
        (tables.ATTEMPTS, tables.attempts(records)),
        (tables.METHODS, tables.methods(["h2o", "streamingllm-rkv", "1d_div"], records)),
        (tables.REGISTERED, tables.registered(records)),
        (tables.QUOTED, tables.quoted()),
    ):
        assert rows
        assert {len(row) for row in rows} == {len(heads)}
    (gate,) = [
        dict(zip(tables.ATTEMPTS, row, strict=True)) for row in tables.attempts(records) if row[5] == FAILED
    ]
    assert (gate["gate"], gate["died of"]) == ("variant_b", "iso-cache underperformance")
    assert gate["the paper says"] == "Killed: Proxy-to-runtime drift"
    assert [row[0] for row in tables.methods(["h2o", "1d_div"], records)] == ["h2o"]
