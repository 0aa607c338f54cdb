"""Documents: lock, selection, claim, seal and verdict. Canonical JSON and a newline, written once.

The digest of a document is the SHA-256 of its canonical bytes, which end before the newline. Its text is NFC:
what looks the same is the same. (What a model wrote is in no document, and stays as it was written.)
"""

import hashlib
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from protocol.evidence.bytes import canonical, fields, files, line_endings
from protocol.evidence.bytes.fields import Choice, Field, Table, Whole
from protocol.evidence.refusals import BadInput, Tampered


class Document(NamedTuple):
    content: dict[str, Any]
    digest: str


def headed(kind: str, own: Mapping[str, Field]) -> Table:
    """The declaration of a document that says what it is and has `own` beside it."""
    head = {
        "kind": Field(Choice(f"kv-prereg {kind}"), "What the file is."),
        "version": Field(Whole(1, 1), "Of its format."),
    }
    return Table({**head, **own})


def write(path: Path, content: Mapping[str, Any], declared: Table | None = None) -> str:
    """Create the document and return its digest. Raises BadInput for what `read` would not take back."""
    data = canonical.dumps(content)
    if wrong := _wrong(canonical.loads(data, path.name), declared):
        raise BadInput(f"{path.name}: {wrong}")
    files.create(path, data + b"\n")
    return hashlib.sha256(data).hexdigest()


def read(path: Path, declared: Table | None = None) -> Document:
    """Raises Tampered when the file is missing or is not what `write` leaves: naming the field, where it is
    not what is declared. Without a declaration only its digest is asked for. Where only its line ending is
    another, that is Rewritten, a Tampered too.
    """
    try:
        data = files.read(path, files.MOST_OF_A_DOCUMENT)
    except FileNotFoundError:
        raise Tampered(f"{path.name}: missing") from None
    line_endings.refuse_rewritten(path.name, data)
    if not data.endswith(b"\n"):
        raise Tampered(f"{path.name}: does not end with a newline; it was cut or edited")
    content = canonical.loads(data[:-1], path.name)
    if not isinstance(content, dict):
        raise Tampered(f"{path.name}: not an object")
    if wrong := _wrong(content, declared):
        raise Tampered(f"{path.name}: {wrong}; it was edited, or another version of kv-prereg wrote it")
    return Document(content, hashlib.sha256(data[:-1]).hexdigest())


def _wrong(content: Mapping[str, Any], declared: Table | None) -> str | None:
    for at, text in canonical.texts(content):
        if not unicodedata.is_normalized("NFC", text):
            return f"{at}: text is not NFC; normalise it (two spellings of one text hash differently)"
    return fields.fault(declared, content) if declared else None
