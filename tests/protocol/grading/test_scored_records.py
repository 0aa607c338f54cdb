"""A score on its way from a grader to a record, graded again, and what a record with one may hold."""

import pytest

from protocol import grading, regrade, tasks
from protocol.formats import record_fields
from protocol.grading import make_score
from protocol.preflight import development_results
from protocol.recompute.verify_grades import Graders, _describe_difference
from protocol.regrade import regrade as graded_again
from protocol.run.executors import answers


class Halves:
    """Half a score for each of the two words of the gold answer that stand in the text."""

    def grade(self, gold, text):
        return make_score(sum(word in text for word in gold.split()) / 2, text)


class Strict:
    """The same, but whole or nothing."""

    def grade(self, gold, text):
        return make_score(float(all(word in text for word in gold.split())), text)


class Two:
    """A task with two problems, of which the second has two right answers."""

    grader = "halves"

    def gold(self, problem_id):
        return {"p/0": "red car", "p/1": ("blue ship", "red bus")}[problem_id]


@pytest.fixture
def two(monkeypatch):
    monkeypatch.setattr(tasks.registry, "TASKS", dict(tasks.TASKS) | {"two": Two()})
    monkeypatch.setattr(grading, "GRADERS", dict(grading.GRADERS) | {"halves": Halves})
    monkeypatch.setattr(grading, "SECOND", {"halves": Strict()})


def body(problem, text, score, second=None, state="ok"):
    cell = {"model": "m", "task": "two", "budget": "64", "arm": "a", "seed": 0}
    own = {"cell": cell, "problem": problem, "state": state, "text": text, "answer": text, "grade_reason": ""}
    return own | {"grade": "scored", "score": score, "grade_second": "scored", "score_second": second}


def test_a_scored_record_has_a_score_beside_each_grade_that_is_scored():
    assert answers.grade_fields("red car", "a red bus", Halves(), Strict()) == {
        "answer": "a red bus",
        "grade": "scored",
        "grade_reason": "",
        "score": "0.500000",
        "grade_second": "scored",
        "score_second": "0.000000",
    }
    alone = answers.grade_fields("red car", "a red bus", Halves(), None)
    assert alone.keys() == {"answer", "grade", "grade_reason", "score"}
    mixed = answers.grade_fields("12", "12", grading.get_grader("exact"), Halves())
    assert "score" not in mixed
    assert mixed["score_second"] == "0.500000"


def test_of_several_right_answers_the_one_that_is_met_best_scores():
    found = answers.grade_fields(("blue ship", "red bus"), "a red bus", Halves(), Strict())
    assert (found["score"], found["score_second"]) == ("1.000000", "1.000000")


def test_recorded_scores_are_graded_again_and_their_distance_is_told(two):
    done = graded_again(
        [
            body("p/0", "red", "0.500000", "0.000000"),
            body("p/0", "red car", "0.500000", "1.000000"),
            body("p/1", "red bus", "1.000000", "1.000000"),
        ]
    )
    assert done.changed == (("m/two/64/a/0/p/0", "scored 0.500000", "scored 1.000000"),)
    assert done.disagreed == (("m/two/64/a/0/p/0", "scored 0.500000", "scored 0.000000"),)
    assert (done.second, done.apart) == (3, "0.166667")
    said = regrade.format_regrades(done)
    assert "1 of 3 (33.3 %): the two graders disagree; the mean distance of their scores is 0.166667" in said


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, ""),
        ({"score": "0.400000"}, "score is '0.400000', now '0.500000'"),
        ({"score_second": "0.400000"}, "score_second is '0.400000', now '0.000000'"),
        ({"grade": "wrong"}, "grade is 'wrong', now 'scored'"),
    ],
)
def test_an_audit_holds_scores_against_the_text(two, change, says):
    recorded = body("p/0", "red", "0.500000", "0.000000") | change
    assert _describe_difference(recorded, *Graders().grade(recorded)) == says


def good():
    return {"grade": "scored", "score": "0.500000"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"grade": "wrong"}, "body.score: contradicts the grade 'wrong'"),
        ({"score": None}, "body.score"),
        ({"score": "0.5"}, "body.score"),
        ({"score": "1.000001"}, "body.score"),
        ({"score": "-0.500000"}, "body.score"),
        ({"score": 0.5}, "body.score"),
        ({"grade_second": "scored"}, "body.score_second: is missing for the grade_second 'scored'"),
        ({"score_second": "0.500000"}, "body.score_second: contradicts the grade_second None"),
        ({"grade_second": "wrong", "score_second": "0.500000"}, "contradicts the grade_second 'wrong'"),
    ],
)
def test_a_score_stands_beside_the_grade_scored_and_beside_no_other(change, says):
    import finished_study

    whole = finished_study.body("e" * 64, "crystal", "p2") | good()
    costs = {"attempt": 1, "prefill_seconds": "0.1", "decode_seconds": "2"}
    assert record_fields.find_fault(whole, costs) is None
    assert says in record_fields.find_fault(whole | change, costs)
    lacking = {name: value for name, value in whole.items() if name != "score"}
    assert "body.score: is missing for the grade" in record_fields.find_fault(lacking, costs)


def test_a_lane_that_did_not_end_well_has_no_score():
    import finished_study

    failed = finished_study.body("e" * 64, "crystal", "p2") | {
        **dict.fromkeys(("stop", "answer", "grade", "cache", "trajectory")),
        **{"state": "failed", "reason": "why", "score": "0.500000"},
    }
    assert record_fields.find_fault(failed, {"attempt": 1}) == "body.state: 'failed' excludes the field score"


def test_development_answers_are_counted_by_their_score():
    lanes = [
        {"state": "ok", "grade": "scored", "stop": "eos", "score": "0.250000"},
        {"state": "ok", "grade": "scored", "stop": "length", "score": "1.000000"},
        {"state": "ok", "grade": "no answer", "stop": "length"},
        {"state": "excluded", "grade": None, "stop": None},
    ]
    row = development_results.count_answers(lanes)
    assert (row["lanes"], row["correct"], row["truncated"]) == (3, "1.250000", 2)
    assert development_results.format_shares(row).startswith("   3 lanes, mean score 41.7%")
    right = development_results.count_answers([{"state": "ok", "grade": "correct", "stop": "eos"}] * 3)
    assert development_results.format_shares(right).startswith("   3/3    100.0%")
