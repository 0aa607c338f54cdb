"""The number of lanes that decode at once: as many as fit in half of the free memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import psutil
import torch

from policies import State, Verbatim
from protocol.engine.run_types import FIRST_EVENT, Lane, Request
from protocol.engine.sliding_windows import capacity_of
from protocol.layers.layer_kinds import evictable, head_width, layers_of
from protocol.presses.pressed import Pressed

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

MEMORY_SHARE = 0.5
"""The share of the free memory for slots; the rest is for activations, one prefill and other processes."""


def max_concurrent_for(
    network: PreTrainedModel,
    requests: Sequence[Request],
    max_new_tokens: int,
    first_event: int = FIRST_EVENT,
    marks: Collection[int] = (),
) -> int:
    """Return at least one and at most the number of lanes. Every lane is counted with the bytes of the largest.

    marks: tokens after which no eviction occurs, so that a lane grows to its end.
    """
    first_event = max_new_tokens if marks else first_event
    lanes = [(request, lane) for request in requests for lane in request.lanes]
    largest = max(
        max_slots(request, lane, max_new_tokens, first_event)
        * slot_bytes(network.config, network.dtype, lane.policy.state)
        + _heads(network.config) * lane.policy.recent_bytes(head_width(network.config))
        + window_bytes(network.config, network.dtype, request.prompt.tokens + max_new_tokens)
        for request, lane in lanes
    )
    return lanes_that_fit(network.device, largest, len(lanes))


def max_concurrent_lanes(
    config: PreTrainedConfig, dtype: torch.dtype, device: torch.device, slots: int, lanes: int
) -> int:
    """Return how many of `lanes` lanes fit at `slots` slots per KV head, stored as computed."""
    return lanes_that_fit(device, slots * slot_bytes(config, dtype) + window_bytes(config, dtype, slots), lanes)


def lanes_that_fit(device: torch.device, lane_bytes: int, lanes: int) -> int:
    """Return how many of `lanes` lanes fit at `lane_bytes` bytes for each."""
    return max(1, min(lanes, int(MEMORY_SHARE * free_bytes(device)) // lane_bytes))


def max_slots(request: Request, lane: Lane, max_new_tokens: int, first_event: int = FIRST_EVENT) -> int:
    """Return an upper bound on a lane's mean slots per KV head: a press may keep the whole prompt."""
    context, query = len(request.prompt.context), len(request.prompt.query)
    if lane.budget is None or isinstance(lane.policy, Pressed):
        return context + query + max_new_tokens
    new = max_new_tokens
    if lane.policy.cadence.interval is not None:
        new = min(new, lane.policy.cadence.interval + max(0, first_event - 1))
    return lane.policy.cadence.largest_budget(lane.budget) + query + new


def slot_bytes(config: PreTrainedConfig, dtype: torch.dtype, state: State | None = None) -> int:
    """Return the bytes of one slot in every KV head of every evictable layer, in a state; None: as computed."""
    head = head_width(config)
    head_bytes = (state or Verbatim()).slot_bytes(head, dtype.itemsize)
    return _heads(config) * head_bytes


def _heads(config: PreTrainedConfig) -> int:
    """Return layers of full attention times KV heads."""
    return int(evictable(config) * config.num_key_value_heads)


def window_bytes(config: PreTrainedConfig, dtype: torch.dtype, tokens: int) -> int:
    """Return the bytes of a lane's windows in all sliding layers at this length; 0 without such layers."""
    layers = layers_of(config)
    if layers.window is None:
        return 0
    layer_bytes = slot_bytes(config, dtype) // len(layers.evictable)
    return layers.sliding * capacity_of(layers.window, tokens) * layer_bytes


def free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)
