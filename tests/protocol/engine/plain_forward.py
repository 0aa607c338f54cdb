"""What the engine must equal: one forward of the whole text, with masks for what has been evicted."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AttentionInterface


class Plain(NamedTuple):
    """One forward of t tokens."""

    logits: Tensor  # [t, vocabulary]
    queries: Tensor  # [layer, q_head, t, d], after RoPE
    keys: Tensor  # [layer, kv_head, t, d], after RoPE
    values: Tensor  # [layer, kv_head, t, d]
    weights: Tensor  # [layer, q_head, query, key]
    hidden: Tensor  # [layer, t, width]


def attention(module, query, key, value, attention_mask, *, scaling, allowed, found, **rest):
    group = query.shape[1] // key.shape[1]
    keys, values = (tensor[0].repeat_interleave(group, 0) for tensor in (key, value))
    logits = scaling * query[0] @ keys.transpose(-1, -2)
    logits = logits.masked_fill(~allowed[module.layer_idx], -torch.inf)
    if (sinks := rest.get("s_aux")) is not None:  # one more column, whose share goes nowhere
        logits = torch.cat([logits, sinks[:, None, None].expand(-1, logits.shape[1], 1)], -1)
    weights = logits.softmax(-1)[..., : key.shape[2]]
    found.append((query[0], key[0], value[0], weights))
    return (weights @ values)[None].transpose(1, 2).contiguous(), None


def plain_forward(network: Any, token_ids: tuple[int, ...], allowed: Tensor | None = None) -> Plain:
    """allowed: bool [layer, kv_head, query, key], what a query may see; causal unless given."""
    ids = torch.tensor([token_ids], device=network.device)
    config, total = network.config, ids.shape[1]
    causal = torch.ones(total, total, device=ids.device).tril().bool()
    if allowed is None:
        allowed = causal.expand(config.num_hidden_layers, config.num_key_value_heads, total, total)
    by_query_head = allowed.repeat_interleave(config.num_attention_heads // config.num_key_value_heads, 1)
    found: list[tuple[Tensor, ...]] = []
    hidden: list[Tensor] = []

    def note(module, given, output):
        hidden.append((output[0] if isinstance(output, tuple) else output)[0])

    hooks = [layer.register_forward_hook(note) for layer in network.model.layers]
    AttentionInterface.register("plain", attention)
    before = config._attn_implementation
    network.set_attn_implementation("plain")
    with torch.no_grad():
        logits = network(ids, use_cache=False, allowed=by_query_head.to(ids.device), found=found).logits[0]
    network.set_attn_implementation(before)
    for hook in hooks:
        hook.remove()
    return Plain(logits, *(torch.stack(column) for column in zip(*found, strict=True)), torch.stack(hidden))


class History:
    """The positions that every head of a lane holds, kept in lists, and what each query may see.

    held: by (layer, head). allowed: bool [layer, kv_head, query, key].
    """

    def __init__(self, total: int, layers: int = 3, heads: int = 2) -> None:
        self.held: dict[tuple[int, int], list[int]] = {
            (layer, head): [] for layer in range(layers) for head in range(heads)
        }
        self.allowed = torch.ones(total, total).tril().bool().repeat(layers, heads, 1, 1)
        self.seen = 0

    def feed(self, seen: int) -> None:
        """Every head stores the tokens up to `seen`."""
        for positions in self.held.values():
            positions.extend(range(self.seen, seen))
        self.seen = seen

    def evict(self, kept: Tensor) -> None:
        """kept: bool [layer, kv_head, n]; no later query sees what goes."""
        for (layer, head), positions in self.held.items():
            flags = kept[layer, head].tolist()
            assert not any(flags[len(positions) :]), "a slot that is not there was kept"
            for position, stays in zip(tuple(positions), flags, strict=False):
                if not stays:
                    positions.remove(position)
                    self.allowed[layer, head, self.seen :, position] = False


def of_lane(policy: Any, total: int, layers: int = 3) -> History:
    """What became of the slots of a lane, from the notes of its policy."""
    history = History(total, layers)
    for view, kept in policy.notes:
        history.feed(len(view.token_ids))
        history.evict(kept)
    return history
