"""The statistics of a model: measured on calibration texts, kept as safetensors, read when it is loaded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from policies import Statistics
from protocol.evidence.bytes import canonical, files
from protocol.evidence.lock import closure
from protocol.evidence.refusals import BadInput
from protocol.models import sources
from protocol.models.paths import NAMES, statistics_paths

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = [
    "NAMES",
    "about",
    "digest",
    "measure",
    "of",
    "problems",
    "prompts",
    "read",
    "statistics_paths",
    "weights_digest",
    "write",
]

ABOUT = "kv-prereg statistics"
TENSORS = ("query_mean_real", "query_mean_imag", "query_magnitude", "value_direction", "frequencies")


def weights_digest(source: str, home: Path) -> str:
    """What statistics say of the weights that they were measured on: `digest` of the model's files."""
    return digest(closure.weights(sources.files(source, home)))


def digest(files: Mapping[str, str]) -> str:
    """One digest of the files of a model, given as SHA-256 by name; statistics among them do not count."""
    return canonical.digest({name: of for name, of in files.items() if not name.startswith("statistics-")})


def of(source: str, home: Path, network: PreTrainedModel) -> Mapping[str, Statistics]:
    """All that are there, by name, on the device of the network. BadInput for those of another network."""
    calibrated = {}
    expected = shape(network)
    for name, path in statistics_paths(source, home).items():
        if not path.is_file():
            continue
        own = read(path)
        if own.query_mean.shape != expected:
            raise BadInput(
                f"{path}: is of {list(own.query_mean.shape)} layers, query heads and pairs, the model "
                f"has {list(expected)}; delete it and run: python -m protocol.calibrate {source} {name}"
            )
        mean, magnitude, direction, frequencies = (part.to(network.device) for part in own[:4])
        calibrated[name] = Statistics(mean, magnitude, direction, frequencies, own.scaling)
    return MappingProxyType(calibrated)


def shape(network: PreTrainedModel) -> tuple[int, int, int]:
    """Layers, query heads and pairs of a head."""
    config = network.config
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config.num_hidden_layers, config.num_attention_heads, head // 2


def read(path: Path) -> Statistics:
    """Raises BadInput for a file that `write` did not write."""
    with opened(path) as file:
        real, imag, magnitude, direction, frequencies = (file.get_tensor(name) for name in TENSORS)
        scaling = float(json.loads(file.metadata()[ABOUT])["scaling"])
    return Statistics(torch.complex(real, imag), magnitude, direction, frequencies, scaling)


def prompts(path: Path) -> frozenset[str]:
    """Digests of the prompts that they were measured on, as records have them; none for a plain text."""
    return frozenset(problems(path).values())


def problems(path: Path) -> dict[str, str]:
    """The problems that they were measured on: the digest of each prompt by id; none for a plain text."""
    return dict(json.loads(about(path).get("problems", "{}")))


def about(path: Path) -> dict[str, str]:
    """What `write` was told of the statistics, and their scaling. BadInput as for `read`."""
    with opened(path) as file:
        return dict(json.loads(file.metadata()[ABOUT]))


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, "pt") as file:
            yield file
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path}: holds no statistics; run: python -m protocol.calibrate") from error


def write(path: Path, calibrated: Statistics, about: Mapping[str, str]) -> None:
    """about: where they come from; it is kept in the file. The same values give the same bytes."""
    mean, magnitude, direction, frequencies, scaling = calibrated
    tensors = dict(zip(TENSORS, (mean.real, mean.imag, magnitude, direction, frequencies), strict=True))
    path.parent.mkdir(parents=True, exist_ok=True)
    data = save(
        {name: tensor.contiguous().cpu() for name, tensor in tensors.items()},
        # One entry, since safetensors writes several in any order.
        metadata={ABOUT: json.dumps({**about, "scaling": repr(scaling)}, sort_keys=True)},
    )
    files.replace(path, data)


def measure(network: PreTrainedModel, texts: Iterable[Sequence[int]], tokens: int) -> tuple[Statistics, int]:
    """Statistics of the first `tokens` tokens of the texts, all of equal weight, and how many there were.

    One forward per text, the last one truncated. Queries are taken before RoPE, after the projection with its
    bias and the norm, where there is one; sums are float64. Departs from scripts/calibrate.py of
    WeianMao/triattention @ c3744ee, which turns rotated queries back, without the norm of Qwen3 and with the
    rotation's scaling counted twice. value_direction is ours: the mean over tokens, layers and KV heads of
    the values, of unit length.
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
        frequencies=rotary.inv_freq.double(),
        scaling=float(rotary.attention_scaling) ** 2,
    )
    return calibrated, counted


def rotation(network: PreTrainedModel, pairs: int) -> Any:
    """The rotary embedding of the network. BadInput where it does not turn all pairs of a head."""
    rotary: Any = getattr(network.base_model, "rotary_emb", None)
    if rotary is None or len(rotary.inv_freq) != pairs:
        raise BadInput("model: does not rotate every pair of a head; choose one with full rotary embedding")
    return rotary


@contextmanager
def captured(network: PreTrainedModel, queries: list[Tensor], values: list[Tensor]) -> Iterator[None]:
    """Within this block every forward appends the queries and the values of each layer, before RoPE."""
    with ExitStack() as hooks:
        for block in network.base_model.layers:
            attention = block.self_attn
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
