"""The kinds of decoder layers, and which of them a policy may evict from, by configuration alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

FULL, SLIDING = "full_attention", "sliding_attention"
"""Kinds of decoder layers, with the names of `layer_types` in transformers."""
CHUNKED = "chunked_attention"


class Layers(NamedTuple):
    """kinds: of every decoder layer. window: tokens that a token of a sliding layer attends to, including
    itself; None without such layers.
    """

    kinds: tuple[str, ...]
    window: int | None

    @property
    def evictable(self) -> tuple[int, ...]:
        """Decoder layers of full attention. Layer i of a policy is the i-th of them."""
        return tuple(layer for layer, kind in enumerate(self.kinds) if kind == FULL)

    @property
    def sliding(self) -> int:
        """The number of sliding layers."""
        return self.kinds.count(SLIDING)


class LayerPosition(NamedTuple):
    """The kind of a decoder layer, and its index among the layers of this kind."""

    kind: str
    number: int


def layers_of(config: PreTrainedConfig) -> Layers:
    """Return the layers of a configuration.

    Without `layer_types` all layers are of one kind, as in `create_masks_for_generate` of transformers:
    sliding with a `sliding_window` below the number of positions, beyond which it never slides; else chunked with
    an `attention_chunk_size`, else full.
    """
    kinds = tuple(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None)
    if not kinds:
        chunk = getattr(config, "attention_chunk_size", None)
        kind = SLIDING if does_slide(config, window) else CHUNKED if chunk is not None else FULL
        kinds = (kind,) * config.num_hidden_layers
    return Layers(kinds, int(window) if window is not None and SLIDING in kinds else None)


def does_slide(config: PreTrainedConfig, window: int | None) -> bool:
    """Return whether a window binds: one that reaches every position of the model never slides."""
    return window is not None and window < getattr(config, "max_position_embeddings", math.inf)


def evictable(config: PreTrainedConfig) -> int:
    """Return the number of layers that a policy sees."""
    kinds = getattr(config, "layer_types", None)
    return len(layers_of(config).evictable) if kinds else int(config.num_hidden_layers)


def layer_position(config: PreTrainedConfig, layer: int) -> LayerPosition:
    """Return kind and index of a decoder layer; called at every layer of every forward pass."""
    kinds = getattr(config, "layer_types", None) or layers_of(config).kinds
    return LayerPosition(kinds[layer], kinds[:layer].count(kinds[layer]))


def head_width(config: PreTrainedConfig) -> int:
    """Return the numbers of a key of one head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
