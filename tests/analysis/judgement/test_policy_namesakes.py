"""Policies whose name another paper gives to another method are told apart wherever a study is read."""

import importlib

import pytest

import policies
from analysis.judgement import policy_namesakes, statements


def lock(*names):
    arms = {f"arm-{number}": {"policy": name} for number, name in enumerate(names)}
    return {"protocol": {"content": {"arms": arms}}}


def test_every_name_is_one_of_the_catalogue_and_its_docstring_names_the_other_paper():
    for name in policy_namesakes.NAMESAKES:
        assert name in policies.names()
        maker = name.removesuffix("-20")
        described = getattr(importlib.import_module(f"policies.{maker}"), maker)
        assert "CrystalCache paper calls another policy" in described.__doc__


@pytest.mark.parametrize(
    ("name", "definition"), [("chunkkv", "Eq. 6"), ("pyramidkv", "section 4.3"), ("scissorhands", "section 2.2")]
)
def test_a_study_with_the_policy_says_what_it_is_not(name, definition):
    (said,) = policy_namesakes.describe_namesakes(lock("h2o", name))
    assert definition in said


def test_two_arms_of_one_definition_are_told_once_and_other_studies_say_nothing():
    assert len(policy_namesakes.describe_namesakes(lock("chunkkv", "chunkkv-20"))) == 1
    assert policy_namesakes.describe_namesakes(lock("h2o", "snapkv")) == []
    assert policy_namesakes.describe_namesakes({"protocol": {"content": {}}}) == []


def code_source(arms):
    return statements._code_source({"protocol": {"content": {"arms": arms}}})


def test_an_arm_that_ran_a_press_is_not_called_an_implementation_of_ours():
    own, press = {"policy": "snapkv"}, {"press": "kvpress:SnapKVPress"}
    assert code_source({"a": own}) == "these are this project's implementations"
    mixed = code_source({"a": own, "b": press})
    assert mixed == "b ran kvpress' code on the prompt, the others this project's implementations"
    assert code_source({"b": press}) == "b ran kvpress' code on the prompt"
