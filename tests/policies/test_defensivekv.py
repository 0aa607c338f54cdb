"""DefensiveKV and Layer-DefensiveKV: by hand, by a loop, and in the limits of what they are made of."""

import pytest
import torch
from policy_prompts import a_prompt, a_view, measured, output_of

import policies
from policies import AttentionRows, View
from policies.defensivekv import (
    AcrossLayers,
    Defensive,
    OutputNorms,
    WindowPeaks,
    WindowSummary,
    defensivekv,
    first_stage_slots,
    layer_defensivekv,
    output_norms,
    summarise_window,
    worst_case,
)

# Two query heads of one KV head; two rows of a window see four slots before it.
ROWS = torch.tensor([[[[0.3, 0.2, 0.1, 0.2], [0.3, 0.2, 0.1, 0.1]], [[0.3, 0.2, 0.05, 0.05], [0.3, 0.1, 0.05, 0.35]]]])
PAST = torch.ones(1, 4, dtype=torch.bool)


def test_the_largest_of_all_rows_and_heads_and_no_less_than_the_mean_worked_out_by_hand():
    found = summarise_window(ROWS, PAST, kernel=1)
    assert found.peak[0].tolist() == pytest.approx([0.3, 0.2, 0.1, 0.35])
    assert (found.mean / 2)[0].tolist() == pytest.approx([0.3, 0.175, 0.075, 0.175])
    worst = worst_case(found.peak, PAST)
    assert worst[0].tolist() == pytest.approx([0.3, 0.2375, 0.2375, 0.35])
    # One slot of the past beside the window: on average slot 0, at worst slot 3.
    assert int(found.mean.argmax()) == 0
    assert int(worst.argmax()) == 3


def test_a_floor_lets_the_size_of_values_decide_worked_out_by_hand():
    peak, norms = torch.tensor([[0.3, 0.2, 0.1, 0.35]]), torch.tensor([1, 1, 2.5, 1])
    worth = worst_case(peak, PAST)[0] * norms
    assert worth.tolist() == pytest.approx([0.3, 0.2375, 0.59375, 0.35])
    assert sorted(worth.topk(2).indices.tolist()) == [2, 3]
    assert sorted((peak[0] * norms).topk(2).indices.tolist()) == [0, 3]


def test_a_row_is_pooled_and_scaled_back_to_what_it_gave():
    row = torch.tensor([0.4, 0.1, 0.0, 0.1, 0.2, 0.2]).view(1, 1, 1, 6)
    past = torch.tensor([[True] * 4 + [False] * 2])
    # Sums of three neighbours .5 .5 .2 .1, of .6 in all: scaled from 1.3 to .6.
    expected = [0.5 * 0.6 / 1.3, 0.5 * 0.6 / 1.3, 0.2 * 0.6 / 1.3, 0.1 * 0.6 / 1.3, 0, 0]
    found = summarise_window(row, past, kernel=3)
    assert found.peak[0].tolist() == pytest.approx(expected)
    assert found.mean[0].tolist() == pytest.approx([0.4, 0.1, 0, 0.1, 0, 0])


def test_the_first_stage_ends_before_the_slot_that_reaches_the_threshold():
    # Shares .1 .5 .3 .1; in their order .5, .8, .9, 1.
    mean, past = torch.tensor([[0.2, 1.0, 0.6, 0.2, 9.0]]), torch.tensor([[True] * 4 + [False]])
    for threshold, most, expected in (
        (0.85, 9, [1, 2]),
        (0.79, 9, [1]),
        (0.4, 9, []),
        (-0.1, 9, []),
        (0.95, 9, [0, 1, 2]),
        (0.95, 1, [1]),
        (0.95, 0, []),
    ):
        found = first_stage_slots(mean, torch.tensor([[threshold]]), past, torch.tensor([[most]]))
        assert found[0].nonzero().flatten().tolist() == expected


def test_norms_are_those_of_what_the_projection_of_each_query_head_makes_of_a_value():
    prompt = a_prompt(700, layers=1, q_heads=4, kv_heads=2)
    output = output_of(prompt, 0)
    found = output_norms(prompt.values[0], output)
    for head in range(2):
        for slot in (0, 511, 512, 699):
            norms = [float((prompt.values[0, head, slot] @ output[q]).abs().sum()) for q in (2 * head, 2 * head + 1)]
            assert float(found[head, slot]) == pytest.approx(sum(norms) / 2, rel=1e-5)


@pytest.mark.parametrize("window", [1, 40, 150])
@pytest.mark.parametrize("block", [128, 37, 5])
def test_peaks_are_the_same_however_the_rows_come(window, block):
    prompt = a_prompt(150, layers=1)
    one, other = (measured(WindowPeaks(window, 5), prompt, block=size) for size in (150, block))
    torch.testing.assert_close(other, one)
    assert isinstance(one, WindowSummary)
    assert one.peak.shape == (2, 150)


def test_in_a_head_that_holds_fewer_slots_the_window_is_its_own_last_ones():
    """Two heads hold five and three slots: of the second the first slot alone stands before the window."""
    logits = torch.tensor([[[0.0, 1, 2, 3, 4]], [[1.0, 0, 1, -torch.inf, -torch.inf]]])
    rows = AttentionRows(logits.softmax(-1), 0, 9, 10, 2, True, logits)
    found = WindowPeaks(2, 1).attend(rows, None)
    assert (found.peak > 0).tolist() == [[True] * 3 + [False] * 2, [True] + [False] * 4]
    assert float(found.peak[1, 0]) == pytest.approx(float(logits[1, 0].softmax(0)[0]))


def test_of_a_token_that_some_heads_have_evicted_the_norm_is_shared_as_if_they_had_the_mean():
    norms = torch.tensor([[[2.0, 4.0, 6.0], [8.0, 2.0, 0.0], [2.0, 6.0, 9.0]]])
    stored = torch.tensor([[[0, 2, 5], [2, 5, -1], [1, 2, 5]]])
    view = View(torch.arange(6), 1, 3, frozenset(), 0, {}, stored=stored)
    found = Defensive().normalise_norms(view, norms, stored >= 0)
    # Token 2: 4, 8 and 6 of 18. Token 5: 6, 2 and 9 of 17. Tokens 0 and 1 have one head each, of three.
    expected = [[1 / 3, 4 / 18, 6 / 17], [8 / 18, 2 / 17, 0], [1 / 3, 6 / 18, 9 / 17]]
    torch.testing.assert_close(found[0], torch.tensor(expected))
    whole = view._replace(stored=None, token_ids=torch.arange(3))
    torch.testing.assert_close(Defensive().normalise_norms(whole, norms, stored >= 0), norms / norms.sum(1))


def test_heads_of_all_layers_compete_and_keep_their_windows():
    # Two layers of one head; a window of two; eight slots in all, of which the four best past ones.
    past = torch.tensor([[[0.3, 0.2375, 0.5938, 0.35, 0, 0]], [[0.1, 0.05, 0.9, 0.15, 0, 0]]])
    protected = torch.tensor([False] * 4 + [True] * 2).view(1, 1, 6)
    view, scores = View(torch.arange(6), 2, 1, frozenset(), 0, {}), policies.Scores(past)
    counts = AcrossLayers().allocate(view, scores, protected, 4).counts
    assert counts.tolist() == [[5], [3]]
    kept = layer_defensivekv().selection.select(view, scores, protected, counts)
    assert [row[0].nonzero().flatten().tolist() for row in kept] == [[0, 2, 3, 4, 5], [2, 4, 5]]


@pytest.mark.parametrize("budget", [33, 60, 140])
def test_without_bounds_on_a_layer_the_highest_scores_of_the_model_are_kept(budget):
    prompt = a_prompt(150, layers=3)
    policy = policies.get("layer-defensivekv")
    view = a_view(prompt, [policy], budget=budget)
    kept, scores = policy.keep(view, budget), policy.scoring.score(view).slots
    assert kept[..., -32:].all()
    assert kept.sum() == 6 * budget
    past_kept = kept[..., :-32]
    inside, outside = scores[..., :-32][past_kept], scores[..., :-32][~past_kept]
    assert inside.numel() == 6 * (budget - 32)
    assert inside.min() >= outside.max()
    if budget == 60:
        assert len(set(kept.sum((1, 2)).tolist())) > 1


@pytest.mark.parametrize("norms", ["heads", "tokens", "plain"])
def test_the_norms_are_a_setting(norms):
    assert policies.get("defensivekv", {"scoring.norms": norms}) == defensivekv(norms=norms)


@pytest.mark.parametrize("name", ["defensivekv", "layer-defensivekv"])
def test_it_reads_a_window_and_the_norms_of_what_goes_out(name):
    assert policies.get(name).needs == {WindowPeaks(32, 5), OutputNorms()}
