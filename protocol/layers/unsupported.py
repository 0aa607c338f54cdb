"""Models that cannot be evicted from, with the reason, from a configuration alone.

The kinds of layers and of masks are those of transformers 5.23, `ALLOWED_ATTN_LAYER_TYPES` and
`LAYER_PATTERN_TO_MASK_FUNCTION_MAPPING`; any other kind is refused as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from protocol.formats.refusals import BadInput
from protocol.layers.layer_kinds import FULL, SLIDING, head_width, layers_of

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

STATE = "carry a state of fixed size, which is not a KV cache"
INDEX = "select by their own index which slots a token attends to"
REASONS: Mapping[str, str] = MappingProxyType(
    {
        "chunked_attention": "start over at chunk borders, which is an eviction of their own",
        "window_attention": "attend within windows that do not move with the text",
        "indexed_attention": INDEX,
        "minimax_m3_sparse": INDEX,
        "compressed_sparse_attention": "compress their cache themselves",
        "heavily_compressed_attention": "compress their cache themselves",
        "reference_sliding_attention": "drop generated tokens themselves and keep those of the prompt",
        "conv": STATE,
        "linear_attention": STATE,
        "hybrid": f"attend and {STATE}",
        "hybrid_sliding": f"attend and {STATE}",
        "moe": "have no attention, and some of the other layers have none either",
        "mlp": "have no attention, and some of the other layers have none either",
    }
)
"""Why layers of a kind cannot be combined with evicted layers; full and sliding attention can."""
PRESS_REASON = "also evicts from sliding-window layers, from which no other arm evicts"
"""Why a press does not run on a model with sliding-window layers."""
OTHER_PARTS = ("vision_config", "audio_config")
"""Configuration fields of what is beside the text, in a model whose text has no configuration of its own."""
SOFTCAP_FIELDS = ("attn_logit_softcapping", "attn_logit_softcap", "attention_logit_cap")
"""Configuration fields for the bound of a tanh over attention logits."""


def refuse(name: str, config: PreTrainedConfig) -> None:
    """Raise BadInput for a model whose `config` shows that its cache cannot be evicted from."""
    if why := refusal_reason(config):
        raise BadInput(f"model {name}: {why}")


def refusal_reason(config: PreTrainedConfig) -> str:
    """Return why a model is refused, and the fix; empty if its configuration shows no reason."""
    if getattr(config, "is_encoder_decoder", False):
        return "is an encoder-decoder, whose prompt is not in the KV cache of the decoder; choose a decoder-only model"
    if getattr(config, "add_cross_attention", False) or getattr(config, "cross_attention_layers", None):
        return "has cross-attention to another sequence, whose slots no budget covers; choose a decoder-only model"
    if config.get_text_config() is not config or any(getattr(config, name, None) for name in OTHER_PARTS):
        return "is multimodal, and the engine feeds only text; choose its text model"
    if quantised := getattr(config, "quantization_config", None):
        method = quantised.get("quant_method") if isinstance(quantised, dict) else type(quantised).__name__
        return (
            f"stores quantised weights ({method}), which each machine computes by other kernels, or unpacks; choose a "
            "checkpoint of plain weights"
        )
    if getattr(config, "is_heterogeneous", False):
        return (
            "has layers of different shapes, so one budget per KV head and layer does not fit all; choose another model"
        )
    for setting in SHARED_CACHE_REASONS:
        if getattr(config, setting, None):
            return SHARED_CACHE_REASONS[setting]
    if getattr(config, "num_hidden_layers", None) == 0:
        return "has a configuration with num_hidden_layers 0; it must be at least 1; correct it"
    if getattr(config, "num_hidden_layers", None) is None:
        return "has a configuration without num_hidden_layers, which budgets need; choose another model"
    if getattr(config, "use_bidirectional_attention", None) or getattr(config, "is_causal", None) is False:
        return "lets tokens attend to later ones, so keys and values cannot be cached; choose a causal model"
    if field := next((name for name in SOFTCAP_FIELDS if getattr(config, name, None)), None):
        return (
            f"bounds its attention logits by a softcap ({field}), which the engine does not support; choose "
            "another model"
        )
    return _layers_reason(config) or _heads_reason(config)


SHARED_CACHE_REASONS: Mapping[str, str] = MappingProxyType(
    {
        "kv_lora_rank": (
            "has multi-head latent attention: its cache has one latent vector for each token, not keys and "
            "values for each head; choose another model"
        ),
        "num_kv_shared_layers": (
            "has layers that share the slots of other layers, so one eviction would affect several layers; "
            "choose another model"
        ),
    }
)


def _layers_reason(config: PreTrainedConfig) -> str:
    layers = layers_of(config)
    for kind in sorted(set(layers.kinds) - {FULL, SLIDING}):
        if kind not in REASONS:
            return f"has layers of the unknown kind {kind}; choose a model with full and sliding attention"
        return f"has layers of {kind}, which {REASONS[kind]}; choose a model with full and sliding attention"
    if FULL not in layers.kinds:
        return (
            "has sliding-window attention in every layer, which leaves nothing to evict; choose a model with "
            "full attention in some layers"
        )
    if SLIDING in layers.kinds and (layers.window is None or layers.window < 1):
        return (
            f"has sliding-window layers but a sliding_window of {layers.window}; choose a model whose "
            "configuration gives it"
        )
    return ""


def _heads_reason(config: PreTrainedConfig) -> str:
    if getattr(config, "num_key_value_heads", None) is None:
        return "has a configuration without num_key_value_heads, which budgets need; choose another model"
    for setting in ("num_attention_heads", "num_key_value_heads", "head_dim"):
        if isinstance(count := getattr(config, setting, None), int) and count < 1:
            return f"has a configuration with {setting} {count}; it must be at least 1; correct it"
    queries, kv_heads = getattr(config, "num_attention_heads", None), config.num_key_value_heads
    if isinstance(queries, int) and isinstance(kv_heads, int) and queries % kv_heads:
        return (
            f"has a configuration with {queries} attention heads for {kv_heads} KV heads, which do not divide "
            "evenly; correct it"
        )
    values = getattr(config, "v_head_dim", None)
    head = head_width(config)
    if values is not None and values != head:
        return "has values and keys of different widths, which the slot cache does not support; choose another model"
    return ""


def refuse_network(name: str, network: PreTrainedModel) -> None:
    """Raise BadInput for a network whose class shows that it cannot be evicted from."""
    if getattr(network, "_is_stateful", False):
        raise BadInput(f"model {name}: carries a state of fixed size, which is not a KV cache; choose another model")
    if not getattr(network, "_supports_attention_backend", True):
        raise BadInput(
            f"model {name}: bypasses transformers' attention interface; choose a model that uses this interface"
        )
