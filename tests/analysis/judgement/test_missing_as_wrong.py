"""Where the registration says so, a lane that ended without a grade is not correct; one never run is open."""

import pytest
import study

from analysis.judge import judge

ERROR = {"grade": "error"}


def answers(lane: study.Lane) -> dict:
    return {"grade": "correct"} if lane[3] in ("crystal", "h2o") else {}


def write(folder, change, lanes, **decision):
    """crystal and h2o solve all of twelve problems, snapkv none; `change` in `lanes` (arm, seed, problem)."""

    def record(lane):
        here = lane[3:] in lanes
        return (None if change is None else answers(lane) | change) if here else answers(lane)

    return study.write(folder / "small", study.content(**{"missing": "wrong"} | decision), 12, record)


def arm(judged: dict, name: str) -> dict:
    return next(one for one in judged["arms"] if one["arm"] == name)


@pytest.mark.parametrize(("change", "ended"), [(study.FAILED, "failed"), (ERROR, "error")])
def test_a_lane_that_ended_without_a_grade_is_wrong_and_counted(tmp_path, change, ended):
    judged = judge(write(tmp_path, change, {("crystal", 1, "p003")}))
    assert judged["rule_says"] == "CONFIRMED"
    # Eleven problems won by both seeds, one by one of them; no problem is dropped.
    assert [contrast["n"] for contrast in judged["contrasts"]] == [12, 12]
    assert [contrast["difference"] for contrast in judged["contrasts"]] == [f"{11.5 / 12:.6f}", f"{-0.5 / 12:.6f}"]
    cell = {"model": "tiny", "task": "needle", "budget": "0.5", "arm": "crystal", "seed": 1}
    missing = {"rule": "wrong", "registered": 96, "lanes": 1, "cells": [cell | {"ended": ended, "lanes": 1}]}
    place = {"model": "tiny", "task": "needle", "budget": "0.5", "arm": "crystal"}
    assert judged["missing"] == missing | {"uneven": [place | {"problems": 1, "of": 12}]}
    assert (arm(judged, "crystal")["accuracy"], arm(judged, "crystal")["failed"]) == (f"{23 / 24:.6f}", 1)
    assert judged["does_not_prove"][0].startswith(
        "The answers of 1 of 96 lanes: they ended without a grade and count as not correct,"
    )
    assert not any("registered question" in one for one in judged["does_not_prove"])


def test_the_same_lanes_leave_the_question_open_where_that_is_registered(tmp_path):
    judged = judge(write(tmp_path, study.FAILED, {("crystal", 1, "p003")}, missing="inconclusive"))
    assert judged["rule_says"] == "INCONCLUSIVE"
    assert [contrast["n"] for contrast in judged["contrasts"]] == [11, 11]


def test_failing_is_no_way_to_win(tmp_path):
    failing = {("crystal", seed, f"p{number:03d}") for seed in (0, 1) for number in range(10)}
    judged = judge(write(tmp_path, study.FAILED, failing))
    # Ten problems lost to h2o, two even: 2 / 2^10. Against snapkv two won: 2 / 2^2.
    assert [contrast["p"] for contrast in judged["contrasts"]] == ["0.500000", f"{2 / 2**10:.6f}"]
    assert judged["rule_says"] == "REFUTED"


def test_a_lane_that_was_never_run_leaves_the_question_open(tmp_path):
    judged = judge(write(tmp_path, None, {("crystal", 1, "p003")}))
    assert judged["rule_says"] == "INCONCLUSIVE"
    assert judged["does_not_prove"][0] == (
        "The registered question: 1 of 96 lanes were never run, and the registered rule then answers INCONCLUSIVE."
    )
    assert not any(
        "lanes: they ended without a grade and count as not correct," in one for one in judged["does_not_prove"]
    )


def test_caches_are_compared_where_every_lane_was_measured(tmp_path):
    def record(lane):
        if lane[3:] == ("snapkv", 0, "p005"):
            return study.FAILED
        held = 100 if lane[5] == "p005" else 200  # the one problem that holds less is not measured in snapkv
        return answers(lane) | {"cache": study.cache(held)}

    content = study.content(missing="wrong", memory="slots")
    judged = judge(study.write(tmp_path / "small", content, 12, record))
    one = judged["contrasts"][0]
    assert (one["cache_ratio"], one["cache_worst"], one["matched"], one["n"]) == ("1.000000", "1.000000", True, 12)
    assert one["isocache"]["within"] == "1.000000"
    assert judged["rule_says"] == "CONFIRMED"


def test_an_arm_that_was_hardly_measured_matches_nothing(tmp_path):
    failing = {("crystal", 0, f"p{number:03d}") for number in range(11)}
    judged = judge(write(tmp_path, study.FAILED, failing))
    assert [(contrast["difference"], contrast["matched"]) for contrast in judged["contrasts"]] == [(None, False)] * 2
    assert judged["rule_says"] == "INCONCLUSIVE"
    assert any("fewer than two problems could be compared" in one for one in judged["does_not_prove"])
