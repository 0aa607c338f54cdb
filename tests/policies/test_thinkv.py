"""ThinKV's segments: by hand, and against plain loops over numbers."""

import random
from dataclasses import dataclass, replace

import pytest
import torch

import policies
from policies import Calibrated, Policy, Preserve, Protect, Scores, Thresholds, View
from policies.contract import Segments
from policies.signals import AttentionSums
from policies.thinkv import (
    SegmentsPerHead,
    Sparsity,
    Thoughts,
    Whenever,
    WithinSegments,
    classify_thoughts,
    segment_hs,
    segment_means,
    segment_shares,
    sparsity,
    thinkv,
)

R, E, T = 64, 32, 8
THOUGHTS = Calibrated("thoughts", Thresholds)


def test_a_row_is_as_sparse_as_the_share_of_its_slots_below_a_hundredth_of_its_largest():
    """Three of eight lie below .005: .004, .003 and .002."""
    row = torch.tensor([[0.50, 0.20, 0.004, 0.003, 0.20, 0.002, 0.05, 0.041]])
    assert sparsity(row).tolist() == [0.375]
    # A weight of exactly a hundredth of the largest is not below it.
    assert sparsity(torch.tensor([[1.0, 0.01, 0.0099, 0.0]]), 0.01).tolist() == [0.5]


def test_segments_are_as_sparse_as_their_tokens_on_average_and_an_open_one_is_left_out():
    assert segment_means(torch.tensor([[1.0, 2, 3, 4, 5, 6, 7]]), 3).tolist() == [[2, 5]]
    assert segment_means(torch.ones(2, 2), 3).shape == (2, 0)


def test_execution_is_dense_transition_sparse_and_reasoning_between():
    kinds = classify_thoughts(torch.tensor([0.2, 0.5, 0.9, 0.4, 0.7]), 0.4, 0.7)
    assert ["ERT"[kind] for kind in kinds] == ["E", "R", "T", "R", "T"]


def plain_shares(held, protected, budgets, least, total):
    """One slot after the other, over lists."""
    asked = [own - kept for own, kept in zip(held, protected, strict=True)]
    asked[1:-1] = [min(own, budget) for own, budget in zip(asked[1:-1], budgets, strict=True)]
    last, gave = len(asked) - 1, True

    def over():
        return sum(asked) + sum(protected) > total

    while over() and gave:
        gave = False
        for segment in range(last):
            half = max(asked[segment] // 2, least)
            while over() and asked[segment] > half:
                asked[segment] -= 1
                gave = True
    for segment in (last, *range(last + 1)):
        while over() and asked[segment]:
            asked[segment] -= 1
    return [own + kept for own, kept in zip(asked, protected, strict=True)]


def test_five_segments_of_128_keep_200_of_640_slots():
    segments = Segments(torch.zeros(1), torch.tensor([R, E, T, R, E]), 4)
    held, none = torch.tensor([0, *[128] * 5, 0]), torch.zeros(7, dtype=torch.long)
    assert segment_shares(held, none, segments, 640).tolist() == [0, 64, 32, 8, 64, 32, 0]
    # 50 too many: the first gives 32, the second 16, the third 2 of the 4 that it would.
    assert segment_shares(held, none, segments, 150).tolist() == [0, 32, 16, 6, 64, 32, 0]
    # All at 4 are 20, of which the oldest give 5 more.
    assert segment_shares(held, none, segments, 15).tolist() == [0, 0, 3, 4, 4, 4, 0]


def test_a_prompt_stays_whole_as_long_as_the_budget_holds_and_goes_first():
    segments = Segments(torch.zeros(1), torch.tensor([R]), 4)
    held, none = torch.tensor([100, 128, 20]), torch.zeros(3, dtype=torch.long)
    assert segment_shares(held, none, segments, 184).tolist() == [100, 64, 20]
    assert segment_shares(held, none, segments, 144).tolist() == [60, 64, 20]
    assert segment_shares(held, none, segments, 110).tolist() == [50, 40, 20]
    # Nobody competes below 4 before the open segment has given all.
    assert segment_shares(held, none, segments, 10).tolist() == [4, 4, 2]


def test_protected_slots_stay_beside_the_budget_of_their_segment():
    segments = Segments(torch.zeros(1), torch.tensor([T, T]), 4)
    held, protected = torch.tensor([10, 128, 128, 0]), torch.tensor([0, 0, 32, 0])
    assert segment_shares(held, protected, segments, 1000).tolist() == [10, 8, 40, 0]
    assert segment_shares(held, protected, segments, 32).tolist() == [0, 0, 32, 0]


def test_shares_are_those_of_a_loop_over_single_slots():
    draw = random.Random(0)
    rows = []
    for _ in range(300):
        closed = draw.randrange(5)
        held = [draw.randrange(90) for _ in range(closed + 2)]
        protected = [draw.randrange(own + 1) if draw.random() < 0.4 else 0 for own in held]
        budgets = [draw.choice((R, E, T)) for _ in range(closed)]
        total = draw.randrange(max(1, sum(protected)), sum(held) + 20)
        least = draw.choice((0, 1, 4))
        expected = plain_shares(held, protected, budgets, least, total)
        rows.append(sum(expected) < min(total, sum(held)))
        found = segment_shares(
            torch.tensor(held),
            torch.tensor(protected),
            Segments(torch.zeros(1), torch.tensor(budgets, dtype=torch.long), least),
            total,
        )
        assert found.tolist() == expected, (held, protected, budgets, least, total)
        assert sum(protected) <= sum(expected) <= total or sum(protected) > total
    assert 20 < sum(rows) < 280  # some leave slots of the budget unused, some do not


@dataclass(frozen=True)
class Given:
    """Scores as given, the same for every head or one row each."""

    values: tuple

    @property
    def needs(self):
        return frozenset()

    def score(self, view: View) -> Scores:
        return Scores(torch.tensor(self.values, dtype=torch.float32).view(1, -1, view.slots))


def an_event(values, sparse, *, prompt=0, thresholds=((0,), 0.4, 0.7), heads=1, stored=None) -> View:
    """values: one score a slot. sparse: by layer, of every token fed."""
    layers = tuple(torch.tensor([row]) for row in sparse)
    return View(
        torch.arange(len(sparse[0])),
        len(layers),
        heads,
        frozenset(),
        0,
        {Sparsity(): layers, THOUGHTS: Thresholds(*thresholds)},
        stored=stored,
        prompt=prompt,
    )


def segmented(values, *, protect=None, **settings) -> Policy:
    return Policy(
        scoring=Thoughts(Given(tuple(values)), **settings),
        selection=WithinSegments(),
        routing=SegmentsPerHead(),
        cadence=Whenever(),
        protect=protect or Protect(0, 0),
    )


def kept(policy, view, budget):
    return [row.nonzero().flatten().tolist() for row in policy.keep(view, budget)[0]]


def test_an_execution_segment_of_four_keeps_its_two_best():
    scores = [0.1, 1.7, -2.3, 0.2]
    policy = segmented(scores, size=4, execution=2)
    assert kept(policy, an_event(scores, [[0.2] * 4]), 100) == [[1, 3]]


def test_each_segment_keeps_its_own_best_and_an_open_one_all():
    """A prompt of two, segments of three that are R, T and E, and two tokens of an open one."""
    scores = [0, 0, 5, 1, 4, 9, 8, 9, 0, 2, 1, -5, -6]
    sparse = [0.99, 0.99, 0.5, 0.5, 0.5, 0.9, 0.9, 0.9, 0.1, 0.1, 0.1, 0.9, 0.9]
    policy = segmented(scores, size=3, reasoning=2, transition=1, execution=2, least=1)
    view = an_event(scores, [sparse], prompt=2)
    assert kept(policy, view, 100) == [[0, 1, 2, 4, 5, 9, 10, 11, 12]]
    # Of a budget of 7 two are too many: the prompt gives one and the oldest segment one.
    assert kept(policy, view, 7) == [[0, 2, 5, 9, 10, 11, 12]]
    # Of 3: the prompt and the closed segments go down to one each, which is one too many without the open.
    assert kept(policy, view, 3) == [[2, 5, 9]]


def test_ties_within_a_segment_go_to_the_lower_position():
    policy = segmented([1.0] * 8, size=4, execution=2)
    assert kept(policy, an_event([1.0] * 8, [[0.1] * 8]), 100) == [[0, 1, 4, 5]]


def test_the_layers_that_count_are_those_of_the_thresholds_and_their_mean_is_compared():
    """Sparsity .1, .6 and 1.0 in three layers, R between .4 and .7."""
    sparse = [[0.1] * 4, [0.6] * 4, [1.0] * 4]
    policy = segmented(range(4), size=4, execution=1, reasoning=2, transition=3)
    for layers, most in (((0,), 1), ((1,), 2), ((2,), 3), ((0, 2), 2), ((1, 2), 3), ((0, 1), 1)):
        view = an_event(range(4), sparse, thresholds=(layers, 0.4, 0.7))
        assert len(kept(policy, view, 100)[0]) == most


def test_a_segment_that_was_classified_keeps_its_kind_and_never_gets_slots_back():
    """Slots of the first segment, of which two are left, count among its budget at the next event."""
    scores = [1.0, 2.0, 5, 6, 7, 8]
    stored = torch.tensor([[[1, 3, 4, 5, 6, 7]]])
    policy = segmented(scores, size=4, execution=2)
    view = an_event(scores, [[0.1] * 8], stored=stored)
    assert kept(policy, view, 100) == [[0, 1, 4, 5]]


def test_heads_rank_their_own_slots_and_hold_equally_many():
    one, other = [4.0, 3, 2, 1, 4, 3, 2, 1], [1.0, 2, 3, 4, 1, 2, 3, 4]
    policy = segmented([one, other], size=4, execution=2)
    view = an_event(None, [[0.1] * 8], heads=2)
    assert kept(policy, view, 100) == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_recent_slots_stay_beside_the_budgets():
    policy = segmented(range(8, 0, -1), size=4, execution=1, protect=Protect(0, 2))
    assert kept(policy, an_event(None, [[0.1] * 8]), 100) == [[0, 4, 6, 7]]


def test_scores_without_segments_are_refused_by_name():
    policy = replace(segmented([1, 2, 3]), scoring=Given((1, 2, 3)))
    with pytest.raises(ValueError, match="scores have no segments; choose a scoring that has"):
        policy.keep(an_event(None, [[0.1] * 3]), 2)


@pytest.mark.parametrize("missing", [Sparsity(), THOUGHTS])
def test_what_was_not_measured_is_refused_by_name(missing):
    view = an_event(None, [[0.1] * 4])
    signals = {signal: state for signal, state in view.signals.items() if signal != missing}
    with pytest.raises(ValueError, match=type(missing).__name__):
        segmented([1, 2, 3, 4]).keep(view._replace(signals=signals), 2)


def test_events_come_every_128_steps_whatever_is_held():
    cadence = thinkv().cadence
    assert [step for step in range(400) if cadence.due(step, 1.0, 1000)] == [128, 256, 384]
    assert [step for step in range(20) if Whenever(interval=8).due(step, 99.0, 10)] == [8, 16]


def test_bands_that_fall_on_one_layer_are_refused_for_the_ranking_of_segment_hs_too():
    """Layers 10 and 21 of 32 are both the middle one of three."""
    with pytest.raises(ValueError, match=r"both fall on layer 1 of a model of 3 layers"):
        segment_hs().refuse_depth(3)
    for policy, layers in ((segment_hs(), 2), (segment_hs(), 32), (thinkv(), 3)):
        policy.refuse_depth(layers)


def test_thinkv_is_what_its_docstring_says():
    policy = thinkv()
    assert policy.scoring == Thoughts(policies.get("h2o").scoring)
    assert (policy.scoring.reasoning, policy.scoring.execution, policy.scoring.transition) == (64, 32, 8)
    assert policy.protect == Preserve(prompt=False, recent="min(128, K/4)")
    assert policy.needs == {AttentionSums(), Sparsity(), THOUGHTS}
