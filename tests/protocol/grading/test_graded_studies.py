"""Golds are checked before the lock, records carry both grades, and recorded texts can be graded again."""

from contextlib import nullcontext

import finished_study
import pytest

from protocol import grading, regrade, tasks
from protocol.formats.refusals import BadInput
from protocol.grading.mathverify import MathVerify
from protocol.lock import lock
from protocol.preflight import frozen_problems
from protocol.regrade import regrade as graded_again
from protocol.run.executors import answers

GOLDS = {"p/0": "\\frac{1}{2}", "p/1": "12", "p/2": "x^2"}


class Tiny:
    """A task of three mathematical problems."""

    grader = "math"

    def gold(self, problem_id):
        return GOLDS[problem_id]


@pytest.fixture(scope="module")
def grader():
    with MathVerify() as opened:
        yield opened


@pytest.fixture
def tiny(monkeypatch, grader):
    """The task, and one process of math-verify for all tests."""
    monkeypatch.setattr(frozen_problems, "MathVerify", lambda: nullcontext(grader))
    monkeypatch.setattr(tasks.registry, "TASKS", dict(tasks.TASKS) | {"tiny": Tiny()})


def items(dev, confirm):
    return {"tiny": {"dev": dev, "confirm": confirm}, "needle-256": {"dev": ["n"], "confirm": ["n"]}}


def known(*names):
    return {name: tasks.get(name) for name in names or ("tiny", "needle-256")}


def test_golds_that_verify_are_counted_in_the_lock(tiny):
    golds = {"tiny": {"purpose": "gold self-check", "dev": 2, "confirm": 1}}
    frozen_problems.refuse_wrong_golds(items(["p/0", "p/1"], ["p/2"]), known())
    assert frozen_problems.count_all_golds(items(["p/0", "p/1"], ["p/2"]), known()) == golds


def test_a_study_without_mathematical_tasks_has_nothing_to_check():
    item = {"needle-256": {"dev": ["n"], "confirm": ["n"]}}
    assert frozen_problems.count_all_golds(item, known("needle-256")) == {}


@pytest.mark.parametrize("bad", ["", "{1", "$", "1}{2"])
@pytest.mark.parametrize("place", ["p/1", "p/2"])  # development, held out
def test_a_gold_that_does_not_verify_is_refused_by_its_id_and_not_shown(tiny, monkeypatch, place, bad):
    monkeypatch.setitem(GOLDS, place, bad)
    with pytest.raises(BadInput, match=rf"tasks: tiny: the gold answer of {place} is not graded as correct") as refusal:
        frozen_problems.refuse_wrong_golds(items(["p/0", "p/1"], ["p/2"]), known())
    assert not bad or bad not in str(refusal.value)


def test_a_mathematical_record_has_both_grades_and_another_has_one(grader):
    text = r"Half of it: \boxed{0.5}"
    assert answers.grade_fields("\\frac{1}{2}", text, grader, grading.SECOND["math"]) == {
        "answer": "0.5",
        "grade": "correct",
        "grade_reason": "",
        "grade_second": "wrong",
    }
    plain = answers.grade_fields("8", r"\boxed{8}", grading.GRADERS["boxed"](), grading.SECOND.get("boxed"))
    assert plain == {"answer": "8", "grade": "correct", "grade_reason": ""}


def body(problem, text, grade, state="ok", task="tiny"):
    cell = {"model": "m", "task": task, "budget": "64", "arm": "a", "seed": 0}
    return {"cell": cell, "problem": problem, "state": state, "text": text, "grade": grade}


def test_recorded_texts_are_graded_again_and_both_kinds_of_difference_are_counted(tiny):
    done = graded_again(
        [
            body("p/0", r"\boxed{0.5}", "correct"),
            body("p/1", r"\boxed{12}", "wrong"),
            body("p/2", "nothing", "no answer"),
            body("p/2", "", None, state="failed"),
        ]
    )
    assert (done.graded, done.second) == (3, 3)
    assert done.changed == (("m/tiny/64/a/0/p/1", "wrong", "correct"),)
    assert done.disagreed == (("m/tiny/64/a/0/p/0", "correct", "wrong"),)
    assert "1 of 3 (33.3 %): the two graders disagree" in regrade.format_regrades(done)


def test_a_retrieval_text_is_graded_again_without_a_tokenizer():
    task = tasks.get("needle-256")
    item = task.ids()[0]
    gold = task.build(item, lambda text: 2 * len(text.split())).gold
    done = graded_again([body(item, f" {gold}.", "correct", task="needle-256")])
    assert (done.graded, done.changed, done.second, done.disagreed) == (1, (), 0, ())


def test_the_held_out_records_of_an_unsealed_study_are_not_regraded(tmp_path, capsys):
    assert regrade.main([str(tmp_path)]) == 2
    lock.write(tmp_path, finished_study.lock_content())
    assert regrade.main([str(tmp_path)]) == 2
    assert "is not sealed; pass --probe" in capsys.readouterr().err
