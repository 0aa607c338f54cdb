"""With `missing = "wrong"` no arm is beaten by its own failures: the real judge on studies written here."""

import pytest
import study

from analysis.judge import judge

FAILED = {"state": "failed", "grade": None, "answer": None, "stop": None, "text": "", "reason": "failed"}


def judged(folder, own, other, failed):
    """`crystal` solves the first `own` of 300 problems, the others `other`; `failed` fails what is left."""

    def record(lane):
        solved = {"crystal": own, "full": 300}.get(lane[3], other)
        if int(lane[5][1:]) < solved:
            return {"grade": "correct"}
        return FAILED if lane[3] == failed else {}

    content = study.content(against=["snapkv"], at_least=1, missing="wrong", method="sign-flip")
    content |= {"seeds": [0], "gate": {"accuracy": "0.5", "truncated": "0.1"}}
    return judge(study.write(folder / "s", content, 300, record))


def test_a_win_over_lanes_that_failed_is_not_confirmed(tmp_path):
    """40 wins, all of them over lanes that the comparator never finished."""
    found = judged(tmp_path, own=300, other=260, failed="snapkv")
    assert (found["verdict"], found["proves"]) == ("INCONCLUSIVE", [])
    assert found["missing"]["owed"] is True
    assert any("lanes of a comparator without a grade" in said for said in found["does_not_prove"])


@pytest.mark.parametrize(("own", "other", "failed"), [(300, 260, None), (296, 200, "crystal")])
def test_a_win_over_answers_is(tmp_path, own, other, failed):
    found = judged(tmp_path, own, other, failed)
    assert found["verdict"] == "CONFIRMED"
    assert "owed" not in found["missing"]
