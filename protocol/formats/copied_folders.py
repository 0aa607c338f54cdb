"""Find folders of registrations with one lock: one of them is the registration, the others are copies of it."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from protocol.formats import files
from protocol.formats.refusals import Refusal


def find_copies(folders: Iterable[Path]) -> Mapping[Path, Path]:
    """Return by copy the folder of the registration: the one with the name in the lock, else the first. Folders whose
    lock cannot be read are left out.
    """
    by_lock: dict[bytes, list[Path]] = {}
    for folder in folders:
        with suppress(Refusal, OSError):
            by_lock.setdefault(files.read(folder / "lock.json", files.MAX_DOCUMENT_BYTES), []).append(folder)
    copies = {}
    for data, alike in by_lock.items():
        if len(alike) > 1:
            original = next((folder for folder in alike if folder.name == _read_name(data)), alike[0])
            copies.update({folder: original for folder in alike if folder != original})
    return copies


def _read_name(data: bytes) -> object:
    with suppress(ValueError, RecursionError):
        content = json.loads(data)
        return content.get("name") if isinstance(content, dict) else None
    return None
