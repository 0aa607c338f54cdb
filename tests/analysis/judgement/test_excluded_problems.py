"""A registered exclusion takes a problem out of every arm alike, by its prompt and nothing else."""

import pytest
import study

from analysis.judge import judge
from analysis.judgement.study_files import read_probe
from analysis.judgement.untrusted_files import RecordError
from analysis.selection import select

LONG = ("p000", "p004", "p011")  # problems whose prompts have 900 tokens; all others have 512
EXCLUDED = study.FAILED | {"state": "excluded", "reason": "prompt_tokens_above", "prompt_tokens": 900}


def solved(lane: study.Lane) -> dict:
    """crystal solves all but p001, snapkv p001 alone, h2o what crystal does."""
    return {"grade": "correct"} if (lane[5] == "p001") == (lane[3] == "snapkv") else {}


def answers(lane: study.Lane) -> dict:
    return EXCLUDED if lane[5] in LONG else solved(lane)


def write(folder, record=answers, *, models=("tiny",), above: int | None = 600, **decision):
    content = study.content(**decision) | {"models": [*models]}
    if above is not None:
        content["exclude"] = {"prompt_tokens_above": above}
    return study.write(folder / "small", content, 12, record)


def except_for(lane: study.Lane, change: dict | None):
    return lambda one: (None if change is None else answers(one) | change) if one == lane else answers(one)


LANE = ("tiny", "needle", "0.5", "h2o", 1, "p002")
LONG_LANE = (*LANE[:5], "p004")


def test_excluded_problems_are_out_of_every_arm_and_the_verdict_is_given(tmp_path):
    judged = judge(write(tmp_path))
    # Nine problems are left, of which crystal wins eight and loses one to snapkv: p = 20 / 512.
    assert judged["missing"] == {"rule": "inconclusive", "registered": 96, "lanes": 0, "cells": [], "uneven": []}
    assert [contrast["n"] for contrast in judged["contrasts"]] == [9, 9]
    assert judged["contrasts"][0]["difference"] == f"{7 / 9:.6f}"
    assert judged["contrasts"][0]["p"] == f"{20 / 512:.6f}"
    arms = {one["arm"]: one for one in judged["arms"]}
    assert all((one["n"], one["failed"]) == (9, 0) for one in arms.values())
    assert arms["crystal"]["accuracy"] == f"{8 / 9:.6f}"
    assert judged["rule_says"] == "INCONCLUSIVE"  # 20 / 512 is above 0.025
    assert judge(write(tmp_path / "alpha", alpha="0.1"))["rule_says"] == "CONFIRMED"


def test_what_was_left_out_is_counted_and_named(tmp_path):
    judged = judge(write(tmp_path))
    assert judged["excluded"] == [{"model": "tiny", "task": "needle", "problems": 3, "of": 12}]
    sentence = "Prompts above 600 tokens: the registered exclusion left out 3 of 12 problems of needle on tiny."
    assert sentence in judged["does_not_prove"]


def test_an_exclusion_that_met_no_prompt_is_counted_and_not_a_limit(tmp_path):
    judged = judge(write(tmp_path, solved))
    assert judged["excluded"] == [{"model": "tiny", "task": "needle", "problems": 0, "of": 12}]
    assert not any("600 tokens" in one for one in judged["does_not_prove"])
    assert judged["contrasts"][0]["n"] == 12


def test_nothing_is_said_of_exclusions_without_one(tmp_path):
    assert "excluded" not in judge(write(tmp_path, solved, above=None))


def test_a_problem_that_is_too_long_under_one_model_is_out_for_that_model_alone(tmp_path):
    def record(lane):
        return solved(lane) if lane[0] == "big" else answers(lane)

    judged = judge(write(tmp_path, record, models=("tiny", "big")))
    assert [(contrast["model"], contrast["n"]) for contrast in judged["contrasts"]] == [
        ("tiny", 9),
        ("tiny", 9),
        ("big", 12),
        ("big", 12),
    ]
    assert [one["problems"] for one in judged["excluded"]] == [3, 0]
    assert judged["missing"]["lanes"] == 0


def test_a_lane_of_an_excluded_problem_without_a_record_was_not_run(tmp_path):
    judged = judge(write(tmp_path, except_for(LONG_LANE, None)))
    assert judged["missing"]["lanes"] == 1
    assert judged["rule_says"] == "INCONCLUSIVE"


def test_with_every_problem_excluded_nothing_is_compared_and_it_says_so(tmp_path):
    judged = judge(write(tmp_path, lambda lane: EXCLUDED))
    assert judged["rule_says"] == "INCONCLUSIVE"
    assert [(contrast["n"], contrast["difference"]) for contrast in judged["contrasts"]] == [(0, None), (0, None)]
    assert [one["accuracy"] for one in judged["arms"]] == [None] * 4
    assert any("2 of 2 contrasts, where fewer than two problems" in one for one in judged["does_not_prove"])


# ---------------------------------------------------------------- records that the lock contradicts


@pytest.mark.parametrize(
    ("lane", "change", "above", "says"),
    [
        (LANE, EXCLUDED, None, r"shard-0.jsonl:\d+: state: 'excluded', but the lock registers no exclusion"),
        (LANE, EXCLUDED | {"prompt_tokens": 512}, 600, "'excluded', but its 512 prompt tokens are not above 600"),
        (LANE, EXCLUDED | {"prompt_tokens": 600}, 600, "'excluded', but its 600 prompt tokens are not above 600"),
        (LANE, {"prompt_tokens": 601}, 600, "'ok', but its 601 prompt tokens are above 600"),
        (LANE, study.FAILED | {"prompt_tokens": 601}, 600, "'failed', but its 601 prompt tokens are above 600"),
        (LANE, {"prompt_tokens": "512"}, 600, "prompt_tokens: '512' is not a whole number"),
        (LANE, EXCLUDED, 600, r"problem=p002: is excluded in only some lanes"),
        (LONG_LANE, {"state": "ok", "prompt_tokens": 512} | study.ordinary("", [*LANE[:5]], ""), 600, ""),
    ],
)
def test_a_record_that_the_registered_exclusion_contradicts_is_refused(tmp_path, lane, change, above, says):
    others = answers if above is not None else solved

    def record(one):
        kept = {key: value for key, value in change.items() if key not in ("registration", "cell", "problem")}
        return others(one) | (kept if one == lane else {})

    with pytest.raises(RecordError, match=says or "problem=p004: is excluded in only some lanes"):
        judge(write(tmp_path, record, above=above))


def test_an_unknown_predicate_is_refused(tmp_path):
    content = study.content() | {"exclude": {"grade": "wrong"}}
    with pytest.raises(RecordError, match="exclude: grade: is unknown; write prompt_tokens_above"):
        judge(study.write(tmp_path / "small", content, 12, solved))


# ---------------------------------------------------------------- a sweep


def probed(folder, long: tuple[str, ...]):
    sweep = {"name": "chosen", "candidates": ["crystal", "h2o"], "baseline": "snapkv", "seeds": [0]}
    content = study.content(subject="chosen", against=["snapkv"]) | {
        "sweep": sweep | {"tolerance": "0.005"},
        "exclude": {"prompt_tokens_above": 600},
    }
    place = study.write(folder / "swept", content, 1, solved, items={"needle": {"dev": [*DEV], "confirm": ["p"]}})
    registration = study.bodies(place)[0]["registration"]
    (place / "probe").mkdir()
    bodies = [
        study.ordinary(registration, ["tiny", "needle", "0.5", arm, 0], problem)
        | {"phase": "probe", "grade": "correct" if arm == "h2o" else "wrong"}
        | (EXCLUDED if problem in long else {})
        for arm in ("crystal", "h2o", "snapkv", "snapkv (again)")
        for problem in DEV
    ]
    study.append(place, *bodies)
    (place / "records" / "shard-0.jsonl").rename(place / "probe" / "shard-0.jsonl")
    return place


DEV = ("d0", "d1", "d2")


def test_a_probe_leaves_long_problems_out_and_selects(tmp_path):
    place = probed(tmp_path, ("d1",))
    assert (read_probe(place).lanes["state"] == "excluded").sum() == 4
    found = select(place)
    assert found["winner"] == "h2o"
    assert [cell["problems"] for cell in found["cells"]] == [2, 2]
    assert found["again"] == {"lanes": 2, "differ": 0}


def test_a_probe_with_every_problem_excluded_selects_nothing(tmp_path):
    with pytest.raises(RecordError, match="every problem of needle on tiny is excluded"):
        select(probed(tmp_path, DEV))
