"""How often two graders disagree is reported beside an arm, and only where two of them read."""

import pytest
import study

from analysis.judge import judge


def judged(folder, second):
    def record(lane):
        *_, arm, seed, problem = lane
        if problem == "p003":
            return {"grade": "timeout"} | second(arm, seed, problem)
        return second(arm, seed, problem)

    return judge(study.write(folder / "s", study.content(), 6, record))


def test_disagreements_are_counted_by_arm_where_both_graders_gave_a_grade(tmp_path):
    def second(arm, seed, problem):
        # Every lane is "wrong"; crystal's p000 and p001 at seed 0 and every p003 (timeout) differ.
        other = arm == "crystal" and seed == 0 and problem in ("p000", "p001", "p003")
        return {"grade_second": "correct" if other else "wrong"}

    rows = judged(tmp_path, second)["arms"]
    assert {row["arm"]: row["disagreements"] for row in rows} == {"full": 0, "crystal": 2, "snapkv": 0, "h2o": 0}
    seeds = 2
    assert [row["timeouts"] for row in rows] == [seeds] * 4


def test_an_arm_of_a_study_without_a_second_grader_says_nothing_of_it(tmp_path):
    for row in judged(tmp_path, lambda *lane: {})["arms"]:
        assert "disagreements" not in row


@pytest.mark.parametrize("second", [{"grade_second": "wrong"}, {}])
def test_the_second_grader_decides_nothing(tmp_path, second):
    plain = judged(tmp_path / "plain", lambda *lane: {})
    found = judged(tmp_path / "found", lambda *lane: second)
    assert {**found, "arms": None} == {**plain, "arms": None}
