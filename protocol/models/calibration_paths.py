"""The names of calibrated values and the paths of their files. Needs no torch."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from protocol.models import sources

VALUE_CLASSES: Mapping[str, str] = MappingProxyType(
    {"text": "Statistics", "traces": "Statistics", "thoughts": "Thresholds", "bases": "Bases", "routes": "Routes"}
)
"""The class in `policies` of each calibrated value: query statistics of an external text, or of the model's
answers; thresholds that classify the thoughts of its answers; principal directions of its values; heads that
are selected by score.
"""
NAMES = tuple(VALUE_CLASSES)
MEASURED_ON_ANSWERS = ("traces", "thoughts", "bases", "routes")
"""Those that are calibrated on answers of the model and never on a plain text."""


def statistics_paths(source: str, home: Path) -> dict[str, Path]:
    """Return the paths of a model's calibrated values by name, whether or not they exist.

    Those of an embedded model are next to its weights, those of another below `home`.
    """
    if sources.is_embedded(source):
        folder = sources.model_folder(source, home)
        return {name: folder / locked_name(name) for name in NAMES}
    folder = home / "statistics" / re.sub(r"[^\w.@-]+", "--", source)
    return {name: folder / f"{name}.safetensors" for name in NAMES}


def locked_name(name: str) -> str:
    """Return the name of a calibrated file in a lock, among the files of the model."""
    return f"{sources.CALIBRATED}{name}.safetensors"
