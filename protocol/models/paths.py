"""Where the statistics of a model lie. Needs no torch."""

import re
from pathlib import Path

from protocol.models import sources

__all__ = ["NAMES", "locked_name", "statistics_paths"]

NAMES = ("text", "traces")
"""What statistics are of: text that others wrote, or the answers of the model itself."""


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
    return f"statistics-{name}.safetensors"
