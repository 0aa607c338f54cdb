"""Storage formats of slots: as computed, packed, with coded values, or merged with weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from policies import Codec, Packing, State
from policies.quest import Quest
from protocol.engine.rotation import rotation_of
from protocol.engine.run_types import Architecture, Lane, Model, Request
from protocol.formats.refusals import BadInput
from protocol.layers.layer_kinds import head_width
from protocol.presses.pressed import Pressed

WEIGHT_BYTES = 4
"""Bytes of a slot's weight, the number of tokens that it represents, in float32."""


class SlotSizes(NamedTuple):
    """Bytes of one slot of one head in one layer: key and value as computed, and as stored."""

    computed: int
    stored: int


EQUAL_SIZES = SlotSizes(1, 1)


@dataclass(frozen=True, eq=False)
class StorageFormat:
    """The storage format of lanes whose policies have the same state. Compared by identity: lanes of
    different formats share no pool.

    packing: of keys and values, as rows of bytes; in groups, packed by the pool, and outside it as read.
    codec: of the values alone. None if they are stored as computed.
    has_weights: each slot stores the number of tokens that it represents. weighs_logits: the logarithm of that
    number is added to the attention logit of the slot. quest: which of the slots a new token reads; None for all.
    """

    codec: Codec | None = None
    packing: Packing | None = None
    has_weights: bool = False
    weighs_logits: bool = False
    quest: Quest | None = None

    @property
    def in_groups(self) -> bool:
        return self.packing is not None and self.packing.recent > 0

    def sizes(self, like: Tensor) -> SlotSizes:
        """Return the sizes of a slot. like [..., d]: keys as the model computes them."""
        item, rows = like.element_size(), self.allocate(like[..., :0, :])
        stored = sum(row.shape[-1] * row.element_size() for row in rows)
        return SlotSizes(2 * like.shape[-1] * item, stored + WEIGHT_BYTES * self.has_weights)

    def allocate(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return zeros for the keys and values of slots [..., d], as they are stored."""
        shape, dim = rows.shape[:-1], rows.shape[-1]
        if self.packing is not None:
            forms = self.packing.keys, self.packing.values
            keys, values = (rows.new_zeros(*shape, form.row_bytes(dim), dtype=torch.uint8) for form in forms)
            return keys, values
        return rows.new_zeros(rows.shape), rows.new_zeros(*shape, dim if self.codec is None else self.codec.width)

    def encode(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values [..., kv_head, t, d] as they are stored."""
        if self.in_groups:
            return keys.half().to(keys.dtype), values.half().to(values.dtype)
        if self.packing is not None:
            return self.packing.keys.encode(keys), self.packing.values.encode(values)
        return keys, values if self.codec is None else self.codec.encode(layer, values).to(values.dtype)

    def unpack(self, keys: Tensor, values: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return stored keys and values as they are attended to, packed ones in the precision of the model."""
        if self.packing is None or self.in_groups:
            return keys, values
        return self.packing.keys.decode(keys).to(dtype), self.packing.values.decode(values).to(dtype)

    def decode(self, layer: int, keys: Tensor, values: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return stored keys and values [..., kv_head, t, _] as keys and values of width d."""
        keys, values = self.unpack(keys, values, dtype)
        return keys, values if self.codec is None else self.codec.decode(layer, values).to(values.dtype)

    def expand(self, layer: int, attended: Tensor) -> Tensor:
        """Expand outputs [..., q_head, t, width] -> [..., q_head, t, d], in the same precision."""
        return attended if self.codec is None else self.codec.expand(layer, attended).to(attended.dtype)


VERBATIM = StorageFormat()
"""The format of every state that neither packs nor codes nor merges, and that is read whole."""


def build_storage_formats(model: Model, requests: Sequence[Request]) -> dict[State, StorageFormat]:
    """Build the storage format of every state of the lanes. Raises BadInput where model or press do not fit it."""
    storage_formats = dict[State, StorageFormat]()
    for lane in (lane for request in requests for lane in request.lanes):
        state = lane.policy.state
        if state not in storage_formats:
            storage_formats[state] = build_storage_format(model, lane)
        if isinstance(lane.policy, Pressed) and storage_formats[state] is not VERBATIM:
            raise BadInput(
                f"state of lane {lane.key}: {type(state).__name__} changes how slots are stored or read, but "
                "a press does not allow that; choose a policy of kv-prereg, or leave the state out"
            )
    return storage_formats


def refuse_unmergeable(model: Architecture, state: State, owner: str) -> None:
    """Raise BadInput for a merging state if the model's keys cannot be rotated. owner: the arm or lane of the state."""
    if state.merges and rotation_of(model.network) is None:
        raise BadInput(
            f"state of {owner}: {type(state).__name__} merges slots by rotating their keys to one position, "
            f"but the rotary embedding of model {model.name} is not the same for all pairs and lengths; "
            "choose another model or a state that does not merge"
        )


def build_storage_format(model: Model, lane: Lane) -> StorageFormat:
    state = lane.policy.state
    name = f"state of lane {lane.key}: {type(state).__name__}"
    try:
        codec = state.codec(model.statistics)
    except (ValueError, KeyError) as refusal:
        message = " ".join(str(refusal).split())
        raise BadInput(f"{name} has no codec for model {model.name}: {message}; run kv-prereg calibrate") from None
    if isinstance(state, Quest):
        return StorageFormat(quest=state)
    if codec is None and not state.merges:
        return VERBATIM
    refuse_unmergeable(model, state, f"lane {lane.key}")
    weights = state.merges, state.merges and state.mass
    if isinstance(codec, Packing):
        try:
            lane.policy.refuse_width(head_width(model.network.config))
        except ValueError as refusal:
            raise BadInput(f"{name} does not fit model {model.name}: {refusal}") from None
        return StorageFormat(None, codec, *weights)
    return StorageFormat(codec, None, *weights)
