import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import study
from scipy import stats

from analysis import diagnostics, judge
from analysis.diagnostics import diagnose
from analysis.judgement.failure_modes import proxies
from analysis.judgement.untrusted_files import RecordError

SHIPPED = Path(__file__).resolve().parents[2] / "registrations"


def content(*against, **decision):
    """`crystal` against these arms, one seed."""
    written = study.content(subject="crystal", against=list(against), method="sign-flip", **decision)
    written["arms"] = {name: {"policy": name} for name in ("full", "crystal", *against)}
    written["seeds"] = [0]
    return written


def modes(folder, content, problems, change, **lock):
    study.write(folder, content, problems, change, **lock)
    (folder / "verdict.json").write_bytes(study.canonical({"judged": judge.judge(folder)}) + b"\n")
    return diagnose(folder)["modes"]


def number(lane):
    return int(lane[5][1:])


def solved(**counts):
    """By arm, the first so many problems are right."""
    return lambda lane: {"grade": "correct"} if number(lane) < counts.get(lane[3], 0) else {}


# ---------------------------------------------------------------- memory


def held(prefill_end, mean):
    return study.cache(mean) | {"prefill_end": f"{prefill_end:.6f}"}


def test_a_match_at_the_end_of_the_prefill_alone_is_seen(tmp_path):
    def change(lane):
        return {"cache": held(256, {"crystal": 320, "h2o": 260}.get(lane[3], 256))}

    found = modes(tmp_path / "s", content("snapkv", "h2o"), 10, change)["iso_cache"]
    assert found.verdict == "seen"
    assert "2 of 2 contrasts" in found.says
    assert [row.ratios.prefill_end for row in found.rows] == [1.0, 1.0]
    assert [row.ratios.mean for row in found.rows] == pytest.approx([320 / 256, 320 / 260])


def test_arms_that_match_in_the_mean_or_nowhere_do_not_show_that_mode(tmp_path):
    def change(lane):
        return {"cache": held(300, 255) if lane[3] == "snapkv" else held(200, 200)} if lane[3] != "crystal" else {}

    found = modes(tmp_path / "s", content("snapkv", "h2o"), 10, change)["iso_cache"]
    assert found.verdict == "not seen"
    assert "1 of 2 contrasts match in mean memory" in found.says


def test_the_difference_at_equal_memory_is_interpolated_by_hand(tmp_path):
    # h2o holds 100 slots and solves 4 of 20, or 200 and 12; crystal holds 150 and solves 10: 10 less 8.
    written = content("h2o")
    written["budgets"] = ["0.3", "0.5"]
    table = {("crystal", "0.3"): (150, 10), ("crystal", "0.5"): (250, 10), ("h2o", "0.3"): (100, 4)}

    def change(lane):
        slots, right = table.get((lane[3], lane[2]), (200, 12))
        return {"cache": held(slots, slots)} | ({"grade": "correct"} if number(lane) < right else {})

    first, second = modes(tmp_path / "s", written, 20, change)["iso_cache"].rows
    assert first.interpolated.mean == pytest.approx(0.1)
    assert first.interpolated.low <= 0.1 <= first.interpolated.high
    assert first.between == ["0.3", "0.5"]
    assert second.interpolated is second.between is None  # 250 lies beyond both


# ---------------------------------------------------------------- fifty problems


def test_the_share_of_other_signs_is_that_of_the_hypergeometric(tmp_path):
    # Of 200 problems crystal gains 12 and loses 8: of 50, another sign where losses outnumber gains.
    def change(lane):
        right = number(lane) < 12 if lane[3] == "crystal" else 12 <= number(lane) < 20
        return {"grade": "correct"} if right and lane[3] != "full" else {}

    found = modes(tmp_path / "s", content("h2o"), 200, change)["small_sample"]
    counts = np.array([(g, x) for g in range(13) for x in range(9) if x > g])
    both = np.column_stack([counts, 50 - counts.sum(axis=1)])
    expected = stats.multivariate_hypergeom.pmf(both, m=[12, 8, 180], n=50).sum()
    assert found.rows[0].other_sign == pytest.approx(expected, abs=0.04)  # 2,000 choices: 4 deviations
    assert found.rows[0].call == "neither"
    assert found.verdict == "seen"


def test_the_share_of_other_verdicts_is_that_of_too_few_wins(tmp_path):
    # 30 gains among 200, no loss: the exact test needs six of them in 50 (2 / 2^6 = 0.031, 2 / 2^5 = 0.0625).
    found = modes(tmp_path / "s", content("h2o"), 200, solved(crystal=30))["small_sample"]
    expected = stats.hypergeom.cdf(5, 200, 30, 50)
    (row,) = found.rows
    assert (found.verdict, row.call, row.other_sign) == ("seen", "better", 0.0)
    assert row.other_call == pytest.approx(expected, abs=0.04)
    assert f"another verdict in {100 * row.other_call:.0f} %" in found.says
    assert "Of 1 contrasts that are better or worse on all problems, 1 get another outcome" in found.says


def test_what_every_problem_shows_fifty_show_too(tmp_path):
    found = modes(tmp_path / "s", content("h2o"), 60, solved(crystal=60))["small_sample"]
    assert found.verdict == "not seen"
    assert (found.rows[0].low, found.rows[0].high, found.rows[0].other_call) == (1.0, 1.0, 0.0)


def test_fifty_problems_or_fewer_cannot_tell(tmp_path):
    found = modes(tmp_path / "s", content("h2o"), 50, solved(crystal=30))["small_sample"]
    assert (found.verdict, found.rows) == ("cannot tell", [])


def test_the_branch_rule_is_tried_on_fifty_problems(tmp_path):
    written = content("h2o", rule="branch", primary_model="tiny", transfer_model="other")
    written["models"] = ["tiny", "other"]
    found = modes(tmp_path / "s", written, 60, solved(crystal=60))["small_sample"]
    assert "another verdict in 0 %" in found.says


# ---------------------------------------------------------------- proxies


def test_arms_alike_in_slots_and_not_in_bytes_are_seen(tmp_path):
    def change(lane):
        return {"cache": study.cache(256) | {"mean_bytes": 1100 if lane[3] == "h2o" else 1000}}

    found = modes(tmp_path / "s", content("h2o"), 10, change)["proxies"]
    assert found.verdict == "seen"
    assert found.rows[0].mean_bytes == pytest.approx(0.1)
    assert found.rows[0].mean_slots == 0


def test_seconds_are_those_of_a_token():
    # 2 seconds for 4 tokens are half of 1 second for one.
    lanes = pd.DataFrame({"arm": ["h2o", "crystal"], "seconds": [2.0, 1.0], "tokens": [4.0, 1.0]})
    lanes[["model", "task", "budget"]] = "tiny", "needle", "0.5"
    lanes[["prefill_end", "mean_slots", "mean_bytes"]] = 1.0
    (row,) = proxies(lanes, 0.02, [], shared=False).rows
    assert row.seconds_a_token == pytest.approx(1.0)


def test_arms_alike_throughout_show_no_drift(tmp_path):
    found = modes(tmp_path / "s", content("h2o"), 10, lambda lane: {})["proxies"]
    assert found.verdict == "not seen"


@pytest.mark.parametrize(("lanes", "says"), [(2, "in one batch"), (1, "one machine")])
def test_seconds_of_lanes_that_decode_together_tell_no_arms_apart(tmp_path, lanes, says):
    batch = {"lanes": {"tiny": lanes}}
    assert says in modes(tmp_path / "s", content("h2o"), 4, lambda lane: {}, batch=batch)["proxies"].says


@pytest.mark.parametrize(("before", "verdict"), [("0.030000", "seen"), ("-0.010000", "not seen")])
def test_a_sign_that_development_problems_had_otherwise_is_seen(tmp_path, before, verdict):
    written = content("h2o")
    written["sweep"] = {"name": "crystal", "candidates": ["crystal", "snapkv"], "baseline": "h2o"}
    cell = {"model": "tiny", "task": "needle", "budget": "0.5", "candidate": "crystal", "difference": before}
    other = cell | {"candidate": "snapkv", "difference": "0.900000"}
    selected = {"winner": "crystal", "policy": "crystal", "baseline": "h2o", "cells": [cell, other]}
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "selection.json").write_bytes(study.canonical({"selected": selected}) + b"\n")
    found = modes(tmp_path / "s", written, 10, solved(h2o=2))["proxies"]
    assert found.verdict == verdict
    assert found.rows[-1][3:] == pytest.approx((float(before), -0.2))


# ---------------------------------------------------------------- models


def test_one_model_is_seen(tmp_path):
    found = modes(tmp_path / "s", content("h2o"), 10, lambda lane: {})["single_model"]
    assert (found.verdict, found.rows) == ("seen", [])
    assert "Only tiny ran" in found.says


@pytest.mark.parametrize(
    ("other", "signs", "verdict"),
    [({"crystal": 30}, "agree", "not seen"), ({"h2o": 30}, "oppose", "seen"), ({"h2o": 1}, "open", "cannot tell")],
)
def test_a_sign_transfers_where_both_intervals_exclude_zero(tmp_path, other, signs, verdict):
    written = content("h2o")
    written["models"] = ["tiny", "large"]

    def change(lane):
        right = {"crystal": 30} if lane[0] == "tiny" else other
        return {"grade": "correct"} if number(lane) < right.get(lane[3], 0) else {}

    found = modes(tmp_path / "s", written, 40, change)["single_model"]
    assert found.verdict == verdict
    assert [row["signs"] for row in found.rows] == [signs]


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize(("silent", "verdict"), [(17, "not seen"), (18, "seen")])
def test_wrong_answers_that_are_none_are_counted_by_arm(tmp_path, silent, verdict):
    # 0.44 of 40 wrong answers is 17.6. h2o has 5 wrong ones, all silent: too few to read.
    def change(lane):
        if lane[3] == "full" or number(lane) >= {"crystal": 40, "h2o": 5}[lane[3]]:
            return {"grade": "correct"}
        quiet = lane[3] == "h2o" or number(lane) < silent
        return {"grade": "no answer", "answer": None, "stop": "length"} if quiet else {}

    found = modes(tmp_path / "s", content("h2o"), 60, change)["extraction_collapse"]
    assert found.verdict == verdict
    by_arm = {row.arm: row[4:] for row in found.rows}
    assert by_arm == {"full": (0, 0, 0, 60), "crystal": (40, silent, silent, 60), "h2o": (5, 5, 5, 60)}


def test_hardly_a_wrong_answer_cannot_tell(tmp_path):
    found = modes(tmp_path / "s", content("h2o"), 10, lambda lane: {})["extraction_collapse"]
    assert found.verdict == "cannot tell"


# ---------------------------------------------------------------- whole


def test_a_shipped_study_is_read_as_its_verdict_counts_it():
    found = diagnose(SHIPPED / "alpha-chain")
    judged = json.loads((SHIPPED / "alpha-chain" / "verdict.json").read_bytes())["judged"]
    ended = found["modes"]["extraction_collapse"].rows
    assert [row.no_answer for row in ended] == [arm["no_answer"] for arm in judged["arms"]]
    small = found["modes"]["small_sample"].rows
    assert [row.difference for row in small] == pytest.approx(
        [float(contrast["difference"]) for contrast in judged["contrasts"]], abs=1e-6
    )
    ratios = [row.ratios.mean for row in found["modes"]["iso_cache"].rows]
    assert ratios == pytest.approx([float(contrast["cache_ratio"]) for contrast in judged["contrasts"]], abs=1e-6)
    assert {name: mode.verdict for name, mode in found["modes"].items()} == {
        "iso_cache": "not seen",
        "small_sample": "seen",
        "proxies": "seen",
        "single_model": "cannot tell",
        "extraction_collapse": "seen",
    }


def test_failed_and_excluded_lanes_are_left_out(tmp_path):
    written = content("h2o", missing="wrong") | {"exclude": {"prompt_tokens_above": 600}}

    def change(lane):
        if number(lane) == 0:
            return study.FAILED | {"state": "excluded", "reason": "long", "prompt_tokens": 601}
        return study.FAILED if lane[3] == "crystal" and number(lane) == 1 else {}

    found = modes(tmp_path / "s", written, 10, change)
    assert found["iso_cache"].rows[0].ratios.mean == 1.0
    by_arm = {row.arm: row for row in found["extraction_collapse"].rows}
    assert (by_arm["crystal"].wrong, by_arm["crystal"].lanes) == (9, 8)


def test_nothing_measured_cannot_tell(tmp_path):
    def change(lane):
        return {} if lane[3] == "full" else study.FAILED

    found = modes(tmp_path / "s", content("h2o", missing="wrong"), 60, change)
    assert {found[name].verdict for name in ("iso_cache", "small_sample", "proxies")} == {"cannot tell"}


def test_the_command_prints_text_and_canonical_json(tmp_path, capsysbinary):
    modes(tmp_path / "s", content("h2o"), 60, solved(crystal=30))
    assert diagnostics.main([str(tmp_path / "s")]) == 0
    text = capsysbinary.readouterr().out.decode()
    assert "SEEN: a difference whose sign changes on another model" in text
    assert diagnostics.main([str(tmp_path / "s"), "--json"]) == 0
    printed = capsysbinary.readouterr().out
    assert printed == study.canonical(json.loads(printed)) + b"\n"
    assert json.loads(printed)["memory"][1]["mean_slots"] == "256.000000"


def test_a_study_without_a_verdict_is_refused_in_one_line(tmp_path, capsys):
    study.write(tmp_path / "s", content("h2o"), 4, lambda lane: {})
    assert diagnostics.main([str(tmp_path / "s")]) == 2
    refusal = capsys.readouterr().err
    assert refusal.count("\n") == 1
    assert "has no verdict" in refusal


def test_seconds_that_are_no_number_are_refused(tmp_path):
    folder = tmp_path / "s"
    modes(folder, content("h2o"), 4, lambda lane: {})
    shard = folder / "records" / "shard-0.jsonl"
    shard.write_bytes(shard.read_bytes().replace(b'"decode_seconds":"0.4"', b'"decode_seconds":"nan"', 1))
    with pytest.raises(RecordError, match=r"shard-0\.jsonl:1: costs\.decode_seconds"):
        diagnose(folder)
