"""TriAttention's modes of a set per layer and per head: by hand, in loops, and as its own code keeps."""

from dataclasses import dataclass, replace

import pytest
import torch
from official_cases import LAYERS, digest, recorded, scored
from policy_prompts import a_prompt, a_view, random_statistics

import policies
from policies import Calibrated, Statistics, View
from policies.signals import Keys
from policies.triattention import HeadStatistics, LayerStatistics, QueryStatistics, expected_logits, standard_scores

RAW = [[12.0, 0, 1, 3, 5], [1, 2, 0, 4, 3], [0, 1, 2, 5, 4], [2, 0, 1, 4, 6]]


@pytest.mark.parametrize(("name", "kind"), [("1d-per-head", HeadStatistics), ("1d-per-layer", LayerStatistics)])
def test_five_slots_of_two_layers_worked_out_by_hand(name, kind):
    """Two layers of one KV head, so that a layer is a head; one set for all of them would be {0, 4}."""

    @dataclass(frozen=True)
    class Given(kind):
        def logits(self, view):
            return torch.tensor(RAW).view(2, 2, 5)  # two query heads

    scoring, view = Given(), View(torch.arange(5), 2, 1, frozenset(), 0, {})
    kept = policies.get(name, scoring=scoring).keep(view, 2)
    assert [row.nonzero().flatten().tolist() for row in kept[:, 0]] == [[0, 3], [3, 4]]


def event(held, *, t=400, seed=3):
    """Keys of heads that hold different slots, what is beyond those of a head being no numbers."""
    random = torch.Generator().manual_seed(seed)
    prompt = a_prompt(max(map(max, held)), q_heads=4, dim=6, dtype=torch.float64)
    n = prompt.keys.shape[2]
    stored = torch.full((2, 2, n), -1)
    keys = prompt.keys.clone()
    for layer, counts in enumerate(held):
        for head, count in enumerate(counts):
            stored[layer, head, :count] = torch.randperm(t, generator=random)[:count].sort().values
            keys[layer, head, count:] = torch.nan
    statistics = random_statistics(prompt)
    signals = {Keys(): tuple(keys), Calibrated("text"): statistics}
    view = View(torch.zeros(t, dtype=torch.int64), 2, 2, frozenset(), 0, signals, stored=stored)
    return view, keys, statistics


def in_loops(rows):
    """The largest standard score of each slot, row by row."""
    standard = []
    for row in rows:
        values = row.tolist()
        mean = sum(values) / len(values)
        deviation = max((sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5, 1e-6)
        standard.append([(value - mean) / deviation for value in values])
    return [max(column) for column in zip(*standard, strict=True)]


def test_a_head_is_scored_by_the_slots_that_it_holds():
    held = [[30, 12], [1, 25]]
    view, keys, statistics = event(held)
    found = HeadStatistics().score(view).slots
    assert found.shape == (2, 2, 30)
    assert found.isfinite().all()
    for layer in range(2):
        for head, count in enumerate(held[layer]):
            own = Statistics(
                *(part[layer : layer + 1, 2 * head : 2 * head + 2] for part in statistics[:2]), *statistics[2:]
            )
            raw = expected_logits(keys[layer : layer + 1, head : head + 1, :count], own, 400, QueryStatistics().offsets)
            expected = torch.tensor(in_loops(raw[0]), dtype=torch.float64)
            torch.testing.assert_close(found[layer, head, :count], expected, atol=1e-6, rtol=1e-6)


def test_a_layer_is_scored_by_all_of_its_heads_and_layers_may_differ():
    view, keys, statistics = event([[30, 30], [20, 20]])
    stored = view.stored[:, :1].expand(2, 2, -1)
    view = view._replace(stored=stored)
    found = LayerStatistics().score(view).slots
    assert found.shape == (2, 1, 30)
    raw = expected_logits(keys, statistics, 400, QueryStatistics().offsets)
    for layer, count in enumerate((30, 20)):
        expected = torch.tensor(in_loops(raw[layer, :, :count]), dtype=torch.float64)
        torch.testing.assert_close(found[layer, 0, :count], expected, atol=1e-6, rtol=1e-6)
    kept = policies.get("1d-per-layer").keep(view, 10)
    assert torch.equal(kept[:, 0], kept[:, 1])
    assert not torch.equal(kept[0, 0], kept[1, 0])


def test_heads_of_a_layer_that_hold_different_slots_have_no_score_of_their_layer():
    view, _, _ = event([[30, 30], [20, 20]])
    with pytest.raises(ValueError, match=r"heads of a layer contain different slots, .*; choose the routing PerLayer"):
        policies.get("1d-per-layer").keep(view, 10)


def test_rows_without_a_deviation_score_zero():
    filled = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])
    assert standard_scores(torch.full((3, 3), 7.0), filled).tolist() == [[0.0] * 3] * 3


def test_one_head_of_one_layer_is_1d_whatever_the_mode():
    prompt = a_prompt(90, layers=1, q_heads=3, kv_heads=1)
    names = ("1d", "1d-per-layer", "1d-per-head")
    view = a_view(prompt, [policies.get("1d")])
    one, *others = (policies.get(name).keep(view, 40) for name in names)
    assert all(torch.equal(one, other) for other in others)


def test_the_slots_that_official_code_kept_are_ours():
    """WeianMao/triattention @ c3744ee, per_layer_perhead_pruning: `official/make.py triattention`. Of every
    other case heads hold slots at positions of their own.
    """
    cases = recorded("1d-per-head")
    assert len(cases) == 20
    for case, given, expected in cases:
        assert digest(case, scored) == given
        own = scored(case)
        statistics = Statistics(*own[3:5], torch.ones(case.dim), own.frequencies, 1.0)
        signals = {Keys(): tuple(own.keys.double()), Calibrated("text"): statistics}
        seen = torch.zeros(own.seen, dtype=torch.int64)
        view = View(seen, LAYERS, case.kv_heads, frozenset(), 0, signals, stored=own.positions)
        kept = policies.get("1d-per-head").keep(view, case.budget)
        assert [row.nonzero().flatten().tolist() for row in kept.flatten(0, 1)] == expected, case


def test_the_budgets_of_ada_and_pyramid_are_those_of_their_papers_policies():
    assert policies.get("ada-1d").routing == policies.get("ada-snapkv").routing
    assert policies.get("pyramid-1d").routing == policies.get("pyramidkv").routing


def test_a_head_of_many_outliers_gets_more_of_a_layer_s_slots():
    """Two heads of four slots each; the second has its best two far above its others."""

    @dataclass(frozen=True)
    class Two(HeadStatistics):
        def logits(self, view):
            return torch.tensor([[[0.0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 0, 0, 0, 0, 0, 0, 9, 9, 9]]])

    # Standard scores: the first head's end at 1.57, 1.22, 0.87, the three of the second are 1.53 each.
    policy = replace(policies.get("ada-1d"), scoring=Two(), routing=policies.Adaptive(floor=0))
    kept = policy.keep(View(torch.arange(10), 1, 2, frozenset(), 0, {}), 2)
    assert kept[0].sum(-1).tolist() == [1, 3]
