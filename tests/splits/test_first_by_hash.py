"""A part of a split: the first ids by their hash, so that a smaller study is part of a larger one."""

import hashlib

import pytest
from looped import looped

import splits
from protocol import tasks
from protocol.formats import canonical
from protocol.formats.refusals import BadInput
from protocol.preflight import task_splits


@looped("name", tasks.TASKS)
def test_a_smaller_part_of_a_split_is_part_of_a_larger_one_in_the_order_of_the_source(name):
    whole = task_splits.read_split(name, tasks.get(name))
    before: set[str] = set()
    for size in sorted({1, 2, len(whole["confirm"]) // 2, len(whole["confirm"])}):
        part = task_splits.take_subset(whole, {"name": name, "confirm": size})
        assert part["dev"] == whole["dev"]
        assert len(part["confirm"]) == size
        assert before < set(part["confirm"]) <= set(whole["confirm"])
        assert part["confirm"] == [item for item in whole["confirm"] if item in set(part["confirm"])]
        before = set(part["confirm"])
    assert task_splits.take_subset(whole, {"name": name}) == whole == part


def test_the_first_are_those_with_the_smallest_md5_whatever_their_place():
    ids = [f"p/{number}" for number in range(50)]
    ranked = sorted(ids, key=lambda item: hashlib.md5(item.encode()).hexdigest())
    for size in (1, 7, 50):
        for order in (ids, ids[::-1]):
            assert set(splits.subsample(order, size)) == set(ranked[:size])
    assert splits.subsample(ids[::-1], 50) == tuple(ids[::-1])


@pytest.mark.parametrize("part", ["dev", "confirm"])
def test_more_problems_than_there_are_are_refused_with_their_number(part):
    whole = {"dev": ["a"], "confirm": ["b"]}
    says = f"tasks: mine: {part}: 2 problems are registered, but there are only 1; write 1 or fewer, or leave {part}"
    with pytest.raises(BadInput, match=says):
        task_splits.take_subset(whole, {"name": "mine", part: 2})


def test_facts_are_those_of_the_chosen_problems():
    whole = {"dev": ["a", "b"], "confirm": ["c"], "clusters": {"a": "x", "b": "x", "c": "y"}}
    (left,) = splits.subsample(["a", "b"], 1)
    part = task_splits.take_subset(whole, {"name": "mine", "dev": 1})
    assert part == {"dev": [left], "confirm": ["c"], "clusters": {left: "x", "c": "y"}}


def test_ids_that_no_file_keeps_make_the_manifest_that_a_file_would_hold(tmp_path):
    ids, source = ["p/1", "p/2", "p/3"], "0" * 64
    content = splits.manifest.build_content("mine", ids, source)
    data = canonical.encode(content) + b"\n"
    assert splits.make_manifest("mine", ids, source) == splits.parse_manifest("mine", data, "mine.json")
