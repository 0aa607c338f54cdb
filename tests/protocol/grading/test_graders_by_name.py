"""Graders are found by name: ours, those of entry points, and lm-eval's where it is installed."""

import importlib.util
from importlib.metadata import EntryPoint

import pytest

from protocol import grading
from protocol.formats import plugins as entry_point_plugins
from protocol.formats.refusals import BadInput


class Shouting:
    """A grader of somebody else: correct in capitals."""

    scores = False

    @staticmethod
    def grade(gold, text):
        return grading.Grade("correct" if text == gold.upper() else "wrong", text, "")


@pytest.fixture
def plugins(monkeypatch):
    """Makes these the entry points of every distribution that is installed."""

    def installed(**points):
        found = [EntryPoint(name, value, grading.PLUGINS.group) for name, value in points.items()]
        monkeypatch.setattr(
            entry_point_plugins, "entry_points", lambda group: found if group == grading.PLUGINS.group else []
        )
        entry_point_plugins.list_points.cache_clear()

    yield installed
    entry_point_plugins.list_points.cache_clear()


@pytest.mark.parametrize("name", ["exact", "equals", "contains", "boxed", "choice", "f1", "rouge", "code"])
def test_every_name_gives_a_grader_that_grades(name):
    assert grading.get_grader(name).grade("7", r"\boxed{7}").status in ("correct", "wrong", "scored")
    assert grading.second_grader(name) is None


def test_those_that_score_say_so_and_the_others_never_score():
    assert [name for name in grading.grader_names() if grading.gives_scores(name)] == ["f1", "rouge", "code"]
    assert grading.gives_scores("lm_eval:longbench_qasper")


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(BadInput, match="unknown grader 'rogue'; did you mean 'rouge'"):
        grading.get_grader("rogue")


def test_an_entry_point_is_a_grader_by_its_name(plugins):
    plugins(shouting=f"{__name__}:Shouting")
    assert grading.get_grader("shouting").grade("yes", "YES").status == "correct"
    assert grading.grader_names()[-1] == "shouting"
    assert not grading.gives_scores("shouting")


def test_an_entry_point_may_score_unless_it_says_that_it_does_not(plugins, monkeypatch):
    monkeypatch.delattr(Shouting, "scores")
    plugins(shouting=f"{__name__}:Shouting")
    assert grading.gives_scores("shouting")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (True, "is bool, not a Grade"),
        (("correct", "7", "", None), "is tuple, not a Grade"),
        (grading.Grade("right", "7", ""), "has the status 'right'"),
        (grading.Grade("wrong", 7, ""), "has an answer or a reason that is not text"),
        (grading.Grade("wrong", "\ud800", ""), "has an answer or a reason that is not text"),
        (
            grading.Grade("correct", "7", "", "1.000000"),
            "has the status 'correct', which does not go with the score '1.000000'",
        ),
        (grading.Grade("scored", "7", "", "0.500000"), "is a score, and it says that it never gives"),
        (KeyError("7"), "KeyError: '7'"),
    ],
)
def test_what_is_no_grade_of_an_entry_point_is_an_error_and_never_an_answer(given, says, plugins, monkeypatch):
    def grade(gold, text):
        if isinstance(given, Exception):
            raise given
        return given

    monkeypatch.setattr(Shouting, "grade", staticmethod(grade))
    plugins(shouting=f"{__name__}:Shouting")
    found = grading.get_grader("shouting").grade("yes", "YES")
    assert (found.status, found.answer, found.score) == ("error", None, None)
    assert says in found.reason


@pytest.mark.parametrize("score", ["7.0", "1.000001", "0.5", "nan", None, 0.5])
def test_a_score_of_an_entry_point_is_from_nothing_to_all(score, plugins, monkeypatch):
    monkeypatch.setattr(Shouting, "scores", True)
    for given, status in ((score, "error"), ("0.500000", "scored")):
        own = grading.Grade("scored", "7", "", given)
        monkeypatch.setattr(Shouting, "grade", staticmethod(lambda gold, text, own=own: own))
        plugins(shouting=f"{__name__}:Shouting")
        assert grading.get_grader("shouting").grade("yes", "YES").status == status


def test_an_entry_point_cannot_take_the_name_of_a_grader(plugins):
    plugins(shouting=f"{__name__}:Shouting", exact=f"{__name__}:Shouting")
    with pytest.raises(
        BadInput, match=r"entry point exact of kv_prereg\.graders: this name is already in use; rename the grader in"
    ):
        grading.get_grader("shouting")


@pytest.mark.parametrize(
    ("value", "says"), [("no_such_module:x", "cannot be loaded"), ("builtins:dict", "is not a grader")]
)
def test_an_entry_point_that_gives_no_grader_is_refused_in_one_line(plugins, value, says):
    plugins(broken=value)
    with pytest.raises(BadInput, match=f"(entry point broken of kv_prereg.graders|grader 'broken':) .*{says}"):
        grading.get_grader("broken")


def test_without_lm_eval_its_scorers_are_refused_with_the_line_to_type(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "lm_eval" else find(name))
    from protocol import harness

    harness.shared_harness.cache_clear()
    with pytest.raises(BadInput, match=r"lm_eval: is not installed; pip install '\.\[tasks\]'"):
        grading.get_grader("lm_eval:longbench_qasper")
    assert grading.second_grader("lm_eval:longbench_qasper") is not None
