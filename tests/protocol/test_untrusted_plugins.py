"""Policies and graders of other distributions that break their promises: one line, or one lane."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import studies
import torch

import policies
from policies import Norms, Policy, Scores, catalogue, read_signal
from policies.policy import Eviction, keep_all
from protocol import grading
from protocol.engine import prefill_fan_out
from protocol.formats import plugins
from protocol.formats.refusals import BadInput
from protocol.grading import Grade
from protocol.plan import toml_reader


@dataclass(frozen=True)
class Small:
    weight: float = 0.0
    needs = frozenset({Norms()})

    def score(self, view):
        return Scores(-torch.stack([norms.value for norms in read_signal(view, Norms())]))


@dataclass(frozen=True)
class Raising(Small):
    def score(self, view):
        raise KeyError("first line\nsecond line")


@dataclass
class Mutable:
    weight: float = 0.0
    needs = frozenset({Norms()})


@dataclass(frozen=True)
class Noting(Small):
    seen: list = field(default_factory=list)


class Undeclared:
    needs = frozenset({Norms()})


class Hoarding(Policy):
    def evict(self, view, budget):
        return Eviction(keep_all(view), None)


class Broken:
    def load(self):
        raise RuntimeError("at\nimport")


def point(value):
    return SimpleNamespace(load=lambda: value, value="elsewhere:value")


POINTS = {
    "small": point(Policy(scoring=Small())),
    "raising": point(Policy(scoring=Raising())),
    "mutable": point(Policy(scoring=Mutable())),
    "noting": point(Policy(scoring=Noting())),
    "undeclared": point(Policy(scoring=Undeclared())),
    "hoarding": point(Hoarding(scoring=Small())),
    "scoring": point(Small()),
    "broken": Broken(),
}
REFUSED = {
    "mutable": "scoring is Mutable, whose settings could change after they are locked",
    "noting": "scoring.seen is list, whose settings could change",
    "undeclared": "scoring is Undeclared, whose settings could change",
    "hoarding": "must be a Policy, not Hoarding; pass a custom rule as one of its parts",
    "scoring": "must be a Policy, not Small",
    "broken": r"cannot be loaded \(RuntimeError: at import\); repair or uninstall",
}


@pytest.fixture(autouse=True)
def points(monkeypatch):
    monkeypatch.setattr(plugins, "list_points", lambda group, path: POINTS)


def test_a_policy_of_frozen_parts_is_taken():
    assert policies.get("small", {"scoring.weight": 0.5}).scoring == Small(0.5)


def test_every_part_of_our_own_policies_can_be_locked():
    assert not [path for policy in catalogue.CATALOGUE.values() for path in catalogue.mutable_settings(policy)]


@pytest.mark.parametrize("settings", ["", ', set = { "protect.recent" = 4 }'])
@pytest.mark.parametrize("name", REFUSED)
def test_a_policy_that_no_lock_could_hold_is_refused_in_one_line_with_its_arm(name, settings):
    text = studies.PROTOCOL.format(model="/nowhere").replace('policy = "random"', f'policy = "{name}"{settings}')
    with pytest.raises(BadInput, match=rf"^[^\n]*arms.random.policy: entry point {name} [^\n]*{REFUSED[name]}"):
        toml_reader.parse(text.encode(), "protocol.toml")


def test_a_policy_that_fails_everywhere_is_refused_at_registration_and_nothing_is_written(tmp_path, tiny_model):
    changes = {**studies.ONE_TASK, 'policy = "random"': 'policy = "raising"'}
    folder = studies.write(tmp_path / "study", tiny_model, changes)
    with studies.unchanged(folder):
        done = studies.here("register", folder)
        said = r"arms.random.policy: fails at every budget: KeyError: 'first line\nsecond line'; correct it"
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert said in done.stderr


@pytest.mark.parametrize(
    ("raised", "becomes"), [(KeyError("x"), ValueError), (RuntimeError("y"), ValueError), (MemoryError(), MemoryError)]
)
def test_whatever_a_policy_raises_fails_its_lane_but_for_what_the_machine_lacks(raised, becomes):
    def evict(view, budget):
        raise raised

    with pytest.raises(becomes):
        prefill_fan_out.run_policy(SimpleNamespace(evict=evict), None, 1)


def graded(said):
    def grade(gold, text):
        if isinstance(said, Exception):
            raise said
        return said

    return grading.best_grade(grade, ("a", "b"), "text")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (ZeroDivisionError("x\ny"), "ZeroDivisionError: x y"),
        (BadInput("the row"), "BadInput: the row"),
        (True, "is bool, not a Grade"),
        (None, "is NoneType"),
        (Grade("scored", "a", "", "2.000000"), "has the score '2.000000'"),
        (Grade("scored", "a", "", 0.5), "has the score 0.5"),
        (Grade("scored", "a", ""), "has the status 'scored', which does not go with the score None"),
        (Grade("correct", "a", "", "0.500000"), "has the status 'correct', which does not go with the score"),
        (Grade("right", "a", ""), "has the status 'right'"),
        (Grade("correct", 5, ""), "has an answer or a reason that is not text"),
    ],
)
def test_a_grader_that_raises_or_says_what_is_no_grade_gives_no_grade(said, reason):
    grade = graded(said)
    assert grade.status == "error"
    assert reason in grade.reason
    assert "\n" not in grade.reason


def test_a_grade_is_what_the_grader_says():
    for said in (Grade("scored", "a", "", "1.000000"), Grade("wrong", None, "x"), Grade("correct", "a", "")):
        assert graded(said) == said
