"""The choice of attention: padded with a mask, or a kernel for heads with different numbers of slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from protocol.formats.refusals import BadInput
from protocol.layers.layer_kinds import head_width

if TYPE_CHECKING:
    from torch.nn.attention.varlen import AuxRequest
    from transformers import PreTrainedModel

ATTENTION_NAMES = ("padded", "varlen")
MAX_HEAD_DIM = 256
"""The largest head dimension, a multiple of 8, that FlashAttention 2 supports."""


class Kernel(Protocol):
    """The signature of `torch.nn.attention.varlen.varlen_attn`, as far as it is used here."""

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cu_seq_q: Tensor,
        cu_seq_k: Tensor,
        max_q: int,
        max_k: int,
        *,
        scale: float,
        window_size: tuple[int, int],
        enable_gqa: bool,
        seqused_k: Tensor,
        num_splits: int,
        return_aux: AuxRequest | None = None,
    ) -> Any:
        """Return the output, and the log-sum-exp [query head, row] with it if `return_aux` requests it."""


@dataclass(frozen=True)
class Attention:
    """kernel: the variable-length kernel; None if slots are padded and masked."""

    kernel: Kernel | None = None


PADDED = Attention()


def choose_attention(network: PreTrainedModel, requested: str | None = None) -> Attention:
    """Choose the attention from the device, dtype, head dimension and registered name alone.

    requested: one of ATTENTION_NAMES; None selects "varlen" where it is available. Raises BadInput if
    "varlen" is requested and not available.
    """
    obstacle = obstacle_to_varlen(network)
    if requested == "varlen" and obstacle:
        raise BadInput(f'generation.attention: "varlen" needs {obstacle}; write "padded", or leave it out')
    if requested == "padded" or obstacle:
        return PADDED
    from torch.nn.attention.varlen import varlen_attn

    return Attention(varlen_attn)


def obstacle_to_varlen(network: PreTrainedModel) -> str:
    """Return what the kernel needs and this network lacks; empty if nothing."""
    config = network.config.get_text_config()
    width = head_width(config)
    if network.device.type != "cuda":
        return f"device cuda, but the model is on {network.device.type}"
    if network.dtype not in (torch.bfloat16, torch.float16):
        return f"dtype bfloat16, but the model is in {str(network.dtype).removeprefix('torch.')}"
    if width % 8 or width > MAX_HEAD_DIM:
        return f"a head size that is a multiple of 8 and at most {MAX_HEAD_DIM}, but the model's is {width}"
    if any(hasattr(module, "sinks") for module in network.modules()):
        return "attention without sinks, but the model has attention sinks"
    return ""
