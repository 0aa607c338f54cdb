"""After the event a lane sees its kept slots, at the positions they had, and nothing else."""

import contextlib

import pytest
import torch
from tiny_networks import FAMILIES, Drawn, Full, lane, outside, tiny

from protocol import engine


@contextlib.contextmanager
def recorded_logits(network):
    made = []
    handle = network.register_forward_hook(lambda module, given, output: made.append(output.logits[:, -1]))
    yield made
    handle.remove()


def by_masks(network, token_ids, n, kept):
    """Logits [t, vocabulary] of one plain forward in which tokens from n on see the kept context slots only.

    kept: bool [layer, kv_head, n]. Each layer gets its own 4D mask; positions are 0, 1, 2, ... throughout.
    """
    total = len(token_ids)
    causal = torch.ones(total, total).tril().bool()
    group = network.config.num_attention_heads // network.config.num_key_value_heads
    handles = []
    for layer, block in enumerate(network.model.layers):
        allowed = causal.repeat(1, network.config.num_attention_heads, 1, 1)
        for head in range(network.config.num_attention_heads):
            allowed[0, head, n:, :n] = kept[layer, head // group]

        def replace(module, given, named, allowed=allowed):
            return given, {**named, "attention_mask": allowed}

        handles.append(block.self_attn.register_forward_pre_hook(replace, with_kwargs=True))
    with torch.no_grad():
        logits = network(input_ids=torch.tensor([token_ids]), use_cache=False).logits[0]
    for handle in handles:
        handle.remove()
    return logits


def assert_lanes_equal_masks(model, prompt, lanes, new):
    with recorded_logits(model.network) as made:
        ran = engine.run(model, prompt, lanes, problem="p", max_new_tokens=new)
    n = len(prompt.context)
    after = made[1:]  # the prefill's own logits come first
    for row, (given, outcome) in enumerate(zip(lanes, ran.outcomes, strict=True)):
        kept = torch.ones(3, 2, n, dtype=torch.bool)
        if given.budget is not None:
            kept = given.policy.keep(_View(n), given.budget)
        fed = prompt.context + prompt.query + outcome.token_ids[:-1]
        expected = by_masks(model.network, fed, n, kept)
        first = n + len(prompt.query) - 1 if prompt.query else n
        for step, logits in enumerate(after):
            torch.testing.assert_close(logits[row], expected[first + step], rtol=1e-9, atol=1e-10)
    return ran


class _View:
    layers, kv_heads = 3, 2

    def __init__(self, n):
        self.token_ids = range(n)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("query", [0, 4])
def test_logits_after_the_event_are_those_of_attention_over_the_kept_slots(family, query):
    lanes = [lane(Drawn(1), 10), lane(Full()), lane(Drawn(2), 10), lane(Drawn(3), 25)]
    ran = assert_lanes_equal_masks(tiny(family), outside(40, query), lanes, new=6)
    assert len({outcome.token_ids for outcome in ran.outcomes}) > 1, "eviction changed nothing"


@pytest.mark.parametrize("query", [0, 4])
def test_heads_may_hold_different_numbers_of_slots_even_none(query):
    counts = ((3, 17), (20, 0), (9, 9))
    lanes = [lane(Drawn(1, counts), 10), lane(Drawn(2), 20), lane(Drawn(4, counts), 10)]
    assert_lanes_equal_masks(tiny(), outside(40, query), lanes, new=6)


def test_new_tokens_stand_at_the_number_of_tokens_seen_not_of_slots_held():
    model, positions = tiny(), []
    model.network.register_forward_pre_hook(
        lambda module, given, named: positions.append(named["position_ids"].tolist()), with_kwargs=True
    )
    engine.run(model, outside(40, 3), [lane(Drawn(), 5)], problem="p", max_new_tokens=3)
    assert positions == [[list(range(40))], [[40, 41, 42]], [[43]], [[44]]]
