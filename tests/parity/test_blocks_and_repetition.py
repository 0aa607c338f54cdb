"""Blocks and the repetition of a text, against BlockPress and KVzipPress of kvpress 0.5.5, on whole networks.

BlockPress ranks the keys of one full prefill. In a network of a single layer keys depend on nothing that was
evicted, so that there, and there alone, it is what a truly blockwise reader does. KVzipPress takes its words
from a tokenizer; given one that says nothing, it repeats what `kvzip` repeats.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
import transformers
from torch import Tensor

from policies import Blockwise, Policy
from policies.keydiff import keydiff
from policies.kvzip import kvzip
from protocol import engine
from protocol.presses import press_settings

if find_spec("kvpress") is None:
    pytest.skip("kvpress is not installed here: run `make parity`", allow_module_level=True)
kvpress = press_settings.import_kvpress()

N = 60


class Tiny(NamedTuple):
    network: Any
    name: str = "tiny"
    stop_ids: frozenset[int] = frozenset()
    sentence_ends: frozenset[int] = frozenset()
    statistics: Any = MappingProxyType({})


def tiny(layers: int, seed: int, dtype: torch.dtype) -> Tiny:
    config = transformers.LlamaConfig(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        initializer_range=0.25,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    torch.manual_seed(seed)
    return Tiny(transformers.LlamaForCausalLM(config).to(dtype).eval().requires_grad_(False))


@dataclass(frozen=True)
class Noted(Policy):
    left: list[Any] = field(default_factory=list, compare=False)

    def evict(self, view: Any, budget: int) -> Any:
        event = super().evict(view, budget)
        self.left.append([view.positions.expand(event.retained.shape)[event.retained], event.retained.sum(-1)])
        return event


def ours(model: Tiny, policy: Policy, text: Tensor, budget: int) -> list[list[int]]:
    """Positions that each head of each layer holds after the text."""
    parts = {name: getattr(policy, name) for name in ("scoring", "routing", "cadence", "protect")}
    noted = Noted(**parts)
    request = engine.Request("p", engine.Prompt(tuple(text.tolist()), ()), (engine.Lane("a", noted, budget, 0),))
    (answers,) = engine.run(model, [request], max_new_tokens=1).answers
    assert isinstance(answers.outcomes[0], engine.Outcome), answers
    positions, counts = noted.left[-1]
    return [part.tolist() for part in positions.split(counts.flatten().tolist())]


@pytest.mark.parametrize("seed", range(6))
def test_keys_of_one_layer_are_left_by_blocks_as_block_press_leaves_them(seed):
    model, text = (tiny(1, seed, torch.float64), torch.randint(97, (N,), generator=torch.Generator().manual_seed(seed)))
    block, budget = (5, 10), (20, 30)
    block, budget = block[seed % 2], budget[seed // 2 % 2]
    press = kvpress.BlockPress(kvpress.KeyDiffPress(1 - (budget + 0.5) / N), block_size=block)
    cache = transformers.DynamicCache()
    with torch.no_grad():
        model.network(text[None], past_key_values=cache)
        whole = cache.layers[0].keys[0].clone()
        cache = transformers.DynamicCache()
        with press(model.network):
            model.network(text[None], past_key_values=cache)
    left = cache.layers[0].keys[0]
    expected = [
        sorted(int((keys == key).all(-1).nonzero()[0]) for key in kept) for keys, kept in zip(whole, left, strict=True)
    ]
    policy = Policy(keydiff().scoring, routing=keydiff().routing, cadence=Blockwise(block=block))
    policy = Policy(**{**vars(policy), "protect": keydiff().protect})
    assert ours(model, policy, text, budget) == expected


class Silent:
    """A tokenizer of no words."""

    def encode(self, text: str, **settings: Any) -> Tensor:
        return torch.empty(1, 0, dtype=torch.int64)


@pytest.mark.parametrize("seed", range(6))
def test_a_text_of_one_chunk_is_left_as_kvzip_press_leaves_it(seed):
    # The press cannot make its mask in float64.
    model, text = (tiny(3, seed, torch.float32), torch.randint(97, (N,), generator=torch.Generator().manual_seed(seed)))
    budget = (15, 24, 40)[seed % 3]
    press = kvpress.KVzipPress(1 - (budget - 0.01) / N)
    press._context_ids, press._suffix_ids, press._cache = (text[None], Silent().encode(""), transformers.DynamicCache())
    with torch.no_grad():
        model.network.set_attn_implementation("sdpa")
        model.network(text[None], past_key_values=press._cache)
        for layer in model.network.model.layers:
            layer.self_attn.rotary_emb = model.network.model.rotary_emb
        press._perform_kvzip_compression(model.network, Silent())
    expected = []
    for layer in model.network.model.layers:
        _, heads, slots = layer.self_attn.masked_key_indices
        gone = {(int(head), int(slot)) for head, slot in zip(heads, slots, strict=True)}
        expected += [[slot for slot in range(N) if (head, slot) not in gone] for head in range(2)]
        del layer.self_attn.masked_key_indices
    assert sum(map(len, expected)) == 6 * budget
    assert ours(model, kvzip(), text, budget) == expected
