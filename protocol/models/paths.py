"""What is calibrated of a model, and where it lies. Needs no torch."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from protocol.models import sources

__all__ = ["KINDS", "NAMES", "OF_ANSWERS", "locked_name", "statistics_paths"]

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "text": "Statistics",
        "traces": "Statistics",
        "thoughts": "Thresholds",
        "bases": "Bases",
        "routes": "Routes",
    }
)
"""What is calibrated, as a value of which class of `policies`: query statistics of text that others wrote, or
of the answers of the model itself; which thought a segment of its answers is; in which directions its values
vary; which heads go by their scores.
"""
NAMES = tuple(KINDS)
OF_ANSWERS = ("traces", "thoughts", "bases", "routes")
"""Those that are of answers of the model and of no plain text."""


def statistics_paths(source: str, home: Path) -> dict[str, Path]:
    """Where the statistics of a model belong, by name, whether or not they are there.

    Those of an embedded model lie beside its weights, those of another below `home`.
    """
    if sources.embedded(source):
        folder = sources.place(source, home)
        return {name: folder / locked_name(name) for name in NAMES}
    folder = home / "statistics" / re.sub(r"[^\w.@-]+", "--", source)
    return {name: folder / f"{name}.safetensors" for name in NAMES}


def locked_name(name: str) -> str:
    """What a lock calls their file, among the files of the model."""
    return f"{sources.CALIBRATED}{name}.safetensors"
