"""A frozen split on disk: splits/<name>.json, canonical JSON and a line feed.

    {"kind": "kv-prereg split", "version": 1, "name": "math500", "source": "<sha256>",
     "counts": {"buckets": [94, 107, 98, 97, 104], "dev": 201, "confirm": 299},
     "ids": [["test/precalculus/807.json", 1], ...], "digest": "<sha256>"}

ids: every id with its bucket, in the order of the source; a third entry names what its hash is of, if that is not the
id itself: several ids of one topic are then in one split. source: SHA-256 of the source of the ids (a file's
bytes, or a generated task's settings). digest: SHA-256 of the canonical JSON of the other fields.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from protocol.formats import canonical
from splits.buckets import BUCKETS, CONFIRM, DEV, assign_bucket

FOLDER = Path(__file__).resolve().parent
OWN_UNITS: Mapping[str, str] = MappingProxyType({})  # every id is split by its own hash


class SplitError(ValueError):
    """A split is unknown, was altered, or cannot be frozen; the message names the file and the fix."""


class Manifest(NamedTuple):
    """A split. ids: all ids in the order of the source; dev and confirm: the same ids by split, in that
    order.
    """

    name: str
    source: str
    ids: tuple[str, ...]
    dev: tuple[str, ...]
    confirm: tuple[str, ...]
    digest: str


def load(name: str, folder: Path = FOLDER) -> Manifest:
    """Read splits/<name>.json. Raises SplitError unless digest, buckets and counts follow from the ids."""
    path = folder / f"{name}.json"
    known = sorted(file.stem for file in folder.glob("*.json"))
    if name not in known:
        raise SplitError(f"{path}: does not exist; the splits are {', '.join(known) or 'none'}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SplitError(f"{path}: could not be read: {error.strerror}") from None
    return parse_manifest(name, data, path)


def parse_manifest(name: str, data: bytes, path: object) -> Manifest:
    """Parse the manifest of the task `name` from `data`. Raises SplitError as `load` does."""
    try:
        document = json.loads(data)
        ids = tuple(entry[0] for entry in document["ids"])
        units = {entry[0]: entry[2] for entry in document["ids"] if len(entry) > 2}
        expected = build_content(name, ids, document["source"], units)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise SplitError(f"{path}: is not a split manifest ({reason}); restore it from version control") from None
    if data != canonical.encode(expected) + b"\n":
        differing = [key for key in expected if not isinstance(document, dict) or document.get(key) != expected[key]]
        raise SplitError(f"{path}: was altered ({', '.join(differing) or 'spelling'}); restore it from version control")
    return _from_fields(expected)


def make_manifest(name: str, ids: Iterable[str], source: str, units: Mapping[str, str] = OWN_UNITS) -> Manifest:
    """Return the manifest of ids without a file. Raises SplitError as `build_content` does."""
    return _from_fields(build_content(name, ids, source, units))


def build_content(name: str, ids: Iterable[str], source: str, units: Mapping[str, str] = OWN_UNITS) -> dict[str, Any]:
    """Return the fields of the manifest of these ids. units: by id, what is hashed in place of the id. Raises
    SplitError for a repeated id, an id that is not text in NFC, no ids, and a source that is no digest.
    """
    if not (isinstance(source, str) and re.fullmatch("[0-9a-f]{64}", source)):
        raise SplitError(f"{name}: source {source!r} is not a SHA-256 in lower-case hex")
    entries = [
        [unique_id, assign_bucket(units.get(unique_id, unique_id)), *([units[unique_id]] if unique_id in units else [])]
        for unique_id in _check_ids(name, list(ids))
    ]
    sizes = [sum(index == number for _, index, *_ in entries) for number in range(BUCKETS)]
    fields = {
        "kind": "kv-prereg split",
        "version": 1,
        "name": name,
        "source": source,
        "counts": {
            "buckets": sizes,
            "dev": sum(sizes[number] for number in DEV),
            "confirm": sum(sizes[number] for number in CONFIRM),
        },
        "ids": entries,
    }
    return fields | {"digest": hashlib.sha256(canonical.encode(fields)).hexdigest()}


def _from_fields(fields: dict[str, Any]) -> Manifest:
    ids = tuple(unique_id for unique_id, *_ in fields["ids"])
    members: dict[bool, tuple[str, ...]] = {
        is_confirm: tuple(unique_id for unique_id, index, *_ in fields["ids"] if (index in CONFIRM) == is_confirm)
        for is_confirm in (False, True)
    }
    return Manifest(fields["name"], fields["source"], ids, members[False], members[True], fields["digest"])


def _check_ids(name: str, ids: list[Any]) -> list[str]:
    if not ids:
        raise SplitError(f"{name}: has no ids; a split needs problems")
    unique_ids: set[str] = set()
    for unique_id in ids:
        if not isinstance(unique_id, str) or not unique_id:
            raise SplitError(f"{name}: id {unique_id!r} is not text; give every problem a unique_id")
        if unicodedata.normalize("NFC", unique_id) != unique_id:
            raise SplitError(f"{name}: id {unique_id!r} is not NFC; normalise it, because two ids could look alike")
        if unique_id in unique_ids:
            raise SplitError(f"{name}: id {unique_id!r} occurs twice; give each problem its own id")
        unique_ids.add(unique_id)
    return ids
