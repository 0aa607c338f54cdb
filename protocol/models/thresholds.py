"""Thresholds between the thoughts of an answer: found in how sparse its segments are; what their file holds.

ThinKV (arXiv:2510.01290) takes layers whose sparsity has a density of three modes, and as thresholds the
minima between these. What is ours: the density is of the mean sparsity of segments, as they are classified;
layers are ordered by how deep the shallower of their two valleys is; thresholds are of the mean over the
chosen layers; terciles where no density has three modes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from policies import Thresholds
from protocol.evidence.refusals import BadInput
from protocol.layers.kinds import evictable

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["Found", "Valleys", "density", "found", "packed", "unfit", "unpacked", "valleys"]

LAYERS = 4
"""How many layers count, at most: what ThinKV takes."""
FEWEST = 30
"""Segments below which a density says nothing; ours."""
GRID = 512
"""Points at which a density is looked at."""


class Found(NamedTuple):
    """how: "minima" of a density of three modes, or "terciles"."""

    thresholds: Thresholds
    how: str


class Valleys(NamedTuple):
    """The two minima between three modes. depth: 1 less the higher of the two, each as a share of the lower
    mode beside it.
    """

    low: float
    high: float
    depth: float


def found(sparsity: Tensor) -> Found:
    """sparsity [layer, segment], the mean over the tokens of each segment. BadInput for too few segments."""
    layers, segments = sparsity.shape
    if segments < FEWEST:
        raise BadInput(
            f"tokens: the answers that were measured have {segments} whole segments, thresholds need "
            f"{FEWEST}; raise --tokens, or give a task of longer answers"
        )
    sparsity = sparsity.double().cpu()
    depths = {layer: of.depth for layer in range(layers) if (of := valleys(sparsity[layer]))}
    if depths:
        order = sorted(depths, key=lambda layer: -depths[layer])
    else:
        order = sorted(range(layers), key=lambda layer: -float(sparsity[layer].std()))
    chosen = tuple(sorted(order[:LAYERS]))
    mean = sparsity[list(chosen)].mean(0)
    if between := valleys(mean):
        return Found(Thresholds(chosen, between.low, between.high), "minima")
    thirds = torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)
    low, high = mean.quantile(thirds).tolist()
    return Found(Thresholds(chosen, low, high), "terciles")


def valleys(values: Tensor) -> Valleys | None:
    """Of the density of values [n], between its modes; None where it has not three of them."""
    spread = 3 * float(values.std())
    if not spread:
        return None
    grid = torch.linspace(float(values.min()) - spread, float(values.max()) + spread, GRID).double()
    height = density(values, grid)
    higher = height.diff() > 0
    modes = (1 + (higher[:-1] & ~higher[1:]).nonzero().flatten()).tolist()
    if len(modes) != 3:
        return None
    between = list(pairwise(modes))
    minima = [left + int(height[left:right].argmin()) for left, right in between]
    lower = [float(height[[left, right]].min()) for left, right in between]
    low, high = grid[minima].tolist()
    shares = (float(height[minimum]) / mode for minimum, mode in zip(minima, lower, strict=True))
    return Valleys(low, high, 1 - max(shares))


def density(values: Tensor, at: Tensor) -> Tensor:
    """Gaussian kernel density of values [n] at [m] points, float64. The bandwidth is Scott's: n ** -0.2 times
    their standard deviation.
    """
    bandwidth = len(values) ** -0.2 * values.double().std()
    away = (at.double()[:, None] - values.double()) / bandwidth
    total: Tensor = torch.exp(-0.5 * away.square()).mean(-1) / (bandwidth * (2 * torch.pi) ** 0.5)
    return total


def packed(value: Thresholds) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the words of its file."""
    bounds = torch.tensor([value.low, value.high], dtype=torch.float64)
    return {"layers": torch.tensor(value.layers), "bounds": bounds}, {}


def unpacked(tensors: Mapping[str, Tensor], words: Mapping[str, str]) -> Thresholds:
    """Raises KeyError or ValueError for what `packed` did not make."""
    low, high = tensors["bounds"].tolist()
    return Thresholds(tuple(tensors["layers"].tolist()), low, high)


def unfit(value: Thresholds, network: PreTrainedModel) -> str:
    """Why these are not of this network; empty where they may be."""
    layers = evictable(network.config)
    if all(0 <= layer < layers for layer in value.layers):
        return ""
    return f"is of layers {list(value.layers)}, the model has {layers}"
