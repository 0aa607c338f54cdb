"""Bases of a model's values: principal components of each layer and KV head, and the format of their file.

Sun and Harn (arXiv:2605.14292) use "a rank-32 PCA basis" of "per-head V". Here the values are those of the
prompt and of the model's answer, every token with equal weight, around the mean. All directions are stored,
so that the rank is a setting of a policy and not of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from policies import Bases
from protocol.formats.refusals import BadInput
from protocol.layers.layer_kinds import evictable, head_width

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Moments(NamedTuple):
    """Sums over tokens, float64."""

    tokens: int
    values: Tensor
    """[layer, kv_head, d]."""
    products: Tensor
    """[layer, kv_head, d, d]."""

    def add(self, values: Tensor) -> Moments:
        """Add the tokens of values [layer, kv_head, t, d]."""
        exact = values.double()
        return Moments(self.tokens + values.shape[2], self.values + exact.sum(2), self.products + exact.mT @ exact)


class BasesFit(NamedTuple):
    """quarter: the share of the variance along the first quarter of the directions, mean over layers and heads."""

    bases: Bases
    quarter: float


def empty_moments(like: Tensor) -> Moments:
    """Return the moments before the first token; like [layer, kv_head, t, d]."""
    layers, kv_heads, _, width = like.shape
    zeros = like.new_zeros(layers, kv_heads, width, width, dtype=torch.float64)
    return Moments(0, zeros[..., 0].clone(), zeros)


def fit_bases(moments: Moments) -> BasesFit:
    """Return the eigenvectors of the covariance, by decreasing variance. Raises BadInput for too few tokens
    to span the values.

    The largest entry of each vector is positive, since its sign is arbitrary. Computed on the CPU.
    """
    width = moments.values.shape[-1]
    if moments.tokens <= width:
        raise BadInput(f"tokens: {moments.tokens} were measured, too few for {width} directions; raise --tokens")
    mean = (moments.values / moments.tokens).cpu()
    covariance = (moments.products / moments.tokens).cpu() - mean[..., None] * mean[..., None, :]
    variance, basis = torch.linalg.eigh(covariance)
    variance, basis = variance.flip(-1).clamp(min=0), basis.flip(-1)
    largest = basis.gather(-2, basis.abs().argmax(-2, keepdim=True))
    quarter = variance[..., : max(1, width // 4)].sum(-1) / variance.sum(-1)
    return BasesFit(Bases(mean.float(), (basis * largest.sign()).float()), float(quarter.mean()))


def pack(value: Bases) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of the file."""
    return dict(value._asdict()), {}


def unpack(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Bases:
    """Read what `pack` wrote; raises KeyError or ValueError for anything else."""
    return Bases(*(tensors[name] for name in Bases._fields))


def explain_misfit(value: Bases, network: PreTrainedModel) -> str:
    """Return why this value does not fit the network; empty if it does."""
    config = network.config
    width = head_width(config)
    expected = [evictable(config), config.num_key_value_heads, width]
    shapes = [list(value.mean.shape), list(value.basis.shape)]
    if shapes == [expected, [*expected, width]]:
        return ""
    return (
        f"has the shape {shapes[1]} (layers, KV heads, numbers, directions), but the model needs {[*expected, width]}"
    )
