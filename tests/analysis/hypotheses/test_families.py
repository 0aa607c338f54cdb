"""When a gate has failed, and when its family is closed: the rule case by case."""

import pytest
from looped import looped
from made_up import contrast, write

from analysis.hypotheses import families, study_outcomes, tables
from analysis.hypotheses.families import CLOSED, FAILED, NOT_TESTED, OPEN, SURVIVED, UNDECIDED
from analysis.hypotheses.policy_hypotheses import HYPOTHESES, family_of, list_gates

LOST = [contrast("1d", "variant_b", better=True), contrast("1d", "variant_b", model="two", better=True)]


def told(tmp_path, contrasts, verdict="REFUTED", name="a", **judged):
    return study_outcomes.read_records(write(tmp_path / name, contrasts, verdict, **judged))


@pytest.mark.parametrize("verdict", ["CONFIRMED", "REFUTED"])
def test_a_gate_has_failed_that_is_worse_on_both_models_and_better_on_none(tmp_path, verdict):
    assert families.judge_gate("variant_b", told(tmp_path, LOST, verdict)) == FAILED


def test_a_gate_may_be_the_subject_too(tmp_path):
    rows = [contrast("variant_b", "1d", model=model, worse=True) for model in ("one", "two")]
    assert families.judge_gate("variant_b", told(tmp_path, rows)) == FAILED
    rows = [contrast("variant_b", "1d", better=True), contrast("variant_b", "1d", model="two")]
    assert families.judge_gate("variant_b", told(tmp_path, rows, name="b")) == SURVIVED


@looped(
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
    assert families.judge_gate("variant_b", told(tmp_path, contrasts, verdict, **judged)) == UNDECIDED


def test_contrasts_with_what_a_gate_does_not_start_from_do_not_test_it(tmp_path):
    rows = [one | {"subject": "h2o"} for one in LOST]
    assert families.judge_gate("variant_b", told(tmp_path, rows)) == NOT_TESTED


def lost(gate, *parents):
    return [contrast(parent, gate, model=model, better=True) for parent in parents for model in ("one", "two")]


@looped(
    ("gate", "parent", "said"),
    [
        ("1d_div-per-head", "1d_div", FAILED),
        ("1d_div-per-head", "1d", FAILED),
        ("state_emit", "1d", FAILED),
        ("ada-1d_div", "ada-1d", FAILED),
        ("ada-1d_div", "1d-per-head", UNDECIDED),  # routing differs, too
        ("ada-1d_div", "1d", UNDECIDED),
        ("static_route", "1d-per-head", FAILED),
        ("static_route", "1d", UNDECIDED),  # scores differ, too
        ("static_route", "h2o", NOT_TESTED),
    ],
)
def test_a_gate_is_tested_against_what_differs_in_its_family_alone(tmp_path, gate, parent, said):
    assert families.judge_gate(gate, told(tmp_path, lost(gate, parent))) == said


def test_an_arm_with_other_settings_is_not_the_gate_nor_what_it_starts_from(tmp_path):
    for number, changed in enumerate(("1d", "variant_b")):
        arms = {name: {"policy": name} for name in ("1d", "variant_b")}
        arms[changed]["set"] = {"cadence.slack": 8}
        records = told(tmp_path, LOST, name=str(number), arms=arms)
        assert families.judge_gate("variant_b", records) in (UNDECIDED, NOT_TESTED)
    assert families.uninformative_reasons("variant_b", records) == ["run with other settings"]


def test_a_gate_that_kept_the_slots_of_what_it_starts_from_is_not_tested_by_what_that_lost(tmp_path):
    pairs = [{"arms": ["1d_div", "1d_div-scheduled"], "shared": "1.000", "problems": 2}]
    rows = lost("1d_div-scheduled", "1d") + lost("1d_div", "1d")
    records = told(tmp_path, rows, lock={"checks": {"same_kept": {"pairs": pairs}}})
    assert families.judge_gate("1d_div-scheduled", records) == UNDECIDED
    assert families.judge_gate("1d_div", records) == FAILED


def test_a_state_is_tested_at_equal_bytes(tmp_path):
    for memory, said in (("slots", UNDECIDED), ("bytes", FAILED), ("total", FAILED)):
        records = told(tmp_path, lost("subspace", "1d"), name=memory, memory=memory)
        assert families.judge_gate("subspace", records) == said
    assert families.judge_gate("subspace", told(tmp_path, lost("subspace", "1d"), name="old")) == UNDECIDED


def test_a_replication_and_a_study_that_was_amended_decide_nothing(tmp_path):
    parent = {"parent": {"name": "first", "lock": "0" * 64}}
    records = told(tmp_path, LOST, lock=parent)
    assert families.judge_gate("variant_b", records) == UNDECIDED
    assert "a reproduction on the problems of first" in records[0].notes
    events = ("register", "verdict", "amended")
    assert families.judge_gate("variant_b", told(tmp_path, LOST, name="b", events=events)) == UNDECIDED


def test_studies_that_disagree_leave_a_gate_undecided(tmp_path):
    won = [one | {"better": False, "worse": True} for one in LOST]
    records = told(tmp_path, LOST) + told(tmp_path, won, name="b")
    assert families.judge_gate("variant_b", records) == UNDECIDED
    undecided = told(tmp_path, LOST, "INCONCLUSIVE", name="c")
    assert families.judge_gate("variant_b", told(tmp_path, LOST, name="d") + undecided) == FAILED


def everything_lost(tmp_path, family, *but):
    rows = [
        row
        for gate in list_gates()
        if family_of(gate) == family and gate not in but
        for row in lost(gate, HYPOTHESES[gate].parent)
    ]
    records = told(tmp_path, rows, name=family, memory="bytes")
    return {one.name: one.status for one in families.judge_families(records)}


@looped("family", ["state", "routing", "cadence", "decoding", "scoring"])
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
    standing = {one.name: one.status for one in families.judge_families(told(tmp_path, rows))}
    assert standing["cadence"] == OPEN


def test_a_gate_that_failed_died_of_what_deciding_studies_show(tmp_path):
    records = told(tmp_path, LOST)
    assert families.failure_modes("variant_b", records) == ["iso-cache underperformance"]
    assert families.failure_modes("q_stats", records) == []
    assert families.failure_modes("variant_b", told(tmp_path, LOST, "INCONCLUSIVE", name="b")) == []


def test_rows_have_a_cell_for_each_head(tmp_path):
    records = told(tmp_path, LOST)
    for heads, rows in (
        (tables.FAMILIES, tables.family_rows(records)),
        (tables.ATTEMPTS, tables.attempt_rows(records)),
        (tables.METHODS, tables.method_rows(["h2o", "streamingllm-rkv", "1d_div"], records)),
        (tables.REGISTERED, tables.registered_rows(records)),
        (tables.QUOTED, tables.quoted_rows()),
    ):
        assert rows
        assert {len(row) for row in rows} == {len(heads)}
    (gate,) = [dict(zip(tables.ATTEMPTS, row, strict=True)) for row in tables.attempt_rows(records) if row[5] == FAILED]
    assert (gate["gate"], gate["died of"]) == ("variant_b", "iso-cache underperformance")
    assert gate["the paper says"] == "Killed: Proxy-to-runtime drift"
    assert [row[0] for row in tables.method_rows(["h2o", "1d_div"], records)] == ["h2o"]
