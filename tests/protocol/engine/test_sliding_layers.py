"""Layers with a window keep their own slots, whatever a policy does with those of full attention."""

import pytest
import torch
from hybrid_networks import SHAPES, WINDOW, hybrid, plain_hybrid
from looped import looped
from plain_forward import of_lane
from tiny_networks import (
    DIM,
    KV_HEADS,
    Earliest,
    all_kept,
    answer,
    competing,
    drawn,
    greedy,
    lane,
    noted,
    outside,
    tiny,
    words,
)

import policies
from policies import Cadence, ExtraPromptSignal, Scores
from policies.signals import AttentionSums, HiddenChange
from protocol import engine
from protocol.engine import Outcome, Request, max_concurrent, prefill
from protocol.engine.observation import observe_forward
from protocol.engine.sampling import Draw
from protocol.engine.sliding_windows import Ring, Window, attend_sliding, capacity_of
from protocol.formats.refusals import BadInput
from protocol.layers.layer_kinds import layers_of

NEW = 14
LAYER = 2 * KV_HEADS * DIM * 8  # bytes of a token in one layer: key and value, float64


@pytest.mark.parametrize("family", SHAPES)
def test_the_full_arm_equals_generate_with_prompts_longer_and_shorter_than_the_window(family):
    model = hybrid(family)
    for context, query, chunk in ((40, 5, 7), (30, 0, None), (5, 3, None), (1, 20, None)):
        prompt = outside(context, query, seed=context)
        expected = greedy(model, prompt.context + prompt.query, NEW)
        assert len(set(expected)) > 2
        (outcome,) = answer(model, prompt, [lane(all_kept())], max_new_tokens=NEW, prefill_chunk=chunk)
        assert outcome.token_ids == expected, (context, query, chunk)


@pytest.mark.parametrize(("family", "chunk"), [("Gemma3", None), ("GptOss", 5), ("Qwen3", 5), ("Cohere2", None)])
def test_every_logit_of_lanes_of_several_lengths_is_that_of_a_plain_forward(family, chunk, logits_of):
    """Tokens may stay equal where a window is one token too long, or shows slots that nothing fills yet:
    prompts of 1 token and of more than the window's 12, one ring of all lanes, two places for five.
    """
    model = hybrid(family)
    prompts = {f"p{n}": outside(*sizes, seed=n) for n, sizes in enumerate(((1, 0), (5, 3), (12, 0), (30, 2), (3, 14)))}
    requests = [Request(name, prompt, (lane(all_kept()),)) for name, prompt in prompts.items()]
    ran = engine.run(model, requests, max_new_tokens=9, prefill_chunk=chunk, max_concurrent=2)
    for (name, prompt), answers in zip(prompts.items(), ran.answers, strict=True):
        text = (*prompt.context, *prompt.query, *answers.outcomes[0].token_ids)
        due = plain_hybrid(model, text).logits[len(text) - 10 : -1]
        found = torch.stack([logits_of[Draw(name, 0, step)] for step in range(9)])
        torch.testing.assert_close(found, due, rtol=1e-9, atol=1e-9)


def test_several_lanes_of_several_lengths_in_few_places_equal_generate():
    free = hybrid("Gemma3")
    model = free._replace(stop_ids=frozenset({greedy(free, words(20), 8)[3]}))
    requests = [
        Request(f"p{n}", outside((20, 9, 17)[n % 3], (0, 4)[n % 2], seed=n), (lane(all_kept()), lane(drawn(), 60)))
        for n in range(4)
    ]
    texts = [greedy(model, request.prompt.context + request.prompt.query, 8) for request in requests]
    assert len(set(map(len, texts))) > 1
    for most in (1, 3):
        ran = engine.run(model, requests, max_new_tokens=8, prefill_chunk=11, max_concurrent=most)
        for expected, answers in zip(texts, ran.answers, strict=True):
            assert [outcome.token_ids for outcome in answers.outcomes] == [expected] * 2, most


@pytest.mark.parametrize("family", SHAPES)
def test_evicted_lanes_equal_a_plain_forward_with_masks(family, logits_of):
    """Random slots, events while decoding: what each later query sees is a loop."""
    model, prompt = hybrid(family), outside(26, 3)
    kept = [drawn(number, cadence=Cadence(interval=4)) for number in (1, 2)]
    layers = len(layers_of(model.network.config).evictable)
    for one in kept:
        (outcome,) = answer(model, prompt, [lane(one, 15)], max_new_tokens=10)
        assert len(one.notes) > 2
        text = (*prompt.context, *prompt.query, *outcome.token_ids)
        history = of_lane(one, len(text), layers)
        found = plain_hybrid(model, text, history.allowed).logits
        for step in range(10):
            torch.testing.assert_close(logits_of[Draw("p", 0, step)], found[28 + step], rtol=1e-9, atol=1e-9)
        assert outcome.slots[0] == 15 * layers * KV_HEADS


@looped("family", ["Qwen3", "GptOss"])
@looped("name", ["streaming", "h2o"])
def test_streaming_and_h2o_keep_what_a_plain_loop_keeps(family, name):
    """Of the layers of full attention alone: sums of attention, sinks taking their share, heads apart."""
    model, prompt, budget = hybrid(family), outside(30), 12
    policy = policies.get(name)
    watched = noted(policy.scoring, policy.routing, protect=policy.protect, selection=policy.selection)
    answer(model, prompt, [lane(watched, budget)], max_new_tokens=1)
    ((view, kept),) = watched.notes
    evictable = layers_of(model.network.config).evictable
    assert view.layers == len(evictable) == len(kept)
    weights = plain_hybrid(model, prompt.context).weights
    protected = policy.protect.slots(torch.ones(30, dtype=torch.bool), budget, decoding=False).tolist()
    for number, layer in enumerate(evictable):
        for head in range(KV_HEADS):
            sums = [float(weights[layer, 2 * head : 2 * head + 2, :, slot].sum()) for slot in range(30)]
            worth = list(range(30)) if name == "streaming" else sums
            order = sorted(range(30), key=lambda slot, worth=worth: (-protected[slot], -worth[slot]))
            assert kept[number, head].nonzero().flatten().tolist() == sorted(order[:budget]), (layer, head)


def test_sinks_take_their_share_of_every_row_that_signals_read():
    """In the prefill, while decoding, and of the last queries that are formed at an event."""

    class Sums:
        needs = frozenset({AttentionSums(), AttentionSums(window=3)})

        def score(self, view):
            return Scores(-view.positions.double().expand(view.layers, view.kv_heads, -1))

    model, prompt = hybrid("GptOss"), outside(20)
    policy = noted(Sums(), cadence=Cadence(interval=5))
    (outcome,) = answer(model, prompt, [lane(policy, 22)], max_new_tokens=12)
    (first, _), *later = policy.notes
    text = (*prompt.context, *outcome.token_ids)
    weights = plain_hybrid(model, text).weights[[1, 3]]
    assert float(weights.sum(-1).min()) < 0.9
    for view, seen in ((first, 20), *((view, len(view.token_ids)) for view, _ in later)):
        whole, last = (torch.stack(view.signals[signal]) for signal in (AttentionSums(), AttentionSums(window=3)))
        if not later or view is first or view is later[0][0]:  # nothing was evicted before
            torch.testing.assert_close(whole, weights[:, :, :seen, :seen].sum(2), rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(last, weights[:, :, seen - 3 : seen, :seen].sum(2), rtol=1e-9, atol=1e-9)
    assert len(later) >= 1


@pytest.mark.parametrize("name", ["crystalkv", "caote", "scissorhands"])
def test_policies_that_take_rows_for_shares_of_one_are_refused_beside_sinks(name):
    found = next(own for own in policies.names() if own.replace("-", "").replace("_", "").startswith(name))
    with pytest.raises(
        BadInput, match="assumes that attention weights of a query sum to 1, but with the attention sinks"
    ):
        answer(hybrid("GptOss"), outside(40), [lane(competing(policies.get(found)), 20)], max_new_tokens=1)


@pytest.mark.parametrize("part", range(2))
def test_every_policy_runs_on_a_hybrid_model_within_its_budget(part):
    model = hybrid("Qwen3", torch.float32, num_hidden_layers=5, max_window_layers=4)
    every = [competing(policies.get(name)) for name in policies.names()[part::2]]
    given = [lane(policy, 200 if policy.evicts else None, seed=1) for policy in every]
    outcomes = answer(model, outside(230, 2), given, max_new_tokens=3)
    for one, outcome in zip(given, outcomes, strict=True):
        assert isinstance(outcome, Outcome), (one.policy, outcome)
        assert outcome.window_bytes == 1 * WINDOW * LAYER // 2
        most = 230 if one.budget is None else 200
        assert outcome.slots[0] <= most * 4 * KV_HEADS or one.policy.exceeds


def test_windows_are_counted_in_bytes_and_in_no_slots_and_are_the_same_with_every_policy():
    model, prompt = hybrid("Gemma3"), outside(40, 3)
    lanes = [lane(all_kept()), lane(drawn(), 16), lane(drawn(1, cadence=Cadence(interval=4)), 10)]
    outcomes = answer(model, prompt, lanes, max_new_tokens=6)
    assert {outcome.window_bytes for outcome in outcomes} == {2 * WINDOW * LAYER}  # two sliding layers
    full, evicted, _ = outcomes
    assert full.slots[0], evicted.slots[0] == (40 * 2 * KV_HEADS, 16 * 2 * KV_HEADS)
    assert full.allocated[0] == 2 * WINDOW * LAYER + 2 * 64 * LAYER  # 49 slots, rounded to 16
    ran = engine.run(model, [Request("p", prompt, tuple(lanes))], max_new_tokens=6, max_concurrent=1)
    assert ran.peak_bytes >= full.allocated[0]
    (short,) = answer(model, outside(3), [lane(all_kept())], max_new_tokens=2)
    assert short.window_bytes == 2 * min(WINDOW, 16) * LAYER


@looped(("tokens", "slots"), [(1, 16), (16, 16), (17, 32), (90, 96), (97, 100), (500, 100)])
def test_a_ring_is_as_long_as_the_window_or_the_text(tokens, slots):
    assert capacity_of(100, tokens) == slots


def test_the_estimate_of_lane_memory_counts_windows():
    """Slots of two layers of full attention, and of two windows, by hand."""
    config = hybrid("Gemma3").network.config
    assert max_concurrent.slot_bytes(config, torch.float64) == 2 * LAYER
    assert max_concurrent.window_bytes(config, torch.float64, 500) == 2 * WINDOW * LAYER
    assert max_concurrent.window_bytes(tiny().network.config, torch.float64, 500) == 0


@pytest.mark.parametrize("chunk", [None, 5])
def test_tokens_that_are_asked_beside_the_text_see_its_windows(chunk):
    """KVzip repeats the text behind it: a plain forward of the text twice, whose first half sees itself."""
    model, prompt = hybrid("Gemma3"), outside(20)
    policy = policies.get("kvzip")
    (signal,) = (need for need in policy.needs if isinstance(need, ExtraPromptSignal))
    with observe_forward(model.network), torch.no_grad():
        fed = prefill.feed(model, prompt.context, [signal], chunk=chunk)
    (passage,) = signal.passages(torch.tensor(prompt.context), frozenset({7}))
    weights = plain_hybrid(model, (*prompt.context, *passage.tolist())).weights
    for number, layer in enumerate((1, 3)):
        rows = weights[layer, :, 20:, :20].view(KV_HEADS, -1, len(passage), 20)
        torch.testing.assert_close(fed.signals[signal][number], rows.amax((1, 2)), rtol=1e-9, atol=1e-9)


def test_a_block_reading_lane_keeps_windows_of_its_own(logits_of):
    """With a budget for all that it reads it is the full arm, block by block."""
    model, prompt = hybrid("Gemma3", torch.float32), outside(90, 4)
    blocks = [name for name in policies.names() if "block" in name or "epicache" in name]
    for name in blocks[:3]:
        lanes = [lane(all_kept()), lane(policies.get(name), 89)]
        full, read = answer(model, prompt, lanes, max_new_tokens=6)
        assert isinstance(read, Outcome), (name, read)
        assert read.window_bytes == full.window_bytes


def test_the_layers_of_a_hidden_signal_are_those_of_full_attention():
    model, prompt = hybrid("Gemma3"), outside(20)
    policy = noted(Earliest(frozenset({HiddenChange((1,), None)})))
    answer(model, prompt, [lane(policy, 9)], max_new_tokens=1)
    traces = policy.notes[0][0].signals[HiddenChange((1,), None)]
    hidden = plain_hybrid(model, prompt.context).hidden[3]
    expected = torch.cat([hidden[:1], hidden]).diff(dim=0).norm(dim=-1)
    assert traces[0] is None
    torch.testing.assert_close(traces[1].changes, expected, rtol=1e-9, atol=1e-9)
    missing = noted(Earliest(frozenset({HiddenChange((2,), None)})))
    with pytest.raises(BadInput, match="reads the output of layer 2, but the model has 2 layers"):
        answer(model, prompt, [lane(missing, 9)], max_new_tokens=1)


@looped("window", [1, 3, 600])
@looped("sinks", [None, (0.5, -1.0)])
def test_a_long_prefill_is_a_plain_loop_over_each_window(window, sinks):
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(2, 530, 4, dtype=torch.float64, generator=generator)
    keys, values = torch.randn(2, 1, 540, 4, dtype=torch.float64, generator=generator)
    beside = None if sinks is None else torch.tensor(sinks, dtype=torch.float64)
    found = attend_sliding(queries, keys, values, 0.5, window, beside)
    for row in (0, 1, 5, 511, 512, 529):
        seen = range(max(0, row + 10 - window + 1), row + 11)
        for head in range(2):
            logits = torch.stack([queries[head, row] @ keys[0, slot] * 0.5 for slot in seen])
            if sinks is not None:
                logits = torch.cat([logits, beside[head : head + 1]])
            weights = logits.softmax(0)[: len(seen)]
            due = sum(weight * values[0, slot] for weight, slot in zip(weights, seen, strict=True))
            torch.testing.assert_close(found[head, row], due, rtol=1e-9, atol=1e-9)


def test_a_place_of_a_ring_holds_nothing_of_the_lane_before():
    ring = Ring(4, [Window(torch.zeros(1, 0, 2), torch.zeros(1, 0, 2))])
    full = Window(torch.full((1, 6, 2), torch.nan), torch.ones(1, 6, 2))
    for member in ("a", "b", "c"):
        ring.admit(member, [full], 6)
    ring.remove({"a", "c"})
    assert ring.members == ["b"]
    ring.admit("d", [Window(torch.ones(1, 1, 2), torch.ones(1, 1, 2))], 1)
    assert ring.keys[0][1].isfinite().all()
    assert [part.shape[1] for part in ring.windows_of(1, 1)[0]] == [1, 1]
