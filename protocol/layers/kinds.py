"""Which decoder layers hold slots that a policy may evict, from a configuration alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

__all__ = ["FULL", "SLIDING", "Layers", "Place", "evictable", "layers_of", "place"]

FULL, SLIDING = "full_attention", "sliding_attention"
"""Kinds of decoder layers, as `layer_types` of transformers calls them."""
CHUNKED = "chunked_attention"


class Layers(NamedTuple):
    """kinds: of every decoder layer. window: tokens that a token of a sliding layer sees, itself with them;
    None without such layers.
    """

    kinds: tuple[str, ...]
    window: int | None

    @property
    def evictable(self) -> tuple[int, ...]:
        """Decoder layers of full attention. What a policy calls layer i is the i-th of them."""
        return tuple(layer for layer, kind in enumerate(self.kinds) if kind == FULL)

    @property
    def sliding(self) -> int:
        """How many layers keep a window."""
        return self.kinds.count(SLIDING)


class Place(NamedTuple):
    """Where a decoder layer stands: `number` counts the layers of its kind before it."""

    kind: str
    number: int


def layers_of(config: PreTrainedConfig) -> Layers:
    """Without `layer_types` all layers are of one kind, as in `create_masks_for_generate` of transformers:
    sliding with a `sliding_window`, else chunked with an `attention_chunk_size`, else full.
    """
    kinds = tuple(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None)
    if not kinds:
        chunk = getattr(config, "attention_chunk_size", None)
        kind = SLIDING if window is not None else CHUNKED if chunk is not None else FULL
        kinds = (kind,) * config.num_hidden_layers
    return Layers(kinds, int(window) if window is not None and SLIDING in kinds else None)


def evictable(config: PreTrainedConfig) -> int:
    """How many layers a policy sees."""
    kinds = getattr(config, "layer_types", None)
    return len(layers_of(config).evictable) if kinds else int(config.num_hidden_layers)


def place(config: PreTrainedConfig, layer: int) -> Place:
    """Of a decoder layer; asked at every layer of every forward."""
    kinds = getattr(config, "layer_types", None)
    if not kinds:
        return Place(layers_of(config).kinds[layer], layer)
    return Place(kinds[layer], kinds[:layer].count(kinds[layer]))
