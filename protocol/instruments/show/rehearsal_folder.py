"""The folder in which a rehearsal keeps its lanes, so that they can be shown: records without a lock.

`rehearsal.json` says what a lock would say of the problems and the arms; `probe/` has the records.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protocol.evidence.registration import TASK_FILES, Registration
from protocol.formats import documents, files
from protocol.formats.documents import Document
from protocol.formats.fields import Field, ListOf, MapOf, Table, Text
from protocol.lock import lock

NAME = "rehearsal.json"
PLACEHOLDER_LOCK = "0" * 64  # the records cite it in place of a lock
_ITEM = Table({name: Field(ListOf(Text()), f"Problems for {name}.") for name in ("dev", "confirm")})
TABLE = documents.declare_document(
    "rehearsal",
    {
        "protocol": Field(
            Table({"content": Field(lock.PROTOCOL, "Its fields.")}), "The protocol, in the form that a lock has."
        ),
        "items": Field(MapOf(_ITEM), "The problems of each task."),
        "asked": lock.FIELDS.fields["asked"],
    },
)


def write(folder: Path, study: Path, facts: Mapping[str, Any], items: Mapping[str, Any]) -> None:
    """Write what shows the records below `folder`, and copy the problem files of the study in `study`.

    facts: the fields `protocol` and `asked` of a lock. items: as its field of this name.
    """
    splits = {name: {part: item[part] for part in ("dev", "confirm")} for name, item in items.items()}
    known = {"protocol": {"content": facts["protocol"]["content"]}, "items": splits, "asked": facts["asked"]}
    documents.write(folder / NAME, {"kind": "kv-prereg rehearsal", "version": 1, **known}, TABLE)
    for task in facts["protocol"]["content"]["tasks"]:
        for name in (task[field] for field in TASK_FILES if field in task):
            shutil.copyfile(study / name, folder / name)


def open_rehearsal(folder: Path) -> Registration | None:
    """Return the rehearsed study in a folder; None where there is a lock or no rehearsal."""
    if files.exists(folder / lock.NAME) or not files.exists(folder / NAME):
        return None
    content = documents.read(folder / NAME, TABLE).content
    return Registration.with_lock(folder, Document(content, PLACEHOLDER_LOCK))
