"""Documents: lock, selection, claim, seal and verdict. Each is canonical JSON and a newline, written once.

The digest of a document is the SHA-256 of its canonical bytes, without the newline. Its text is NFC, so text
that looks the same has the same bytes. (No document holds model output, which is never normalised.)
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
    """Return the table of a document: the fields `kind` and `version`, then `body_fields`."""
    head = {
        "kind": Field(Choice(f"kv-prereg {kind}"), "What the file is."),
        "version": Field(Whole(1, 1), "Of its format."),
    }
    return Table({**head, **own})


def write(path: Path, content: Mapping[str, Any], declared: Table | None = None) -> str:
    """Create the document and return its digest. Raises BadInput for content that `read` would refuse."""
    data = canonical.dumps(content)
    if wrong := _wrong(canonical.loads(data, path.name), declared):
        raise BadInput(f"{path.name}: {wrong}")
    files.create(path, data + b"\n")
    return hashlib.sha256(data).hexdigest()


def read(path: Path, declared: Table | None = None) -> Document:
    """Read a document and check it against `table`; without a table only its form is checked.

    Raises Tampered, naming the field, when the file is missing or is not what `write` leaves, and Rewritten,
    a subclass of Tampered, where only the line endings differ.
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
