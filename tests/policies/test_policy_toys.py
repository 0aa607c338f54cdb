"""Six tokens and two query heads, small enough to follow by hand."""

import pytest
import torch

import policies
from policies import PerHead, Policy, Protect, View
from policies.h2o import h2o
from policies.signals import AttentionSums
from policies.snapkv import snapkv
from policies.streaming import streaming

ROWS = (
    "1; .6 .4; .5 .1 .4; .4 .3 .1 .2; .3 .1 .05 .35 .2; .2 .05 .3 .1 .05 .3",
    "1; .7 .3; .6 .3 .1; .5 .1 .2 .2; .4 .2 .1 .1 .2; .3 .1 .1 .2 .1 .2",
)
ATTENTION = torch.tensor(
    [[[float(x) for x in (row + " 0" * 6).split()[:6]] for row in head.split(";")] for head in ROWS]
)


def kept(policy: Policy, budget: int, kv_heads: int) -> list[list[int]]:
    """Kept slots of each KV head: 2 heads are one query head each, 1 head serves both."""
    signals = {AttentionSums(): (ATTENTION.sum(1),), AttentionSums(window=2): (ATTENTION[:, 4:].sum(1),)}
    view = View(torch.arange(6), 1, kv_heads, frozenset(), 0, signals)
    return [head.nonzero().flatten().tolist() for head in policy.keep(view, budget)[0]]


def test_h2o_keeps_two_heavy_hitters_and_two_recent_slots():
    # Column sums: 3.0 .95 .85 .65 .25 .3 and 3.5 1.0 .5 .5 .3 .2.
    assert kept(h2o(), 4, kv_heads=2) == [[0, 1, 4, 5], [0, 1, 4, 5]]
    assert kept(h2o(), 4, kv_heads=1) == [[0, 1, 4, 5]]


def test_h2o_gives_the_odd_slot_to_the_heavy_hitters():
    assert kept(h2o(), 5, kv_heads=1) == [[0, 1, 2, 4, 5]]
    assert kept(h2o(), 1, kv_heads=1) == [[0]]


def test_snapkv_pools_what_the_window_attends_to():
    # Window means .25 .075 .175 .225 and .35 .15 .1 .15.
    # Pooled .1083 .1667 .1583 .1333 and .1667 .2 .1333 .0833.
    assert kept(snapkv(window=2, kernel=3), 4, kv_heads=2) == [[1, 2, 4, 5], [0, 1, 4, 5]]


def test_snapkv_shares_the_group_mean():
    # Pooled mean .1375 .1833 .1458 .1083; without pooling .3 .1125 .1375 .1875.
    assert kept(snapkv(window=2, kernel=3), 4, kv_heads=1) == [[1, 2, 4, 5]]
    assert kept(snapkv(window=2, kernel=1), 4, kv_heads=1) == [[0, 3, 4, 5]]


def test_snapkv_scores_are_the_pooled_sums():
    view = View(torch.arange(6), 1, 2, frozenset(), 0, {AttentionSums(window=2): (ATTENTION[:, 4:].sum(1),)})
    slots = snapkv(window=2, kernel=3).scoring.score(view).slots / 2
    expected = [[0.1083, 0.1667, 0.1583, 0.1333, 0, 0], [0.1667, 0.2, 0.1333, 0.0833, 0, 0]]
    assert slots[0].tolist() == [pytest.approx(row, abs=1e-4) for row in expected]


def test_streaming_keeps_the_sink_and_the_last_slots():
    assert kept(streaming(sinks=1), 4, kv_heads=1) == [[0, 3, 4, 5]]


def test_heads_share_one_set_under_shared_routing():
    shared = policies.get("h2o", routing=policies.Shared(), protect=Protect(sinks=0, recent=0))
    alone = policies.get("h2o", routing=PerHead(), protect=Protect(sinks=0, recent=0))
    # Sums 3.0 .95 .85 .65 .25 .3 and 3.5 1.0 .5 .5 .3 .2; their mean 3.25 .975 .675 .575 .275 .25.
    assert kept(alone, 5, kv_heads=2) == [[0, 1, 2, 3, 5], [0, 1, 2, 3, 4]]
    assert kept(shared, 5, kv_heads=2) == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]
