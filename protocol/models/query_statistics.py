"""Query statistics of a model: their measurement on texts, and the format of their file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from policies import Rotation, Statistics
from protocol.formats.refusals import BadInput
from protocol.layers.layer_kinds import FULL, evictable, head_width, layers_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TENSORS = ("query_mean_real", "query_mean_imag", "query_magnitude", "value_direction", "frequencies")


def pack(value: Statistics) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of the file."""
    mean, magnitude, direction, frequencies, scaling = value
    tensors = (mean.real, mean.imag, magnitude, direction, frequencies)
    return dict(zip(TENSORS, tensors, strict=True)), {"scaling": repr(scaling)}


def unpack(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Statistics:
    """Read what `pack` wrote; raises KeyError or ValueError for anything else."""
    real, imag, magnitude, direction, frequencies = (tensors[name] for name in TENSORS)
    return Statistics(torch.complex(real, imag), magnitude, direction, frequencies, float(metadata["scaling"]))


def explain_misfit(value: Statistics, network: PreTrainedModel) -> str:
    """Return why this value does not fit the network; empty if it does."""
    actual, expected = list(value.query_mean.shape), list(expected_shape(network))
    if actual == expected:
        return ""
    return f"has the shape {actual} (layers, query heads, pairs), but the model needs {expected}"


def expected_shape(network: PreTrainedModel) -> tuple[int, int, int]:
    """Return layers of full attention, query heads and pairs of a head."""
    config = network.config
    head = head_width(config)
    return evictable(config), config.num_attention_heads, head // 2


def measure(network: PreTrainedModel, texts: Iterable[Sequence[int]], tokens: int) -> tuple[Statistics, int]:
    """Return statistics of the first `tokens` tokens of the texts, all of equal weight, and their number.

    One forward pass for each text, the last one truncated. Queries are taken before RoPE, after the
    projection with its bias and the norm, if there is one; sums are float64. Departs from
    scripts/calibrate.py of WeianMao/triattention @ c3744ee, which inverts the rotation of queries, without
    the norm of Qwen3 and with the rotation's scaling counted twice. value_direction is not in that script:
    the mean over tokens, layers and KV heads of the values, of unit length.
    """
    layers, heads, pairs = expected_shape(network)
    rotary = rotation(network, pairs)
    mean = torch.zeros(layers, heads, pairs, dtype=torch.complex128, device=network.device)
    magnitude = torch.zeros(layers, heads, pairs, dtype=torch.float64, device=network.device)
    value = torch.zeros(2 * pairs, dtype=torch.float64, device=network.device)
    counted = 0
    queries: list[Tensor] = []
    values: list[Tensor] = []
    with capture(network, queries, values), torch.no_grad():
        for text in texts:
            token_ids = text[: min(tokens - counted, network.config.max_position_embeddings)]
            if not token_ids:
                continue
            queries.clear()
            values.clear()
            network.base_model(input_ids=torch.tensor([token_ids], device=network.device), use_cache=False)
            stacked = torch.stack(queries).view(layers, len(token_ids), heads, 2, pairs).double()
            halves = torch.complex(stacked[:, :, :, 0], stacked[:, :, :, 1])
            mean += halves.sum(1)
            magnitude += halves.abs().sum(1)
            value += torch.stack(values).view(layers, len(token_ids), -1, 2 * pairs).double().mean((0, 2)).sum(0)
            counted += len(token_ids)
            if counted == tokens:
                break
    if not counted:
        raise BadInput("texts: contain no token; give at least one")
    calibrated = Statistics(
        query_mean=(mean / counted).to(torch.complex64),
        query_magnitude=(magnitude / counted).float(),
        value_direction=(value / value.norm()).float(),
        frequencies=rotary.frequencies.double(),
        scaling=rotary.scaling**2,
    )
    return calibrated, counted


def rotation(network: PreTrainedModel, pairs: int) -> Rotation:
    """Return the rotation of full-attention layers. Raises BadInput if it does not rotate all pairs of a head."""
    rotary: Any = getattr(network.base_model, "rotary_emb", None)
    prefix = f"{FULL}_" if hasattr(rotary, f"{FULL}_inv_freq") else ""  # each kind of layer has its own rule
    frequencies = getattr(rotary, f"{prefix}inv_freq", None)
    if frequencies is None or len(frequencies) != pairs:
        raise BadInput("model: does not rotate every pair of a head; choose a model with full rotary embedding")
    return Rotation(frequencies, float(getattr(rotary, f"{prefix}attention_scaling")))


@contextmanager
def capture(network: PreTrainedModel, queries: list[Tensor], values: list[Tensor]) -> Iterator[None]:
    """Append the queries and values of each layer before RoPE, in every forward pass within this block."""
    with ExitStack() as hooks:
        for layer in layers_of(network.config).evictable:
            attention = network.base_model.layers[layer].self_attn
            if not hasattr(attention, "q_proj") or not hasattr(attention, "v_proj"):
                raise BadInput("model: has no q_proj and v_proj in its attention; choose another model")
            last = getattr(attention, "q_norm", attention.q_proj)
            for module, outputs in ((last, queries), (attention.v_proj, values)):
                hooks.callback(module.register_forward_hook(append_hook(outputs)).remove)
        yield


def append_hook(outputs: list[Tensor]) -> Any:
    def hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
        outputs.append(output.flatten())

    return hook
