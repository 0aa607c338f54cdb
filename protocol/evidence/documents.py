"""Documents: lock, selection, claim, seal and verdict. Canonical JSON and a newline, written once.

The digest of a document is the SHA-256 of its canonical bytes, which end before the newline.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from . import canonical, files
from .refusals import Tampered


class Document(NamedTuple):
    content: dict[str, Any]
    digest: str


def write(path: Path, content: Mapping[str, Any]) -> str:
    """Create the document and return its digest."""
    data = canonical.dumps(content)
    files.create(path, data + b"\n")
    return hashlib.sha256(data).hexdigest()


def read(path: Path) -> Document:
    """Raises Tampered when the file is missing or is not what `write` leaves."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise Tampered(f"{path.name}: missing") from None
    if not data.endswith(b"\n"):
        raise Tampered(f"{path.name}: does not end with a newline; it was cut or edited")
    content = canonical.loads(data[:-1], path.name)
    if not isinstance(content, dict):
        raise Tampered(f"{path.name}: not an object")
    return Document(content, hashlib.sha256(data[:-1]).hexdigest())
