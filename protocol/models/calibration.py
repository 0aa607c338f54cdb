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
from protocol.formats import canonical, files
from protocol.formats.refusals import BadInput
from protocol.lock import closure
from protocol.models import bases, calibration_paths, query_statistics, routes, sources, thresholds
from protocol.models.calibration_paths import statistics_paths

if TYPE_CHECKING:
    from transformers import PreTrainedModel

METADATA_KEY = "kv-prereg statistics"


class FileFormat(NamedTuple):
    """The file format of one type of value.

    pack: return its tensors and metadata; unpack: the inverse, raises KeyError or ValueError for others;
    explain_misfit: why a value does not fit a network, empty if it does.
    """

    pack: Callable[[Any], tuple[dict[str, Tensor], dict[str, str]]]
    unpack: Callable[[Mapping[str, Tensor], Mapping[str, str]], Any]
    explain_misfit: Callable[[Any, PreTrainedModel], str]


FORMATS: Mapping[type[Any], FileFormat] = MappingProxyType(
    {
        Statistics: FileFormat(query_statistics.pack, query_statistics.unpack, query_statistics.explain_misfit),
        Thresholds: FileFormat(thresholds.pack, thresholds.unpack, thresholds.explain_misfit),
        Routes: FileFormat(routes.pack, routes.unpack, routes.explain_misfit),
        Bases: FileFormat(bases.pack, bases.unpack, bases.explain_misfit),
    }
)
CLASS_BY_NAME: Mapping[str, type[Any]] = MappingProxyType(
    {
        name: value_class
        for name, class_name in calibration_paths.VALUE_CLASSES.items()
        for value_class in FORMATS
        if value_class.__name__ == class_name
    }
)
"""The class of the calibrated value of each name."""


def weights_digest(source: str, home: Path) -> str:
    """Return the digest of the weights on which a value was calibrated: `digest` of the model's files."""
    return digest(closure.weights(sources.model_files(source, home)))


def digest(files: Mapping[str, str]) -> str:
    """Return one digest of the files of a model, given as SHA-256 by name; calibrated files are excluded."""
    weights = {name: sha for name, sha in files.items() if not name.startswith(sources.CALIBRATED)}
    return canonical.digest(weights)


def load_calibrated(source: str, home: Path, network: PreTrainedModel) -> Mapping[str, Any]:
    """Return all existing calibrated values by name, on the network's device. Raises BadInput for those of another."""
    calibrated = {}
    for name, path in statistics_paths(source, home).items():
        if not path.is_file():
            continue
        value = read_value(path, CLASS_BY_NAME[name])
        if misfit := FORMATS[CLASS_BY_NAME[name]].explain_misfit(value, network):
            raise BadInput(f"{path}: {misfit}; delete it and run: kv-prereg calibrate {source} {name}")
        parts = (part.to(network.device) if isinstance(part, Tensor) else part for part in value)
        calibrated[name] = type(value)(*parts)
    return MappingProxyType(calibrated)


def read_value(path: Path, value_class: type[Any] = Statistics) -> Any:
    """Read a value of this class. Raises BadInput for a file that `write_value` did not write."""
    with open_file(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a mapping
        return FORMATS[value_class].unpack(tensors, json.loads(file.metadata()[METADATA_KEY]))


def prompt_digests(path: Path) -> frozenset[str]:
    """Return the digests of the prompts used for calibration, as in records; empty for a plain text."""
    return frozenset(measured_problems(path).values())


def measured_problems(path: Path) -> dict[str, str]:
    """Return the problems used for calibration: the digest of each prompt by id; empty for a plain text."""
    return dict(json.loads(read_metadata(path).get("problems", "{}")))


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata given to `write_value` and those of the value's class. Raises as `read_value` does."""
    with open_file(path) as file:
        return dict(json.loads(file.metadata()[METADATA_KEY]))


@contextmanager
def open_file(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, "pt") as file:
            yield file
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path}: contains no statistics; run: kv-prereg calibrate") from error


def write_value(path: Path, value: Any, about: Mapping[str, str]) -> None:
    """Write a value. about: its origin, stored in the file. The same values give the same bytes."""
    tensors, metadata = FORMATS[type(value)].pack(value)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = save(
        {name: tensor.contiguous().cpu() for name, tensor in tensors.items()},
        # One entry, since safetensors writes several in arbitrary order.
        metadata={METADATA_KEY: json.dumps({**about, **metadata}, sort_keys=True)},
    )
    files.replace(path, data)
