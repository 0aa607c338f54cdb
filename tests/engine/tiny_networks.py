"""Random networks of the supported families, and policies simple enough to follow by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import transformers

from protocol.engine import Lane, Prompt

VOCABULARY = 97
FAMILIES = ("Llama", "Qwen2", "Qwen3", "Mistral")


class TinyModel(NamedTuple):
    name: str
    network: Any
    stop_ids: frozenset[int] = frozenset()
    sentence_ends: frozenset[int] = frozenset({7})


def tiny(
    family: str = "Llama", dtype: torch.dtype = torch.float64, stop: tuple[int, ...] = (), **changes
) -> TinyModel:
    """Weights are drawn wide, so that attention is sharp and greedy text does not settle into one token."""
    settings = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "initializer_range": 0.25,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "sliding_window": None,
    }
    config = getattr(transformers, f"{family}Config")(**{**settings, **changes})
    with torch.random.fork_rng():
        torch.manual_seed(3)
        network = getattr(transformers, f"{family}ForCausalLM")(config)
    return TinyModel(f"tiny-{family}", network.to(dtype).eval().requires_grad_(False), frozenset(stop))


def words(count: int, seed: int = 0) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(VOCABULARY, (count,), generator=generator).tolist())


def greedy(model: TinyModel, token_ids: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The network's own greedy text, without the stop token."""
    ids = torch.tensor([token_ids])
    settings = {
        "do_sample": False,
        "max_new_tokens": count,
        "pad_token_id": 0,
        "eos_token_id": sorted(model.stop_ids) or None,
    }
    made = model.network.generate(ids, attention_mask=torch.ones_like(ids), **settings)
    new = tuple(made[0, len(token_ids) :].tolist())
    return new[:-1] if new and new[-1] in model.stop_ids else new


@dataclass(frozen=True)
class Full:
    """Never evicts."""

    evicts: bool = False
    needs: frozenset = frozenset()

    def keep(self, view, budget):
        return torch.ones(view.layers, view.kv_heads, len(view.token_ids), dtype=torch.bool)


@dataclass(frozen=True)
class Drawn:
    """Keeps random slots: `budget` a head, or as many as `counts[layer][head]` says."""

    draw: int = 0
    counts: tuple[tuple[int, ...], ...] = ()
    evicts: bool = True
    needs: frozenset = frozenset()

    def keep(self, view, budget):
        generator = torch.Generator().manual_seed(self.draw)
        kept = torch.zeros(view.layers, view.kv_heads, len(view.token_ids), dtype=torch.bool)
        for layer in range(view.layers):
            for head in range(view.kv_heads):
                count = self.counts[layer][head] if self.counts else budget
                kept[layer, head, torch.randperm(kept.shape[-1], generator=generator)[:count]] = True
        return kept


@dataclass(frozen=True)
class Refusing:
    evicts: bool = True
    needs: frozenset = frozenset()

    def keep(self, view, budget):
        raise ValueError(f"budget {budget}: below the 132 protected slots;\n  raise it")


@dataclass(frozen=True)
class Counting:
    """A signal that notes what it is given; equal signals are one."""

    name: str
    seen: list = field(default_factory=list, compare=False)

    def measure(self, layer, queries, keys, scale):
        self.seen.append((layer, tuple(queries.shape), tuple(keys.shape), scale, keys.clone()))
        return None if layer == 0 else f"{self.name}{layer}"


@dataclass(frozen=True)
class Watching:
    """Keeps the first slots and notes every view it is given."""

    needs: frozenset
    views: list = field(default_factory=list, compare=False)
    evicts: bool = True

    def keep(self, view, budget):
        self.views.append(view)
        kept = torch.zeros(view.layers, view.kv_heads, len(view.token_ids), dtype=torch.bool)
        kept[..., :budget] = True
        return kept


def lane(policy, budget=None, seed=0) -> Lane:
    return Lane("a lane", policy, budget, seed)


def outside(context: int, query: int = 0, seed: int = 0) -> Prompt:
    token_ids = words(context + query, seed)
    return Prompt(token_ids[:context], token_ids[context:])
