"""Calibrated values of a model: one safetensors file for each name, read when the model is loaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from policies import Bases, Routes, Statistics, Thresholds
from protocol.evidence.bytes import canonical, files
from protocol.evidence.lock import closure
from protocol.evidence.refusals import BadInput
from protocol.models import bases, paths, query_statistics, routes, sources, thresholds
from protocol.models.paths import NAMES, statistics_paths

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = [
    "NAMES",
    "OF_NAME",
    "about",
    "digest",
    "of",
    "problems",
    "prompts",
    "read",
    "statistics_paths",
    "weights_digest",
    "write",
]

ABOUT = "kv-prereg statistics"


class Kind(NamedTuple):
    """The file format of one type of value.

    pack: return its tensors and metadata; unpack: the inverse, raises KeyError or ValueError for others;
    explain_misfit: why a value does not fit a network, empty if it does.
    """

    packed: Callable[[Any], tuple[dict[str, Tensor], dict[str, str]]]
    unpacked: Callable[[Mapping[str, Tensor], Mapping[str, str]], Any]
    unfit: Callable[[Any, PreTrainedModel], str]


KINDS: Mapping[type[Any], Kind] = MappingProxyType(
    {
        Statistics: Kind(query_statistics.packed, query_statistics.unpacked, query_statistics.unfit),
        Thresholds: Kind(thresholds.packed, thresholds.unpacked, thresholds.unfit),
        Routes: Kind(routes.packed, routes.unpacked, routes.unfit),
        Bases: Kind(bases.packed, bases.unpacked, bases.unfit),
    }
)
OF_NAME: Mapping[str, type[Any]] = MappingProxyType(
    {name: kind for name, word in paths.KINDS.items() for kind in KINDS if kind.__name__ == word}
)
"""The class of the calibrated value of each name."""


def weights_digest(source: str, home: Path) -> str:
    """Return the digest of the weights on which a value was calibrated: `digest` of the model's files."""
    return digest(closure.weights(sources.files(source, home)))


def digest(files: Mapping[str, str]) -> str:
    """Return one digest of the files of a model, given as SHA-256 by name; calibrated files are excluded."""
    own = {name: of for name, of in files.items() if not name.startswith(sources.CALIBRATED)}
    return canonical.digest(own)


def of(source: str, home: Path, network: PreTrainedModel) -> Mapping[str, Any]:
    """Return all calibrated values that exist, by name, on the device of the network. Raises BadInput for
    those of another network.
    """
    calibrated = {}
    for name, path in statistics_paths(source, home).items():
        if not path.is_file():
            continue
        own = read(path, OF_NAME[name])
        if unlike := KINDS[OF_NAME[name]].unfit(own, network):
            raise BadInput(f"{path}: {unlike}; delete it and run: kv-prereg calibrate {source} {name}")
        parts = (part.to(network.device) if isinstance(part, Tensor) else part for part in own)
        calibrated[name] = type(own)(*parts)
    return MappingProxyType(calibrated)


def read(path: Path, kind: type[Any] = Statistics) -> Any:
    """Read a value of this class. Raises BadInput for a file that `write_value` did not write."""
    with opened(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a mapping
        return KINDS[kind].unpacked(tensors, json.loads(file.metadata()[ABOUT]))


def prompts(path: Path) -> frozenset[str]:
    """Return the digests of the prompts used for calibration, as in records; empty for a plain text."""
    return frozenset(problems(path).values())


def problems(path: Path) -> dict[str, str]:
    """Return the problems used for calibration: the digest of each prompt by id; empty for a plain text."""
    return dict(json.loads(about(path).get("problems", "{}")))


def about(path: Path) -> dict[str, str]:
    """Return the metadata given to `write_value` and that of the value's class. Raises BadInput as
    `read_value` does.
    """
    with opened(path) as file:
        return dict(json.loads(file.metadata()[ABOUT]))


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, "pt") as file:
            yield file
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path}: holds no statistics; run: kv-prereg calibrate") from error


def write(path: Path, value: Any, about: Mapping[str, str]) -> None:
    """Write a value. about: its origin, stored in the file. The same values give the same bytes."""
    tensors, words = KINDS[type(value)].packed(value)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = save(
        {name: tensor.contiguous().cpu() for name, tensor in tensors.items()},
        # One entry, since safetensors writes several in arbitrary order.
        metadata={ABOUT: json.dumps({**about, **words}, sort_keys=True)},
    )
    files.replace(path, data)
