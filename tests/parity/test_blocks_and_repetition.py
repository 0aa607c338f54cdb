"""Blocks and the repetition of a text, against BlockPress and KVzipPress of kvpress 0.5.5, on whole networks.

BlockPress ranks the keys of one full prefill. In a network of a single layer keys depend on nothing that was
evicted, so that there, and there alone, it is what a truly blockwise reader does. KVzipPress takes its words
from a tokenizer; given one that says nothing, it repeats what `kvzip` repeats.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from kv_prereg.conformance import CacheLaws, feed, kept_by_policy, make_network
from policies import Blockwise, Policy
from policies.keydiff import keydiff
from policies.kvzip import kvzip
from protocol.presses import press_settings

if find_spec("kvpress") is None:
    pytest.skip("kvpress is not installed here: run `make parity`", allow_module_level=True)
kvpress = press_settings.import_kvpress()

N = 60


@pytest.mark.parametrize("seed", range(6))
def test_keys_of_one_layer_are_left_by_blocks_as_block_press_leaves_them(seed):
    network = make_network(1, seed, torch.float64)
    text = torch.randint(97, (1, N), generator=torch.Generator().manual_seed(seed))
    block, budget = (5, 10), (20, 30)
    block, budget = block[seed % 2], budget[seed // 2 % 2]
    press = kvpress.BlockPress(kvpress.KeyDiffPress(1 - (budget + 0.5) / N), block_size=block)
    cache = transformers.DynamicCache()
    with torch.no_grad(), press(network):
        network(text, past_key_values=cache)
    expected = [sorted(kept) for kept in CacheLaws().kept(feed(network, text), cache)]
    policy = Policy(keydiff().scoring, routing=keydiff().routing, cadence=Blockwise(block=block))
    policy = Policy(**{**vars(policy), "protect": keydiff().protect})
    assert kept_by_policy(network, policy, text, budget) == expected


class Silent:
    """A tokenizer of no words."""

    def encode(self, text: str, **settings: Any) -> Tensor:
        return torch.empty(1, 0, dtype=torch.int64)


@pytest.mark.parametrize("seed", range(6))
def test_a_text_of_one_chunk_is_left_as_kvzip_press_leaves_it(seed):
    # The press cannot make its mask in float64.
    network = make_network(3, seed, torch.float32)
    text = torch.randint(97, (1, N), generator=torch.Generator().manual_seed(seed))
    budget = (15, 24, 40)[seed % 3]
    press = kvpress.KVzipPress(1 - (budget - 0.01) / N)
    press._context_ids, press._suffix_ids, press._cache = (text, Silent().encode(""), transformers.DynamicCache())
    with torch.no_grad():
        network.set_attn_implementation("sdpa")
        network(text, past_key_values=press._cache)
        for layer in network.model.layers:
            layer.self_attn.rotary_emb = network.model.rotary_emb
        press._perform_kvzip_compression(network, Silent())
    expected = []
    for layer in network.model.layers:
        _, heads, slots = layer.self_attn.masked_key_indices
        gone = {(int(head), int(slot)) for head, slot in zip(heads, slots, strict=True)}
        expected += [[slot for slot in range(N) if (head, slot) not in gone] for head in range(2)]
        del layer.self_attn.masked_key_indices
    assert sum(map(len, expected)) == 6 * budget
    assert kept_by_policy(network, kvzip(), text, budget) == expected
