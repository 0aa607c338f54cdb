"""Versions of dicts: every change of one shows, with an interpreter that numbers changes and without."""

import pytest

from protocol.run.executors import dict_versions
from protocol.run.executors.dict_versions import DictVersions


@pytest.fixture(params=[True, False], ids=["numbered", "compared"])
def interpreter(request, monkeypatch):
    if request.param and not dict_versions.IS_COUNTED:
        pytest.skip("this interpreter does not number the changes of dicts")
    monkeypatch.setattr(dict_versions, "IS_COUNTED", request.param)


CHANGES = {
    "another value": lambda each: each.update(a=2),
    "a new name": lambda each: each.update(b=1),
    "a name less": lambda each: each.pop("a"),
    "nothing left": lambda each: each.clear(),
    "a default": lambda each: each.setdefault("b"),
}


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_shows_until_it_is_accepted(change):
    dicts = [{"a": 1}, {"a": 1}, {"a": 1}]
    versions = DictVersions(dicts)
    dicts[0].get("a")
    assert versions.find_changed() == []
    CHANGES[change](dicts[1])
    assert versions.find_changed() == [1]
    versions.accept(1)
    assert versions.find_changed() == []


@pytest.mark.usefixtures("interpreter")
def test_a_class_and_a_module_are_watched_by_their_names():
    import types

    class Kind:
        pass

    module = types.ModuleType("module")
    versions = DictVersions([vars(Kind), vars(module)])
    Kind.kept = 1
    assert versions.find_changed() == [0]
    versions.accept(0)
    module.kept = 1
    assert versions.find_changed() == [1]


@pytest.mark.usefixtures("interpreter")
def test_no_dicts_have_no_changes():
    assert DictVersions([]).find_changed() == []
