"""Documents: lock, selection, claim, seal and verdict. Canonical JSON and a newline, written once.

The digest of a document is the SHA-256 of its canonical bytes, which end before the newline. Its text is NFC:
what looks the same is the same. (What a model wrote is in no document, and stays as it was written.)
"""

import hashlib
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from protocol.evidence.bytes import canonical, files
from protocol.evidence.refusals import BadInput, Tampered


class Document(NamedTuple):
    content: dict[str, Any]
    digest: str


def write(path: Path, content: Mapping[str, Any]) -> str:
    """Create the document and return its digest. Raises BadInput for what `read` would not take back."""
    data = canonical.dumps(content)
    if spelling := _not_nfc(content):
        raise BadInput(f"{path.name}: {spelling}")
    files.create(path, data + b"\n")
    return hashlib.sha256(data).hexdigest()


def read(path: Path) -> Document:
    """Raises Tampered when the file is missing or is not what `write` leaves."""
    try:
        data = files.read(path)
    except FileNotFoundError:
        raise Tampered(f"{path.name}: missing") from None
    if not data.endswith(b"\n"):
        raise Tampered(f"{path.name}: does not end with a newline; it was cut or edited")
    content = canonical.loads(data[:-1], path.name)
    if not isinstance(content, dict):
        raise Tampered(f"{path.name}: not an object")
    if spelling := _not_nfc(content):
        raise Tampered(f"{path.name}: {spelling}")
    return Document(content, hashlib.sha256(data[:-1]).hexdigest())


def _not_nfc(content: Mapping[str, Any]) -> str | None:
    for at, text in canonical.texts(content):
        if not unicodedata.is_normalized("NFC", text):
            return f"{at}: text is not NFC; normalise it (two spellings of one text hash differently)"
    return None
