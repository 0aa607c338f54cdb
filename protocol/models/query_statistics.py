"""Query statistics of a model: their measurement on texts, and the format of their file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from policies import Rotation, Statistics
from protocol.evidence.refusals import BadInput
from protocol.layers.kinds import FULL, evictable, layers_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["measure", "packed", "unfit", "unpacked"]

TENSORS = ("query_mean_real", "query_mean_imag", "query_magnitude", "value_direction", "frequencies")


def packed(value: Statistics) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of the file."""
    mean, magnitude, direction, frequencies, scaling = value
    tensors = (mean.real, mean.imag, magnitude, direction, frequencies)
    return dict(zip(TENSORS, tensors, strict=True)), {"scaling": repr(scaling)}


def unpacked(tensors: Mapping[str, Tensor], words: Mapping[str, str]) -> Statistics:
    """Read what `pack` wrote; raises KeyError or ValueError for anything else."""
    real, imag, magnitude, direction, frequencies = (tensors[name] for name in TENSORS)
    return Statistics(torch.complex(real, imag), magnitude, direction, frequencies, float(words["scaling"]))


def unfit(value: Statistics, network: PreTrainedModel) -> str:
    """Return why this value does not fit the network; empty if it does."""
    found, expected = list(value.query_mean.shape), list(shape(network))
    if found == expected:
        return ""
    return f"is of {found} layers, query heads and pairs, the model has {expected}"


def shape(network: PreTrainedModel) -> tuple[int, int, int]:
    """Return layers of full attention, query heads and pairs of a head."""
    config = network.config
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return evictable(config), config.num_attention_heads, head // 2


def measure(network: PreTrainedModel, texts: Iterable[Sequence[int]], tokens: int) -> tuple[Statistics, int]:
    """Return statistics of the first `tokens` tokens of the texts, all of equal weight, and their number.

    One forward pass for each text, the last one truncated. Queries are taken before RoPE, after the
    projection with its bias and the norm, if there is one; sums are float64. Departs from
    scripts/calibrate.py of WeianMao/triattention @ c3744ee, which inverts the rotation of queries, without
    the norm of Qwen3 and with the rotation's scaling counted twice. value_direction is not in that script:
    the mean over tokens, layers and KV heads of the values, of unit length.
    """
    layers, heads, pairs = shape(network)
    rotary = rotation(network, pairs)
    mean = torch.zeros(layers, heads, pairs, dtype=torch.complex128, device=network.device)
    magnitude = torch.zeros(layers, heads, pairs, dtype=torch.float64, device=network.device)
    value = torch.zeros(2 * pairs, dtype=torch.float64, device=network.device)
    counted = 0
    queries: list[Tensor] = []
    values: list[Tensor] = []
    with captured(network, queries, values), torch.no_grad():
        for text in texts:
            own = text[: min(tokens - counted, network.config.max_position_embeddings)]
            if not own:
                continue
            queries.clear()
            values.clear()
            network.base_model(input_ids=torch.tensor([own], device=network.device), use_cache=False)
            seen = torch.stack(queries).view(layers, len(own), heads, 2, pairs).double()
            halves = torch.complex(seen[:, :, :, 0], seen[:, :, :, 1])
            mean += halves.sum(1)
            magnitude += halves.abs().sum(1)
            value += torch.stack(values).view(layers, len(own), -1, 2 * pairs).double().mean((0, 2)).sum(0)
            counted += len(own)
            if counted == tokens:
                break
    if not counted:
        raise BadInput("texts: hold no token; give at least one")
    calibrated = Statistics(
        query_mean=(mean / counted).to(torch.complex64),
        query_magnitude=(magnitude / counted).float(),
        value_direction=(value / value.norm()).float(),
        frequencies=rotary.frequencies.double(),
        scaling=rotary.scaling**2,
    )
    return calibrated, counted


def rotation(network: PreTrainedModel, pairs: int) -> Rotation:
    """Return the rotation of the layers of full attention. Raises BadInput if it does not rotate all pairs of
    a head.
    """
    rotary: Any = getattr(network.base_model, "rotary_emb", None)
    own = f"{FULL}_" if hasattr(rotary, f"{FULL}_inv_freq") else ""  # each kind of layer has its own rule
    frequencies = getattr(rotary, f"{own}inv_freq", None)
    if frequencies is None or len(frequencies) != pairs:
        raise BadInput("model: does not rotate every pair of a head; choose one with full rotary embedding")
    return Rotation(frequencies, float(getattr(rotary, f"{own}attention_scaling")))


@contextmanager
def captured(network: PreTrainedModel, queries: list[Tensor], values: list[Tensor]) -> Iterator[None]:
    """Append the queries and values of each layer before RoPE, in every forward pass within this block."""
    with ExitStack() as hooks:
        for layer in layers_of(network.config).evictable:
            attention = network.base_model.layers[layer].self_attn
            if not hasattr(attention, "q_proj") or not hasattr(attention, "v_proj"):
                raise BadInput("model: has no q_proj and v_proj in its attention; choose another model")
            last = getattr(attention, "q_norm", attention.q_proj)
            for module, outputs in ((last, queries), (attention.v_proj, values)):
                hooks.callback(module.register_forward_hook(into(outputs)).remove)
        yield


def into(outputs: list[Tensor]) -> Any:
    def keep(module: nn.Module, given: Any, output: Tensor) -> None:
        outputs.append(output.flatten())

    return keep
