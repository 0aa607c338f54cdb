"""The baselines as the CrystalCache paper defines them: by hand, and beside those that they are not."""

import pytest
import torch
from policy_prompts import a_prompt, a_view, plain_attention

import policies
from policies import Pyramid, View
from policies.chunkkv import chunkkv
from policies.crystal_baselines import WindowSums
from policies.h2o import AccumulatedAttention
from policies.signals import AttentionSums

PARENTS = {"chunkkv-cumulative": "chunkkv", "pyramidkv-cumulative": "pyramidkv", "h2o-window": "h2o"}

ROWS = "1; .8 .2; .6 .2 .2; .5 .2 .1 .2; .2 .1 .3 .3 .1; .2 .1 .1 .3 .1 .2"
SIX_TOKENS = torch.tensor([[[float(x) for x in (row + " 0" * 6).split()[:6]] for row in ROWS.split(";")]])


@pytest.mark.parametrize(("name", "parent"), PARENTS.items())
def test_each_differs_from_the_published_one_in_its_scoring_alone(name, parent):
    assert set(policies.diff(policies.get(name), policies.get(parent))) == {"scoring"}


def test_a_chunk_is_worth_the_attention_of_every_query_to_its_slots():
    # Column sums 3.3 .8 .7 .8: the first chunk has 4.1, the second 1.5. The window alone: .6 and 1.0.
    parent = chunkkv(size=2, window=2)
    policy = policies.get("chunkkv-cumulative", selection=parent.selection, protect=parent.protect)
    sums = {signal: (SIX_TOKENS[:, first:].sum(1),) for signal, first in ((AttentionSums(), 0),)}
    sums[AttentionSums(window=2)] = (SIX_TOKENS[:, 4:].sum(1),)
    view = View(torch.arange(6), 1, 1, frozenset(), 0, sums)
    assert policy.keep(view, 4)[0, 0].nonzero().flatten().tolist() == [0, 1, 4, 5]
    assert parent.keep(view, 4)[0, 0].nonzero().flatten().tolist() == [2, 3, 4, 5]


def test_whole_chunks_are_those_with_the_largest_sum_over_all_queries():
    """Eq. 6 in a loop, where the window begins a chunk and the budget is of whole chunks."""
    prompt = a_prompt(152, layers=1, q_heads=2, kv_heads=1)
    attention = plain_attention(prompt.queries[0], prompt.keys[0], prompt.scale)
    worth = [
        sum(float(attention[:, query, slot].sum()) for query in range(152) for slot in range(first, first + 10))
        for first in range(0, 120, 10)
    ]
    best = sorted(range(12), key=lambda chunk: -worth[chunk])[:5]
    expected = sorted(slot for chunk in best for slot in range(10 * chunk, 10 * chunk + 10))
    policy = policies.get("chunkkv-cumulative")
    kept = policy.keep(a_view(prompt, [policy]), 32 + 50)[0, 0].nonzero().flatten().tolist()
    assert kept == [*expected, *range(120, 152)]


def test_budgets_fall_as_pyramidkv_has_them_and_slots_are_ranked_by_all_queries():
    prompt = a_prompt(300, layers=4)
    policy = policies.get("pyramidkv-cumulative")
    kept = policy.keep(a_view(prompt, [policy]), 100)
    counts = Pyramid(20).counts(torch.zeros(4, 2, 300), kept[:1, :1] & (torch.arange(300) >= 268), 100)
    assert torch.equal(kept.sum(-1), counts)
    assert counts[0, 0] > counts[1, 0] > counts[2, 0] > counts[3, 0] > 32
    for layer in range(4):
        sums = plain_attention(prompt.queries[layer], prompt.keys[layer], prompt.scale).sum(1)
        for head in range(2):
            past = (sums[2 * head] + sums[2 * head + 1])[:268]
            best = past.topk(int(counts[layer, head]) - 32).indices.sort().values.tolist()
            assert kept[layer, head].nonzero().flatten().tolist() == [*best, *range(268, 300)]


@pytest.mark.parametrize("window", [1, 40, 128, 1000])
def test_a_window_sums_the_last_queries_as_h2o_sums_all_of_them(window):
    prompt = a_prompt(200, layers=1)
    policy = policies.get("h2o-window", scoring=WindowSums(window))
    found = policy.scoring.score(a_view(prompt, [policy])).slots[0]
    rows = plain_attention(prompt.queries[0], prompt.keys[0], prompt.scale)[:, max(0, 200 - window) :]
    expected = rows.sum(1).view(2, 2, 200).mean(1)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


def test_a_window_that_reaches_to_the_first_token_is_h2o():
    view = a_view(a_prompt(120), [policies.get("h2o"), policies.get("h2o-window")])
    assert torch.equal(policies.get("h2o-window").keep(view, 60), policies.get("h2o").keep(view, 60))
    longer = a_view(a_prompt(300), [policies.get("h2o"), policies.get("h2o-window")])
    assert not torch.equal(policies.get("h2o-window").keep(longer, 60), policies.get("h2o").keep(longer, 60))


def test_sums_over_all_queries_are_those_of_h2o():
    for name in ("chunkkv-cumulative", "pyramidkv-cumulative"):
        assert policies.get(name).scoring == policies.get("h2o").scoring == AccumulatedAttention()
