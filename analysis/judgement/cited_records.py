"""Records that a study cites support its verdict only where the study that they come from has them too."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.judgement import untrusted_files
from analysis.judgement.study_files import read_document
from analysis.judgement.untrusted_files import RecordError
from protocol.formats import canonical
from protocol.formats.citations import CITES


def refuse_unsupported(folder: Path, lock: Mapping[str, Any]) -> None:
    """Raise RecordError unless every record of FOLDER that another lock decoded is in the folder of that lock, which
    is beside FOLDER or in another folder of registrations. lock: content of the lock of FOLDER, which cites.
    """
    own, shelf = _digest_bodies(folder), folder.resolve().parent
    for digest, name in {(entry["lock"], entry["name"]) for entry in lock[CITES].values()}:
        places = [shelf / name, *sorted(shelf.parent.glob(f"*/{name}"))]
        cited = next((place for place in places if _has_lock(place, digest)), None)
        if cited is None:
            raise RecordError(
                f"{folder}: cites records of {name}, whose folder is missing next to this one; restore it"
            )
        if not own[digest] <= _digest_bodies(cited)[digest]:
            raise RecordError(f"{folder}: {name} lacks records that this study cites; run: kv-prereg audit {folder}")


def _has_lock(folder: Path, digest: str) -> bool:
    try:
        return read_document(folder / "lock.json")[0] == digest
    except (RecordError, OSError):
        return False


def _digest_bodies(folder: Path) -> Mapping[str, set[bytes]]:
    """Return the digests of the confirm records of a study by the lock under which they were decoded."""
    bodies: dict[str, set[bytes]] = defaultdict(set)
    for name, number, line in untrusted_files.read_shards(folder / "records"):
        body = untrusted_files.parse_object(line, f"{name}:{number}")["body"]
        bodies[body["registration"]].add(hashlib.sha256(canonical.dumps(body)).digest())
    return bodies
