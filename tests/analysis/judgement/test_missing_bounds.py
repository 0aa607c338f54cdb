"""Where lanes without a grade count as wrong, a verdict results whatever they would have been."""

from typing import Any

import pytest
import study

from analysis.judge import judge
from figures.report_page.answer import format_answer

PROBLEMS = 287
RIGHT, CRASHED = {"grade": "correct"}, study.FAILED


def judged(folder, crashed: dict[str, range], right: dict[str, range], judging: int = 2, **decision: Any):
    """right: by arm, the problems that it answers, by default those below 200. crashed: those without a grade."""
    settings = {"method": "restricted-likelihood", "draws": None, "against": ["snapkv"], "missing": "wrong"}
    content = study.content(**settings | decision) | {"seeds": [0]}

    def record(lane: study.Lane) -> dict:
        arm, problem = lane[3], int(lane[5][1:])
        if problem in crashed.get(arm, ()):
            return CRASHED
        return RIGHT if problem in right.get(arm, range(200)) else {}

    lock = {"judging": judging, "chance": {"needle": "0"}}
    return judge(study.write(folder / "small", content, PROBLEMS, record, **lock))


EQUIVALENT = {"rule": "equivalent", "margin": "0.05", "at_least": None}


def test_a_subject_that_crashes_where_it_alone_is_right_is_not_equivalent(tmp_path):
    # Right on 234 where the comparator is on 200: +11.8 points. It crashes on the 34.
    crashed, right = {"crystal": range(200, 234)}, {"crystal": range(234)}
    assert judged(tmp_path / "before", crashed, right, judging=1, **EQUIVALENT)["verdict"] == "CONFIRMED"
    found = judged(tmp_path / "today", crashed, right, **EQUIVALENT)
    assert (found["verdict"], found["missing"]["owed"], found["proves"]) == ("INCONCLUSIVE", True, [])
    (row,) = found["contrasts"]
    assert row["difference"] == "0.000000"  # as counted
    assert row["unanswered"] == {"low": "0.000000", "high": f"{34 / 287:.6f}"}
    assert float(row["high_margin"]) > 0.05 >= float(row["p_worse"])
    assert float(row["p_better"]) > 0.5
    assert "the answer depends on the grades of 34 lanes that ended without one" in format_answer(found)


def test_lanes_that_an_equal_subject_crashed_refute_nothing(tmp_path):
    crashed = {"crystal": range(12)}
    before = judged(tmp_path / "before", crashed, {}, judging=1)
    assert before["verdict"] == "REFUTED"  # 2 / 2^12
    assert "significantly less accurate" in before["proves"][0]
    found = judged(tmp_path / "today", crashed, {})
    assert (found["verdict"], found["proves"], found["contrasts"][0]["worse"]) == ("INCONCLUSIVE", [], False)
    found = judged(tmp_path / "margin", crashed, {}, rule="non_inferior", margin="0.01", at_least=None)
    assert (found["verdict"], found["proves"]) == ("INCONCLUSIVE", [])


@pytest.mark.parametrize("rule", [{}, EQUIVALENT])
def test_a_difference_beyond_what_crashed_lanes_can_be_decides(tmp_path, rule):
    # The subject answers 100 of the 200, and 12 of either arm crashed: at most 124 to 188.
    crashed = {"crystal": range(188, 200), "snapkv": range(12)}
    found = judged(tmp_path / "lost", crashed, {"crystal": range(100)}, **rule)
    assert (found["verdict"], found["missing"].get("owed")) == ("REFUTED", None)
    assert found["contrasts"][0]["unanswered"] == {"low": f"{-100 / 287:.6f}", "high": f"{(112 - 188) / 287:.6f}"}


@pytest.mark.parametrize("arm", ["crystal", "snapkv"])
def test_few_crashed_lanes_of_either_arm_leave_a_win_and_an_equality_standing(tmp_path, arm):
    crashed = {arm: range(198, 200)}
    found = judged(tmp_path / "equal", crashed, {}, **EQUIVALENT)
    assert found["verdict"] == "CONFIRMED"
    found = judged(tmp_path / "won", crashed, {"snapkv": range(100)})
    assert found["verdict"] == "CONFIRMED"


def test_a_comparator_that_crashes_makes_no_win(tmp_path):
    found = judged(tmp_path, {"snapkv": range(40)}, {})
    assert (found["verdict"], found["contrasts"][0]["better"]) == ("INCONCLUSIVE", False)


def test_a_branch_that_two_extremes_refute_for_two_reasons_is_open(tmp_path):
    """With the lanes of the subject correct the primary model is won and the transfer model lost: branch B. With
    them wrong the primary model is lost too: branch C. Between them nothing is won or lost there.
    """
    roles = {"rule": "branch", "primary_model": "qwen", "transfer_model": "llama", "at_least": None}
    content = study.content(
        method="restricted-likelihood", draws=None, against=["snapkv"], missing="wrong", **roles
    ) | {"seeds": [0], "models": ["qwen", "llama"]}

    def record(lane: study.Lane) -> dict:
        model, arm, problem = lane[0], lane[3], int(lane[5][1:])
        if arm == "crystal":
            if model == "llama":
                return RIGHT if problem < 110 else {}
            return CRASHED if problem < 40 else RIGHT if problem < 180 else {}
        return RIGHT if problem in (range(200) if model == "llama" else range(20, 180)) else {}

    lock = {"judging": 2, "chance": {"needle": "0"}}
    found = judge(study.write(tmp_path / "small", content, PROBLEMS, record, **lock))
    assert (found["verdict"], found["missing"]["owed"]) == ("INCONCLUSIVE", True)
