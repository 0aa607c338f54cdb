"""`kv_prereg.conformance`: an honest cache keeps every law, and a cache with one fault breaks the law of that fault."""

import pytest
import torch
import transformers
from transformers.cache_utils import DynamicSlidingWindowLayer

from kv_prereg import conformance
from kv_prereg.conformance import CacheLaws
from policies.streaming import streaming

LAWS = sorted(name for name in vars(CacheLaws) if name.startswith("test_"))


def keep_latest(network, context, ratio):
    """The latest slots of the full cache, and no storage of the others."""
    cache = conformance.feed(network, context)
    first = context.shape[1] - int(context.shape[1] * (1 - ratio))
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[:, :, first:].clone(), layer.values[:, :, first:].clone()
    return cache


class TestLatest(CacheLaws):
    reference = streaming(sinks=0)

    def compress(self, network, context, ratio):
        return keep_latest(network, context, ratio)


class TestSlidingWindowOfTransformers(CacheLaws):
    """Its layer keeps one slot less than its window, as a view of all until the next token: copied here."""

    reference = streaming(sinks=0)

    def compress(self, network, context, ratio):
        cache = transformers.DynamicCache()
        window = 1 + self.budget(context.shape[1], ratio)
        cache.layers = [DynamicSlidingWindowLayer(window) for _ in network.model.layers]
        with torch.no_grad():
            network(context, past_key_values=cache)
        if self.copies:
            for layer in cache.layers:
                layer.keys, layer.values = layer.keys.clone(), layer.values.clone()
        return cache

    copies = True


def change(edit):
    """A cache of the latest slots in which the first layer has one fault."""

    def compress(network, context, ratio):
        cache = keep_latest(network, context, ratio)
        edit(cache.layers[0], network)
        return cache

    return compress


def drop_one(layer, _):
    layer.keys, layer.values = layer.keys[:, :, 1:].clone(), layer.values[:, :, 1:].clone()


def keep_one_twice(layer, _):
    for states in (layer.keys, layer.values):
        states[:, :, 0] = states[:, :, 1]


def swap_values(layer, _):
    layer.values[:, :, 0] = layer.values[:, :, 1]


def turn_a_key(layer, _):
    layer.keys[:, :, 0] = layer.keys[:, :, 0].roll(1, -1)


def leave_a_hook(_, network):
    network.model.register_forward_hook(lambda *_: None)


def change_a_weight(_, network):
    network.model.layers[0].self_attn.k_proj.weight *= 1.01


def attend_to_all(network, context, ratio):
    """What it shows is evicted; what it attends to is not."""
    cache, full = keep_latest(network, context, ratio), conformance.feed(network, context)
    for layer, whole in zip(cache.layers, full.layers, strict=True):
        layer.update = whole.update
    return cache


def change_what_is_said(_, network):
    network.lm_head.weight *= 1.01


def keep_as_view(network, context, ratio):
    cache = conformance.feed(network, context)
    first = context.shape[1] - int(context.shape[1] * (1 - ratio))
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[:, :, first:], layer.values[:, :, first:]
    return cache


def keep_random(network, context, ratio):
    cache = conformance.feed(network, context)
    for layer in cache.layers:
        chosen = torch.randperm(context.shape[1])[: int(context.shape[1] * (1 - ratio))].sort().values
        layer.keys, layer.values = layer.keys[:, :, chosen], layer.values[:, :, chosen]
    return cache


ZERO, EXACT, MEMORY = (next(law for law in LAWS if part in law) for part in ("without", "slots_of_the_full", "memory"))
REFERENCE, NETWORK, ALIKE = (next(law for law in LAWS if part in law) for part in ("reference", "network", "alike"))
FAULTS = {
    "a slot less": (change(drop_one), {ZERO, EXACT, REFERENCE}),
    "one slot twice": (change(keep_one_twice), {ZERO, EXACT, REFERENCE}),
    "the value of another slot": (change(swap_values), {ZERO, EXACT, REFERENCE}),
    "a turned key": (change(turn_a_key), {ZERO, EXACT, REFERENCE}),
    "a hook stays": (change(leave_a_hook), {NETWORK}),
    "a weight is changed": (change(change_a_weight), {EXACT, NETWORK, ALIKE}),
    "another head of words": (change(change_what_is_said), {NETWORK}),
    "evicted slots are attended to": (attend_to_all, {EXACT}),
    "nothing is evicted": (
        lambda network, context, ratio: conformance.feed(network, context),
        {EXACT, MEMORY, REFERENCE},
    ),
    "a view of all slots": (keep_as_view, {MEMORY}),
    "slots by chance": (keep_random, {ALIKE, REFERENCE}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_breaks_its_laws_and_no_other(fault):
    compress, expected = FAULTS[fault]
    laws = TestLatest()
    laws.compress = compress
    assert laws.broken().keys() == expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_an_honest_cache_in_16_bits_keeps_every_law(dtype):
    laws = TestLatest()
    laws.network = lambda: conformance.make_network(dtype=dtype)
    assert laws.broken() == {}


def test_a_cache_without_the_last_layer_is_broken_and_not_an_error():
    def compress(network, context, ratio):
        cache = keep_latest(network, context, ratio)
        if ratio:
            cache.layers = cache.layers[:1]
        return cache

    laws = TestLatest()
    laws.compress = compress
    assert laws.broken()[EXACT] == "2 heads instead of 4"


def test_the_sliding_window_of_transformers_frees_nothing_before_the_next_token():
    laws = TestSlidingWindowOfTransformers()
    laws.copies = False
    assert [*laws.broken()] == [MEMORY]
    network, context = laws.network(), laws.context()
    cache = laws.compress(network, context, 0.5)
    conformance.continue_greedily(network, context, cache, tokens=1)
    assert laws.allocated_bytes(cache) < laws.allocated_bytes(conformance.feed(network, context)) * 0.52


def test_what_is_broken_is_said_with_its_place():
    laws = TestLatest()
    laws.compress = change(drop_one)
    assert laws.broken()[EXACT] == "head 0, ratio 0.25: kept 149 slots instead of 150"
