"""The levels that a lock has of a task of ours are those of the task, and other code than today's need have none."""

import copy

import pytest
from finished_study import lock_content
from studies import ROOT

from protocol.evidence.registration import Registration
from protocol.lock import bundle, closure, lock
from protocol.preflight import task_splits, verify_problems
from protocol.tasks import registry

NAME = "association-moved-1024"
TABLE = {"name": NAME, "dev": 3, "confirm": 20, "query": "inside", "max_new_tokens": 5}
PATH = f"splits/{NAME}.json"
HELD = (ROOT / PATH).read_bytes()


@pytest.fixture
def derived(monkeypatch, tmp_path):
    """derived(item, older): what an audit derives of a lock that has it."""
    monkeypatch.setattr(bundle, "read", lambda archive, names: {PATH: HELD})

    def derive(found, older):
        content = lock_content(written={"tasks": [TABLE]}, items={NAME: copy.deepcopy(found)})
        content |= {"sources": {PATH: closure.sha256_hex(HELD)}, "release": "9.9.9" if older else content["release"]}
        study = Registration.with_lock(tmp_path, lock.Lock(content, "0" * 64))
        fields = verify_problems.derive_problem_fields(study)
        assert (fields.faults, fields.undetermined) == ([], [])
        return fields.items[NAME]

    return derive


def item():
    return task_splits.take_subset(task_splits.read_split(NAME, registry.get(NAME)), TABLE)


def test_a_lock_has_the_levels_of_its_problems_alone(derived):
    found = item()
    assert set(found["levels"]) == {*found["dev"], *found["confirm"]}
    assert len(found["levels"]) == 23
    assert derived(found, older=False) == found


@pytest.mark.parametrize("older", [True, False])
def test_another_level_is_named_whatever_code_locked_it(derived, older):
    found = item()
    other = found | {"levels": found["levels"] | {found["confirm"][0]: "9"}}
    assert derived(other, older) == found


def test_levels_that_are_missing_are_a_fault_of_locks_of_this_release_alone(derived):
    found = {name: value for name, value in item().items() if name != "levels"}
    assert derived(found, older=False) == item()
    assert derived(found, older=True) == found


def test_a_task_of_one_length_is_locked_as_before():
    name = "needle-768"
    assert set(task_splits.read_split(name, registry.get(name))) == {"manifest", "dev", "confirm", "population"}
