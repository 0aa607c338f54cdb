"""Thresholds between the thoughts of an answer, from the sparsity of its segments, and their file format.

ThinKV (arXiv:2510.01290) takes layers whose sparsity has a density of three modes, and uses the minima
between these as thresholds. Differences: the density is of the mean sparsity of segments, which are what is
classified; layers are ranked by the depth of the shallower of their two valleys; thresholds are of the mean
over the chosen layers; terciles are used if no density has three modes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from policies import Thresholds
from protocol.formats.refusals import BadInput
from protocol.layers.layer_kinds import evictable

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MAX_LAYERS = 4
"""The maximum number of layers used, as in ThinKV."""
MIN_SEGMENTS = 30
"""The minimum number of segments for a density estimate; not from the paper."""
GRID = 512
"""Points at which a density is evaluated."""


class ThresholdFit(NamedTuple):
    """how: "minima" of a density of three modes, or "terciles"."""

    thresholds: Thresholds
    method: str


class Valleys(NamedTuple):
    """The two minima between three modes. depth: 1 less the higher, each as a share of the lower adjacent mode."""

    low: float
    high: float
    depth: float


def fit_thresholds(sparsity: Tensor) -> ThresholdFit:
    """Fit thresholds to sparsity [layer, segment], means over the tokens of a segment. Raises BadInput for too few."""
    layers, segments = sparsity.shape
    if segments < MIN_SEGMENTS:
        raise BadInput(
            f"tokens: the measured answers have {segments} whole segments, but thresholds need "
            f"{MIN_SEGMENTS}; raise --tokens, or choose a task with longer answers"
        )
    sparsity = sparsity.double().cpu()
    depths = {layer: valley.depth for layer in range(layers) if (valley := find_valleys(sparsity[layer]))}
    if depths:
        order = sorted(depths, key=lambda layer: -depths[layer])
    else:
        order = sorted(range(layers), key=lambda layer: -float(sparsity[layer].std()))
    selected = tuple(sorted(order[:MAX_LAYERS]))
    mean = sparsity[list(selected)].mean(0)
    if valleys_of_mean := find_valleys(mean):
        return ThresholdFit(Thresholds(selected, valleys_of_mean.low, valleys_of_mean.high), "minima")
    thirds = torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)
    low, high = mean.quantile(thirds).tolist()
    return ThresholdFit(Thresholds(selected, low, high), "terciles")


def find_valleys(values: Tensor) -> Valleys | None:
    """Return the valleys of the density of values [n]; None if it has not three modes."""
    spread = 3 * float(values.std())
    if not spread:
        return None
    grid = torch.linspace(float(values.min()) - spread, float(values.max()) + spread, GRID).double()
    height = density(values, grid)
    higher = height.diff() > 0
    modes = (1 + (higher[:-1] & ~higher[1:]).nonzero().flatten()).tolist()
    if len(modes) != 3:
        return None
    neighbours = list(pairwise(modes))
    minima = [left + int(height[left:right].argmin()) for left, right in neighbours]
    lower = [float(height[[left, right]].min()) for left, right in neighbours]
    low, high = grid[minima].tolist()
    shares = (float(height[minimum]) / mode for minimum, mode in zip(minima, lower, strict=True))
    return Valleys(low, high, 1 - max(shares))


def density(values: Tensor, points: Tensor) -> Tensor:
    """Return the Gaussian kernel density of values [n] at [m] points, float64, with Scott's bandwidth: n ** -0.2 sd."""
    bandwidth = len(values) ** -0.2 * values.double().std()
    distance = (points.double()[:, None] - values.double()) / bandwidth
    total: Tensor = torch.exp(-0.5 * distance.square()).mean(-1) / (bandwidth * (2 * torch.pi) ** 0.5)
    return total


def pack(value: Thresholds) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of the file."""
    bounds = torch.tensor([value.low, value.high], dtype=torch.float64)
    return {"layers": torch.tensor(value.layers), "bounds": bounds}, {}


def unpack(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Thresholds:
    """Read what `pack` wrote; raises KeyError or ValueError for anything else."""
    low, high = tensors["bounds"].tolist()
    return Thresholds(tuple(tensors["layers"].tolist()), low, high)


def explain_misfit(value: Thresholds, network: PreTrainedModel) -> str:
    """Return why this value does not fit the network; empty if it does."""
    layers = evictable(network.config)
    if all(0 <= layer < layers for layer in value.layers):
        return ""
    return f"has the layers {list(value.layers)}, but the model has {layers}"
