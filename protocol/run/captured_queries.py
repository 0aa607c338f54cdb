"""Whether the queries that statistics are of, once rotated, are those that the attention computes with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from protocol.engine.observation import Observer, observe_forward
from protocol.engine.rotation import rotation_of
from protocol.models import query_statistics

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOKEN_IDS = (3, 1, 4, 1, 5)


class QueryObserver(Observer):
    """Stores the queries of every layer, [lane, q_head, t, d], and computes no attention."""

    def __init__(self) -> None:
        self.queries: list[Tensor] = []

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, sinks: Tensor | None = None
    ) -> Tensor:
        self.queries.append(queries)
        return torch.zeros_like(queries)

    def slide(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float, sinks: Tensor | None = None
    ) -> Tensor:
        return torch.zeros_like(queries)


def are_captured(network: PreTrainedModel) -> bool:
    """Return whether `query_statistics` measures the queries of this network.

    A score that predicts logits from them rotates them and does nothing else. HunYuan and NanoChat normalise
    queries after their rotation, and Apertus has another order of heads and tokens before it.
    """
    rotation = rotation_of(network)
    if rotation is None:
        return False
    captured: list[Tensor] = []
    observer = QueryObserver()
    token_ids = torch.tensor([TOKEN_IDS], device=network.device)
    with query_statistics.capture(network, captured, []), observe_forward(network), torch.no_grad():
        network.base_model(input_ids=token_ids, use_cache=False, observer=observer)
    shape = (1, len(TOKEN_IDS), -1, 2 * len(rotation.frequencies))
    angles = torch.arange(len(TOKEN_IDS))[:, None].to(rotation.frequencies) * rotation.frequencies  # [t, d / 2]
    turns = torch.polar(torch.full_like(angles, rotation.scaling), angles)[:, None]
    for before, after in zip(captured, observer.queries, strict=True):
        rotated = torch.complex(*before.view(shape).double().tensor_split(2, -1)) * turns
        expected = torch.complex(*after.transpose(1, 2).double().tensor_split(2, -1))
        if (rotated - expected).abs().max() > 1e-2 * expected.abs().max():  # bfloat16 rounds to 1 in 256
            return False
    return True
