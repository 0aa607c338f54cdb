"""Reading files of an untrusted folder: no link, pipe or device is opened, and sizes are bounded."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from protocol.formats import files, packed_file, shards, strict_json
from protocol.formats.refusals import SHAPE_ERRORS, Refusal

DAMAGED = "; it was cut short or edited; kv-prereg audit shows which files are valid"


class RecordError(Refusal, ValueError):
    """An invalid lock or record; the message is one line with file, line and field."""


class MissingField(RecordError, KeyError):
    """A document lacks a field that its format has."""

    __str__ = Exception.__str__


class Fields(dict[str, Any]):
    """An object of a document. A field that is missing is refused with the name of its file."""

    def __init__(self, where: str, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        self.where = where

    def __missing__(self, name: str) -> NoReturn:
        raise MissingField(
            f"{self.where}: lacks the field {name!r}, because it was edited or another version wrote it; "
            "kv-prereg audit shows which files are valid"
        )


def refuse_special_files(folder: Path) -> None:
    """Raise RecordError if anything below `folder` is neither a regular file nor a directory: a link exposes
    bytes from elsewhere and redirects writes; a pipe blocks. `folder` itself may be a link.
    """
    pending = [str(folder)] if folder.is_dir() else []
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                elif not entry.is_file(follow_symlinks=False):
                    name = os.path.relpath(entry.path, folder)
                    raise RecordError(f"{folder}: {name}: is not a plain file; replace it by the file itself")


@contextmanager
def refuse_wrong_shape(folder: Path) -> Iterator[None]:
    """Raise RecordError for what reading a document of the wrong shape raises. Only what reads and formats stands
    inside.
    """
    try:
        yield
    except (Refusal, OSError):
        raise
    except SHAPE_ERRORS as error:
        raise RecordError(
            f"{folder}: a file does not have the documented format ({type(error).__name__}: {error}); "
            "kv-prereg audit shows which files are valid"
        ) from None


def read_bytes(path: Path, max_bytes: int = files.MAX_DOCUMENT_BYTES) -> bytes:
    """Read a plain file. Raises FileNotFoundError, and RecordError for more than `max_bytes` bytes."""
    with _record_errors():
        return files.read(path, max_bytes)


def read_shards(folder: Path) -> Iterator[tuple[str, int, bytes]]:
    """Yield (shard name, line number, line) for every shard in a folder, plain or packed, sorted by name; lines
    are bytes with their newline, if any. Raises RecordError for a damaged packed shard, for one with more bytes
    than half of this machine's memory, although lines are read one at a time, and for a line that is too long.
    """
    with _record_errors():
        for path in shards.list_shards(folder):
            yield from _read_lines(path)


def read_bodies(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the body of every whole record in a folder, as `read_shards` does."""
    for _, _, line in read_shards(folder):
        if line.endswith(b"\n"):
            yield json.loads(line)["body"]


def read_lines(folder: Path, pattern: str) -> Iterator[tuple[str, int, bytes]]:
    """Yield the lines of every file whose plain name matches, as `read_shards` does."""
    with _record_errors():
        for name in sorted({shards.plain_name(path) for path in files.list_folder(folder)}):
            if fnmatchcase(name, pattern):
                yield from _read_lines(shards.find_form(folder / name))


def _read_lines(path: Path) -> Iterator[tuple[str, int, bytes]]:
    with shards.open_shard(path) as file:
        for number, line in enumerate(files.iter_lines(path, file), start=1):
            yield path.name, number, line


def read_gzip(path: Path) -> bytes:
    """Return the content of a gzip file. Raises FileNotFoundError, and RecordError if damaged or too large."""
    with _record_errors():
        return packed_file.read(path)


def parse_object(data: bytes, where: str) -> dict[str, Any]:
    """Parse a line or document as a JSON object. Raises RecordError for JSON outside our format."""
    try:
        value: Any = strict_json.parse(data, integers_only=True, build=partial(Fields, where))
    except strict_json.JsonFault as fault:
        raise RecordError(f"{where}: {fault}{DAMAGED}") from None
    if not isinstance(value, Fields):
        raise RecordError(f"{where}: is not an object{DAMAGED}")
    return value


@contextmanager
def _record_errors() -> Iterator[None]:
    try:
        yield
    except Refusal as refusal:
        raise RecordError(f"{refusal}; restore the whole folder") from None
