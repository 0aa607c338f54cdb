"""What own parts have the engine keep is counted by what can be reached, and not by their word."""

from typing import NamedTuple

import pytest
import torch

from policies.policy import refuse_subclass
from protocol.engine.lane_memory import Memory
from protocol.engine.own_parts import count_reachable_bytes, is_plain


class Pair(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor


class Hiding:
    """A memory that says that it has nothing."""

    def __init__(self, cache):
        self.cache = cache

    def retain(self, retained):
        return self

    def tensors(self):
        return ()


def test_a_memory_that_says_it_has_nothing_is_counted_with_what_it_has():
    positions = torch.zeros(1, 1, 4, dtype=torch.int64)
    hiding = Memory(positions, evicted_at=4, scale=1.0, prompt=4, remembered=Hiding([torch.zeros(1000)]))
    assert hiding.bytes() >= 32 + 4000
    assert Memory(positions, evicted_at=4, scale=1.0, prompt=4).bytes() == 32


def test_a_view_is_counted_with_its_whole_storage_and_once():
    whole = torch.zeros(1000)
    assert 4000 <= count_reachable_bytes([Hiding((whole[:0], whole[5:]))]) < 5000


@pytest.mark.parametrize("state", [None, torch.zeros(2), (torch.zeros(2), None), ((torch.zeros(1),), torch.zeros(1))])
def test_tensors_and_tuples_of_them_are_plain(state):
    assert is_plain(state)


def test_what_may_hide_something_is_not_plain():
    with_attribute = torch.zeros(2)
    with_attribute.cache = [1]
    for state in (with_attribute, [torch.zeros(2)], {"a": 1}, Hiding(1), Pair(torch.zeros(1), torch.zeros(1))):
        assert not is_plain(state)


def test_scores_of_a_class_of_their_own_are_refused():
    class Own(torch.Tensor):
        pass

    with pytest.raises(ValueError, match=r"must be a torch\.Tensor, not a Own"):
        refuse_subclass(torch.zeros(2), torch.zeros(2).as_subclass(Own))
