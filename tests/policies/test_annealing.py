"""ThinKV's annealing: budgets by hand, medoids by loops, and what an event keeps of it."""

import random
from itertools import pairwise

import pytest
import torch
from test_thinkv import THOUGHTS, Given

from policies import Protect, Thresholds, View
from policies.annealing import AnnealedThoughts, anneal_budgets, ladder, medoids
from policies.policy import Policy
from policies.signals import Keys
from policies.thinkv import SegmentsPerHead, Sparsity, Whenever, WithinSegments

E, R, T = range(3)


def test_every_later_transition_halves_a_budget_down_to_the_least():
    """R, E and T keep 64, 32 and 8; a transition does not shrink itself, nor what comes after it."""
    for kinds, expected in (
        ([R, E, R], [64, 32, 64]),
        ([R, E, T], [32, 16, 8]),
        ([R, T, R, T], [16, 4, 32, 8]),
        ([R, E, T, T, T, T, T, R], [4, 4, 4, 4, 4, 4, 8, 64]),
    ):
        kinds = torch.tensor(kinds)
        budgets = torch.tensor([32, 64, 8])[kinds]
        assert anneal_budgets(budgets, kinds, 4).tolist() == expected
    # A budget below the least stays.
    assert anneal_budgets(torch.tensor([3, 64]), torch.tensor([R, T]), 4).tolist() == [3, 64]


def test_the_ladder_is_that_of_the_paper():
    assert ladder(64, 4) == (64, 32, 16, 8, 4)
    assert ladder(3, 1) == (3, 1)
    assert ladder(5, 0) == (5, 2, 1)
    assert ladder(4, 8) == (4,)


def by_loops(keys: list[list[float]], count: int) -> set[int]:
    """Lloyd's algorithm on members in order, with lists."""
    many = len(keys)
    if many <= count:
        return set(range(many))
    centres = [list(keys[place * many // count]) for place in range(count)]
    nearest: list[int] = []
    for _ in range(10):
        before, nearest = nearest, [first_nearest(key, centres) for key in keys]
        if before == nearest:
            break
        for cluster in range(count):
            own = [key for key, of in zip(keys, nearest, strict=True) if of == cluster]
            if own:
                centres[cluster] = [sum(column) / len(own) for column in zip(*own, strict=True)]
    nearest = [first_nearest(key, centres) for key in keys]
    chosen = set()
    for cluster in range(count):
        own = [place for place, of in enumerate(nearest) if of == cluster]
        if own:
            least = min(squared(keys[place], centres[cluster]) for place in own)
            chosen.add(next(place for place in own if squared(keys[place], centres[cluster]) < least + 1e-9))
    return chosen


def squared(one, other):
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def first_nearest(key, centres):
    return min(range(len(centres)), key=lambda cluster: (squared(key, centres[cluster]), cluster))


def test_of_two_heaps_the_middle_of_each_stays():
    keys = torch.tensor([[[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]]])
    everything = torch.ones(1, 6, dtype=torch.bool)
    assert medoids(keys, everything, 2)[0].nonzero().flatten().tolist() == [1, 4]
    # Without the last two the second heap is 10 alone; fewer members than clusters all stay.
    members = torch.tensor([[1, 1, 1, 1, 0, 0]]).bool()
    assert medoids(keys, members, 2)[0].nonzero().flatten().tolist() == [1, 3]
    assert torch.equal(medoids(keys, members, 4), members)


def test_medoids_are_those_of_lists_in_every_row():
    drawn = random.Random(3)
    for _ in range(40):
        longest, width = drawn.randint(3, 24), drawn.randint(1, 3)
        rows, members = [], torch.zeros(3, longest, dtype=torch.bool)
        keys = torch.zeros(3, longest, width, dtype=torch.float64)
        count = drawn.randint(1, 8)
        for row in range(3):
            places = sorted(drawn.sample(range(longest), drawn.randint(1, longest)))
            own = [[drawn.gauss(0, 1) for _ in range(width)] for _ in places]
            members[row, places] = True
            keys[row] = torch.randn(longest, width, generator=torch.Generator().manual_seed(row))
            keys[row, places] = torch.tensor(own, dtype=torch.float64)
            rows.append({places[place] for place in by_loops(own, count)})
        found = medoids(keys, members, count)
        assert [set(row.nonzero().flatten().tolist()) for row in found] == rows


def test_equal_keys_leave_one_of_each():
    keys = torch.tensor([[[1.0]] * 3 + [[2.0]] * 3])
    chosen = medoids(keys, torch.ones(1, 6, dtype=torch.bool), 4)
    assert set(keys[chosen].flatten().tolist()) == {1.0, 2.0}
    assert chosen.sum() <= 4


def an_event(kinds: list[float], keys: list[float], scores: list[float], *, size=4, **settings):
    """One head with one number a key, segments of 4 whose tokens all have the sparsity that kinds say."""
    scoring = AnnealedThoughts(Given(tuple(scores)), size=size, least=1, **settings)
    policy = Policy(scoring, WithinSegments(), SegmentsPerHead(), Whenever(), protect=Protect(0, 0))
    sparse = torch.tensor([[kind for kind in kinds for _ in range(size)]])
    signals = {
        Sparsity(): (sparse,),
        THOUGHTS: Thresholds((0,), 0.4, 0.7),
        Keys(): (torch.tensor(keys).view(1, -1, 1),),
    }
    view = View(torch.arange(len(keys)), 1, 1, frozenset(), 0, signals)
    return policy.keep(view, 100)[0, 0].nonzero().flatten().tolist()


def test_a_transition_shrinks_the_segment_before_it_to_medoids_whatever_the_scores_say():
    """Of a reasoning segment two slots stay; after a transition, which keeps one, one of these two."""
    keys, scores = [0.0, 0, 0, 9, 5, 5, 5, 5], [1.0, 2, 3, 0, 1, 2, 3, 4]
    settings = {"reasoning": 2, "execution": 2, "transition": 1}
    assert an_event([0.5, 0.5], keys, scores, **settings) == [0, 3, 4, 7]
    assert an_event([0.5, 0.9], keys, scores, **settings) == [0, 4]


def test_a_slot_that_stays_at_a_low_step_stays_at_every_higher_one():
    drawn = random.Random(5)
    keys, scores = [drawn.gauss(0, 1) for _ in range(32)], [drawn.random() for _ in range(32)]
    kept = []
    for later in range(5):
        kinds = [0.5] + [0.9] * later
        more = [0.0] * 32 * later
        kept.append({slot for slot in an_event(kinds, keys + more, scores + more, size=32, reasoning=16) if slot < 32})
    assert [len(own) for own in kept] == [16, 8, 4, 2, 1]
    assert all(fewer < more for more, fewer in pairwise(kept))


def test_scores_that_are_not_finite_are_refused_as_those_of_the_base():
    with pytest.raises(ValueError, match="scores must be finite: layer 0, head 0, slot 2 is nan"):
        an_event([0.5], [0.0, 1, 2, 3], [1.0, 2, float("nan"), 4], reasoning=2, execution=1, transition=1)


def test_equal_scores_of_equal_steps_go_to_the_lower_position():
    assert an_event([0.1], [0.0] * 4, [1.0] * 4, reasoning=2, execution=2, transition=1) == [0, 1]
