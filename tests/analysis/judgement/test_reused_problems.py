"""A study on held-out problems that were opened before decides nothing; a reproduction proves its run alone."""

import pytest
import study

from analysis.judge import judge
from analysis.rules import verdict_line
from protocol.command import EXIT_STATUS
from protocol.evidence import verdict

PROBLEMS = 200
OPENED = [{"name": "first", "lock": "0" * 64, "problems": {"needle": ["p000"]}}]
UNREAD = [{"name": "first", "lock": None, "problems": {}}]
PARENT = {"name": "first", "lock": "0" * 64}
DEVIATED = {"name": "first", "lock": "0" * 64, "reason": "r", "diff": [], "seen": {}, "after_claim": True}


def judged(tmp_path, *, rights=60, problems=PROBLEMS, **lock):
    """crystal alone answers the first `rights` problems right, h2o and snapkv the last twenty."""

    def record(lane):
        *_, arm, _, problem = lane
        number = int(problem[1:])
        is_right = arm == "full" or (number < rights if arm == "crystal" else number >= problems - 20)
        return {"grade": "correct"} if is_right else {}

    content = study.content(method="restricted-likelihood", memory="slots")
    content["decision"] = {name: value for name, value in content["decision"].items() if name not in ("draws", "seed")}
    lock = {"judging": 2, "opened": [], "parent": None, "amends": None} | lock
    return judge(study.write(tmp_path / "study", content, problems, record, **lock))


def first_lines(judgement):
    return " ".join([verdict_line.format_line(judgement), *verdict_line.list_remarks(judgement)])


def test_fresh_problems_may_confirm(tmp_path):
    fresh = judged(tmp_path)
    assert fresh["verdict"] == "CONFIRMED"
    assert "rule_says" not in fresh
    assert "RE-USED" not in first_lines(fresh)


@pytest.mark.parametrize("opened", [OPENED, UNREAD])
@pytest.mark.parametrize(("rights", "rule_says"), [(60, "CONFIRMED"), (0, "REFUTED")])
def test_what_the_rule_decides_on_opened_problems_is_reused(tmp_path, opened, rights, rule_says):
    """One problem is enough, and so is a registration that nobody can read."""
    reused = judged(tmp_path, rights=rights, opened=opened)
    assert (reused["verdict"], reused["rule_says"]) == ("RE-USED", rule_says)
    assert reused["proves"] == []
    assert first_lines(reused).count("RE-USED") == 2  # the word, and the remark with its reason
    assert rule_says not in first_lines(reused)
    assert "by first" in first_lines(reused) or "the problems that first had opened" in first_lines(reused)


def test_an_undecided_study_stays_inconclusive_and_carries_the_word(tmp_path):
    undecided = judged(tmp_path, rights=22, opened=OPENED)
    assert undecided["verdict"] == "INCONCLUSIVE"
    assert verdict_line.format_verdict(undecided) == "INCONCLUSIVE [RE-USED]"


@pytest.mark.parametrize(
    ("lock", "word"), [({"amends": DEVIATED}, "DEVIATED"), ({"problems": 199}, "SCREENED"), ({}, "RE-USED")]
)
def test_deviated_comes_before_screened_and_screened_before_reused(tmp_path, lock, word):
    assert judged(tmp_path, opened=OPENED, **lock)["verdict"] == word


def test_a_study_that_is_judged_as_shipped_keeps_its_word(tmp_path):
    shipped = judged(tmp_path, judging=1, opened=OPENED)
    assert shipped["verdict"] == "CONFIRMED"
    assert "qualifiers" not in shipped


def test_a_reproduction_says_so_in_its_first_line_and_proves_its_run_alone(tmp_path):
    reproduction = judged(tmp_path, parent=PARENT)
    assert verdict_line.format_verdict(reproduction) == "CONFIRMED [REPRODUCTION]"
    assert "nothing about other problems" in first_lines(reproduction)
    assert reproduction["proves"] == []
    fresh = judged(tmp_path / "fresh", parent=PARENT | {"fresh": True})
    assert verdict_line.format_verdict(fresh) == "CONFIRMED"
    assert fresh["proves"] != []


def test_the_word_is_known_wherever_verdicts_are(tmp_path):
    assert "RE-USED" in verdict.VERDICTS
    assert EXIT_STATUS["RE-USED"] == EXIT_STATUS["INCONCLUSIVE"]
