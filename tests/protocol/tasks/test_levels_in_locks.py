"""The levels that a lock has of a task of ours are those of the task, and older locks need have none."""

import hashlib

import pytest
from studies import ROOT

from protocol.lock import frozen_problems, verify_problems
from protocol.tasks import registry

NAME = "association-moved-1024"
TABLE = {"name": NAME, "dev": 3, "confirm": 20}
HELD = (ROOT / "splits" / f"{NAME}.json").read_bytes()


def item():
    return frozen_problems.take_subset(frozen_problems.read_split(NAME, registry.get(NAME)), TABLE)


def faults(found, sources):
    locked = {"items": {NAME: found}, "sources": sources}
    said = verify_problems._locked_facts(locked, NAME)
    return list(verify_problems._manifest_faults(NAME, found, TABLE, HELD, said, []))


def today():
    return {name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest() for name in verify_problems.LEVEL_SOURCES}


def test_a_lock_has_the_levels_of_its_problems_alone():
    found = item()
    assert set(found["levels"]) == {*found["dev"], *found["confirm"]}
    assert len(found["levels"]) == 23
    assert faults(found, today()) == []


@pytest.mark.parametrize("older", [True, False])
def test_another_level_is_named_whatever_code_locked_it(older):
    found = item()
    first = found["confirm"][0]
    (fault,) = faults(found | {"levels": found["levels"] | {first: "9"}}, {} if older else today())
    assert fault.startswith(f"items.{NAME}.levels")


def test_levels_that_are_missing_are_a_fault_of_todays_locks_alone():
    found = {name: value for name, value in item().items() if name != "levels"}
    assert len(faults(found, today())) == 1
    assert faults(found, {}) == []


def test_a_task_of_one_length_is_locked_as_before():
    name = "needle-768"
    assert set(frozen_problems.read_split(name, registry.get(name))) == {"manifest", "dev", "confirm"}
