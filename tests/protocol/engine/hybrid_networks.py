"""Small networks whose layers are partly sliding and partly of full attention."""

from __future__ import annotations

import torch
from plain_forward import Plain, plain_forward
from tiny_networks import TinyModel, tiny

from protocol.layers.layer_kinds import SLIDING, layers_of

WINDOW = 12
SHAPES = {
    "Gemma3": {"layer_types": ["sliding_attention", "full_attention"] * 2, "query_pre_attn_scalar": 16},
    "GptOss": {"layer_types": ["sliding_attention", "full_attention"] * 2, "num_local_experts": 2},
    "Qwen3": {"use_sliding_window": True, "max_window_layers": 2},  # the first two are full
    "Cohere2": {"layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
}


def hybrid(family: str, dtype: torch.dtype = torch.float64, **changes) -> TinyModel:
    """Four layers, a window of 12 tokens; the sinks of gpt-oss are large enough to be missed."""
    settings = {"num_hidden_layers": 4, "sliding_window": WINDOW, "pad_token_id": 0, **SHAPES[family], **changes}
    if family == "GptOss":
        settings |= {"num_experts_per_tok": 1}
    else:
        settings |= {"tie_word_embeddings": False}
    model = tiny(family, dtype, text=family == "Gemma3", **settings)
    if family == "GptOss":
        model.network.set_experts_implementation("eager")  # in float64 there is no other
        drawn = torch.Generator().manual_seed(5)
        for block in model.network.model.layers:
            block.self_attn.sinks.copy_(torch.randn(4, generator=drawn) + 1)
    return model


def band(total: int, window: int) -> torch.Tensor:
    """[query, key] bool: the last `window` tokens up to the query, by a loop."""
    return torch.tensor([[query - window < key <= query for key in range(total)] for query in range(total)])


def plain_hybrid(model: TinyModel, token_ids: tuple[int, ...], evictable: torch.Tensor | None = None) -> Plain:
    """`plain_forward`, with windows. evictable: what a query may see in the layers of full attention, [layer,
    kv_head, query, key]; causal unless given.
    """
    config, total = model.network.config, len(token_ids)
    layers, own = layers_of(config), iter(() if evictable is None else evictable)
    causal = torch.ones(total, total).tril().bool().expand(config.num_key_value_heads, -1, -1)
    sliding = band(total, WINDOW).expand_as(causal)
    allowed = [sliding if kind == SLIDING else next(own, causal) for kind in layers.kinds]
    return plain_forward(model.network, token_ids, torch.stack(allowed))
