"""What is read off a registration, counted by hand."""

import json

import pytest
from made_up import contrast, entered, write
from studies import ROOT

from analysis.hypotheses import study_outcomes
from analysis.hypotheses.study_outcomes import Comparison
from analysis.judgement.untrusted_files import RecordError
from figures.drawing import formatting, page


def by_policy(folder):
    return {record.policy: record for record in study_outcomes.read_records(folder)}


def test_a_contrast_is_seen_from_both_of_its_sides(tmp_path):
    contrasts = [
        contrast("1d", "h2o", better=True),
        contrast("1d", "h2o", model="two", worse=True, n=240),
        contrast("1d", "tova", better=True, matched=False),
        contrast("1d", "tova", model="two"),
    ]
    found = by_policy(write(tmp_path / "a", contrasts))
    assert found["1d"].role == "subject"
    assert found["1d"].comparisons == (
        Comparison("h2o", 2, ("one",), ("two",), 0, (240, 250), ("one", "two")),
        Comparison("tova", 2, (), (), 1, (250, 250), ("one", "two")),
    )
    assert found["h2o"].role == "comparator"
    assert found["h2o"].comparisons == (Comparison("1d", 2, ("two",), ("one",), 0, (240, 250), ("one", "two")),)
    assert found["tova"].comparisons == (Comparison("1d", 2, (), (), 1, (250, 250), ("one", "two")),)


def test_what_saves_no_memory_against_the_full_cache_counts_for_nothing(tmp_path):
    rows = [contrast("1d", "full", worse=True, saves=True), contrast("1d", "full", worse=True, saves=False)]
    (against,) = by_policy(write(tmp_path / "a", rows))["1d"].comparisons
    assert (against.worse, against.unmatched) == (("one",), 1)


def test_what_is_below_the_floor_is_told_and_counts_for_nothing(tmp_path):
    below = {"floor": {"uninformative": "neither arm is shown to be above 10 %"}}
    rows = [contrast("1d", "h2o", worse=True, **below), contrast("1d", "h2o", model="two", worse=True)]
    record = by_policy(write(tmp_path / "a", rows))["1d"]
    assert record.comparisons == (Comparison("h2o", 2, (), ("two",), 0, (250, 250), ("one", "two")),)
    assert "below the floor in 1 of 2 cells: nothing is shown in these" in record.notes
    assert "iso-cache underperformance: worse at matched memory in 1 of 2 cells" in record.notes


def test_the_full_cache_and_presses_are_no_policies_of_the_catalogue_of_verdicts(tmp_path):
    rows = [contrast("1d", "full"), contrast("1d", "other")]
    arms = {"1d": {"policy": "1d"}, "full": {"policy": "full"}, "other": {"press": "kvpress:SnapKVPress"}}
    found = by_policy(write(tmp_path / "a", rows, arms=arms))
    assert list(found) == ["1d"]
    assert [comparison.policy for comparison in found["1d"].comparisons] == ["full", "kvpress:SnapKVPress"]


def test_arms_of_another_harness_are_commands_and_no_policies():
    assert study_outcomes.read_records(ROOT / "registrations" / "openvino-bytes") == []


def test_an_arm_is_its_policy_with_what_it_sets_beside(tmp_path):
    arms = {"low": {"policy": "subspace", "set": {"state.rank": 8}}, "1d": {"policy": "1d"}}
    found = by_policy(write(tmp_path / "a", [contrast("low", "1d")], arms=arms))
    assert found["subspace"].arm == "policy subspace, state.rank = 8"
    assert found["1d"].arm == ""
    assert found["1d"].comparisons[0].policy == "policy subspace, state.rank = 8"


def test_a_second_name_is_read_as_the_first(tmp_path):
    assert list(by_policy(write(tmp_path / "a", [contrast("1d", "syn_mem")]))) == ["1d", "syn_mem-3"]


def test_of_a_sweep_the_winner_is_the_subject_and_the_others_are_in_no_contrast(tmp_path):
    arms = {name: {"policy": name} for name in ("1d", "1d_div", "1d_div-1.0")}
    folder = write(
        tmp_path / "a",
        [contrast("swept", "1d", difference="-0.010000"), contrast("swept", "1d", model="two", difference="0.010000")],
        arms=arms,
        sweep={"name": "swept", "candidates": ["1d_div", "1d_div-1.0"]},
        selected={"arm": "1d_div", "policy": "1d_div"},
    )
    cells = [
        {"candidate": name, "model": model, "task": "chain", "budget": "64", "difference": difference}
        for name, model, difference in (
            ("1d_div", "one", "0.02"),
            ("1d_div", "two", "0.03"),
            ("1d_div-1.0", "two", "-0.03"),
        )
    ]
    selection = {"selected": {"winner": "1d_div", "cells": cells}}
    (folder / "selection.json").write_text(json.dumps(selection) + "\n")
    content = json.loads((folder / "lock.json").read_text())
    content["protocol"]["content"]["decision"]["subject"] = "swept"
    (folder / "lock.json").write_text(json.dumps(content) + "\n")
    found = by_policy(folder)
    assert {name: record.role for name, record in found.items()} == {
        "1d": "comparator",
        "1d_div": "subject",
        "1d_div-1.0": "candidate of the sweep",
    }
    assert found["1d_div"].notes == (
        "proxy-to-runtime drift: the sign on development problems was reversed on held-out ones in 1 of 2 cells",
    )
    assert found["1d"].notes == ()


def test_a_study_that_decides_is_worse_at_matched_memory_and_one_that_does_not_is_not(tmp_path):
    rows = [contrast("1d", "h2o", worse=True), contrast("1d", "h2o", model="two")]
    told = by_policy(write(tmp_path / "a", rows))["1d"]
    assert told.notes == ("iso-cache underperformance: worse at matched memory in 1 of 2 cells",)
    assert told.modes == ["iso-cache underperformance"]
    for number, (verdict, label) in enumerate(
        [("INCONCLUSIVE", ""), ("SCREENED", "screening-grade"), ("DEVIATED", ""), ("REFUTED", "uninformative")]
    ):
        folder = write(tmp_path / f"b{number}", rows, verdict, label=label)
        assert by_policy(folder)["1d"].notes == ()


def test_one_model_few_problems_and_opposite_models_are_noted(tmp_path):
    (one,) = by_policy(write(tmp_path / "a", [contrast("1d", "h2o", n=50)]))["1d"].notes[:1]
    assert one == "n = 50 instability: n = 50 is only a screening"
    assert by_policy(tmp_path / "a")["1d"].notes[1] == "cross-model transfer cannot be judged: one is the only model"
    rows = [contrast("1d", "h2o", better=True), contrast("1d", "h2o", model="two", worse=True)]
    assert (
        "cross-model transfer failure: better than h2o on one, worse on two"
        in by_policy(write(tmp_path / "b", rows))["1d"].notes
    )
    rows = [contrast("1d", "h2o", better=True), contrast("1d", "h2o", model="one", worse=True)]
    rows += [contrast("1d", "h2o", model="two", worse=True)]
    noted = by_policy(write(tmp_path / "c", rows))["1d"].notes
    assert not [note for note in noted if "cross-model" in note]


def test_extraction_has_collapsed_where_44_of_100_wrong_answers_are_none(tmp_path):
    arms = [
        {"arm": "1d", "budget": budget, "n": 200, "accuracy": accuracy, "no_answer": none}
        for budget, accuracy, none in (
            ("64", "0.500000", 44),  # of 100
            ("80", "0.500000", 43),
            ("96", "0.950000", 10),  # of 10: too few
            ("128", None, 0),
        )
    ]
    rows = [contrast("1d", "h2o"), contrast("1d", "h2o", model="two")]
    folder = write(tmp_path / "a", rows)
    verdict = json.loads((folder / "verdict.json").read_text())
    verdict["judged"]["arms"] = arms
    (folder / "verdict.json").write_text(json.dumps(verdict) + "\n")
    entered(folder)
    found = by_policy(folder)
    assert found["1d"].notes == ("extraction collapse (a caveat) at budget 64",)
    assert found["1d"].modes == []
    assert found["h2o"].notes == ()


def test_the_words_are_those_of_the_report():
    for path in sorted((ROOT / "registrations").glob("*/verdict.json")):
        records = study_outcomes.read_records(path.parent)
        if not records:  # others decoded: no policy of ours
            assert path.parent.name.startswith("openvino-")
            continue
        (study,) = {record.study for record in records}
        assert study.verdict_text == formatting.verdict_text(page.read_judged(path.parent)), path


def test_a_study_without_a_verdict_says_why(tmp_path):
    rows = [contrast("1d", "h2o")]
    for events, said in (
        (("register",), "not judged yet"),
        (("register", "withdraw"), "withdrawn"),
        (("register", "amended"), "amended"),
    ):
        arms = {"1d": {"policy": "1d"}}
        folder = write(tmp_path / "".join(events), rows, arms=arms, events=events)
        (record,) = study_outcomes.read_records(folder)
        assert (record.study.verdict_text, record.study.judged, record.comparisons) == (said, False, ())
        assert record.study.date == f"2026-11-2{len(events) - 1}"


def test_studies_are_in_order_of_their_verdicts(tmp_path):
    late = write(tmp_path / "a", [contrast("1d", "h2o")], events=("register", "claim", "seal", "verdict"))
    early = write(tmp_path / "b", [contrast("1d", "tova")])
    records = [one for folder in (late, early) for one in study_outcomes.read_records(folder)]
    assert [one.study.name for one in study_outcomes.select_compared(records)] == ["b", "b", "a", "a"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("lock.json", '{"protocol":{}}', "lock.json: lacks the field 'content'"),
        ("verdict.json", '{"judged":{}}', "not have the documented format"),
        ("verdict.json", "[]", "not an object"),
        ("ledger.jsonl", "", "is not a ledger; run: kv-prereg audit"),
        ("ledger.jsonl", '{"event":1}', "is not a ledger; run: kv-prereg audit"),
    ],
)
def test_a_file_of_another_format_is_refused_in_one_line(tmp_path, name, text, says):
    folder = write(tmp_path / "a", [contrast("1d", "h2o")])
    (folder / name).write_text(text)
    if name == "verdict.json":
        entered(folder)
    with pytest.raises(RecordError, match=says) as refused:
        study_outcomes.read_records(folder)
    assert "\n" not in str(refused.value)


def test_a_verdict_that_the_ledger_does_not_name_is_refused(tmp_path):
    folder = write(tmp_path / "a", [contrast("1d", "h2o")])
    forged = (folder / "verdict.json").read_text().replace("REFUTED", "CONFIRMED")
    (folder / "verdict.json").write_text(forged)
    with pytest.raises(RecordError, match=r"verdict\.json differs from the one that ledger\.jsonl names"):
        study_outcomes.read_records(folder)
    folder = write(tmp_path / "b", [contrast("1d", "h2o")])
    lines = (folder / "ledger.jsonl").read_text().splitlines(keepends=True)
    (folder / "ledger.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(RecordError, match="differs from the one"):
        study_outcomes.read_records(folder)


def test_arms_that_were_asked_something_else_or_kept_the_same_slots_say_so(tmp_path):
    rows = [contrast("1d", "state_emit"), contrast("1d", "h2o"), contrast("1d", "state_ask")]
    asked = dict.fromkeys(("state_emit", "state_ask"), "Write lines.")
    pairs = [{"arms": ["h2o", "1d"], "shared": "1.000", "problems": 2}]
    lock = {"asked": asked, "checks": {"same_kept": {"pairs": pairs}}}
    found = by_policy(write(tmp_path / "a", rows, lock=lock))
    assert "had a different prompt than state_emit and state_ask" in found["1d"].notes
    assert "had a different prompt than 1d" in found["state_emit"].notes
    assert "kept the same slots as h2o, so that the two are one experiment" in found["1d"].notes
    assert (found["1d"].alike, found["state_ask"].alike) == (("h2o",), ())
    assert not any("asked" in note for note in found["h2o"].notes)
