"""Documents: lock, selection, claim, seal and verdict. Each is canonical JSON and a newline, written once.

The digest of a document is the SHA-256 of its canonical bytes, without the newline. Its text is NFC, so text
that looks the same has the same bytes. (No document holds model output, which is never normalised.)
"""

import hashlib
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from protocol.formats import canonical, fields, files, line_endings
from protocol.formats.fields import Choice, Field, Integer, Table
from protocol.formats.refusals import BadInput, Tampered


class Document(NamedTuple):
    content: dict[str, Any]
    digest: str


def declare_document(kind: str, body_fields: Mapping[str, Field], version: int = 1) -> Table:
    """Return the table of a document: the fields `kind` and `version`, then `body_fields`."""
    header = {
        "kind": Field(Choice(f"kv-prereg {kind}"), "The kind of document."),
        "version": Field(Integer(version, version), "Version of its format."),
    }
    return Table({**header, **body_fields})


def write(path: Path, content: Mapping[str, Any], table: Table | None = None) -> str:
    """Create the document and return its digest. Raises BadInput for content that `read` would refuse."""
    data = canonical.dumps(content)
    if wrong := _find_fault(canonical.loads(data, path.name), table):
        raise BadInput(f"{path.name}: {wrong}")
    files.create(path, data + b"\n")
    return hashlib.sha256(data).hexdigest()


def read(path: Path, table: Table | None = None) -> Document:
    """Read a document and check it against `table`; without a table only its form is checked. Raises as
    `read_unchecked` does, and Tampered, naming the field, for content that the table does not allow.
    """
    document = read_unchecked(path)
    check(path, document.content, table)
    return document


def check(path: Path, content: Mapping[str, Any], table: Table | None) -> None:
    """Raise Tampered, naming the field, for the content of a document that `table` does not allow."""
    if wrong := _find_fault(content, table):
        raise Tampered(f"{path.name}: {wrong}; it was edited, or another version of kv-prereg wrote it")


def read_unchecked(path: Path) -> Document:
    """Read a document whose fields the caller checks.

    Raises Tampered, naming the field, when the file is missing or is not what `write` leaves, and Rewritten,
    a subclass of Tampered, where only the line endings differ.
    """
    try:
        data = files.read(path, files.MAX_DOCUMENT_BYTES)
    except FileNotFoundError:
        raise Tampered(f"{path.name}: missing") from None
    line_endings.refuse_rewritten(path.name, data)
    if not data.endswith(b"\n"):
        raise Tampered(f"{path.name}: does not end with a newline; it was truncated or edited")
    content = canonical.loads(data[:-1], path.name)
    if not isinstance(content, dict):
        raise Tampered(f"{path.name}: not an object")
    return Document(content, hashlib.sha256(data[:-1]).hexdigest())


def _find_fault(content: Mapping[str, Any], table: Table | None) -> str | None:
    for key_path, text in canonical.iter_texts(content):
        if not unicodedata.is_normalized("NFC", text):
            return (
                f"{key_path}: text is not in Unicode normal form NFC; normalise it (otherwise one text has two digests)"
            )
    return fields.find_fault(table, content) if table else None
