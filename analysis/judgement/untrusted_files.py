"""Reading files of an untrusted folder: no link, pipe or device is opened, and sizes are bounded."""

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from protocol.formats import shards
from protocol.formats.refusals import Refusal

__all__ = [
    "MAX_BYTES",
    "RecordError",
    "machine_memory",
    "parse_object",
    "read_bytes",
    "read_gzip",
    "read_lines",
    "read_shards",
    "refuse_special_files",
]

# Largest accepted document and decompressed side file, in bytes; the shipped ones have up to 65 000 and some
# hundred thousand.
MAX_BYTES = 1 << 22
MAX_INFLATED_BYTES = 1 << 28
MAX_LINE_BYTES = 1 << 26  # an answer of ten million tokens
_GZIP = 31  # zlib's wbits for a 32 KiB window with gzip header and checksum
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class RecordError(ValueError):
    """An invalid lock or record; the message is one line with file, line and field."""


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
                    raise RecordError(f"{folder}: {name}: is not a plain file; put the file itself there")


def read_bytes(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Read a file of a folder that `refuse_special_files` accepted. Raises FileNotFoundError, and RecordError
    for more than `max_bytes` bytes.
    """
    with open(os.open(path, _OPEN_FLAGS), "rb") as file:
        _refuse_large(path, os.fstat(file.fileno()).st_size, max_bytes)
        return file.read()


def read_shards(folder: Path) -> Iterator[tuple[str, int, bytes]]:
    """Yield (shard name, line number, line) for every shard in a folder, plain or packed, sorted by name; lines
    are bytes with their newline, if any. Raises RecordError for a damaged packed shard, for one with more bytes
    than half of this machine's memory, although lines are read one at a time, and for a line that is too long.
    """
    try:
        for path in shards.list_shards(folder):
            yield from _read_lines(path)
    except Refusal as error:
        raise RecordError(f"{folder}: {error}") from None


def read_lines(folder: Path, pattern: str) -> Iterator[tuple[str, int, bytes]]:
    """Yield the lines of every file that matches, as `read_shards` does."""
    try:
        for path in sorted(folder.glob(pattern)):
            yield from _read_lines(path)
    except Refusal as error:
        raise RecordError(f"{folder}: {error}") from None


def _read_lines(path: Path) -> Iterator[tuple[str, int, bytes]]:
    with shards.open_shard(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b""), 1):
            if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                raise RecordError(f"{path.name}:{number}: has over {MAX_LINE_BYTES} bytes")
            yield path.name, number, line


def read_gzip(path: Path) -> bytes:
    """Return the content of a gzip file. Raises FileNotFoundError, and RecordError if damaged or too large."""
    decompressor = zlib.decompressobj(_GZIP)
    try:
        data = decompressor.decompress(read_bytes(path, MAX_INFLATED_BYTES), MAX_INFLATED_BYTES + 1)
    except zlib.error as problem:
        raise RecordError(f"{path.name}: damaged ({problem}); bring back the whole folder") from None
    if len(data) > MAX_INFLATED_BYTES or not decompressor.eof:
        raise RecordError(f"{path.name}: damaged (it holds too much, or was cut short); bring back the whole folder")
    return data


def _refuse_large(path: Path, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise RecordError(f"{path}: has {size} bytes; no such file of ours has over {max_bytes}")


def parse_object(data: bytes, where: str) -> dict[str, Any]:
    """Parse a line or document as a JSON object. Raises RecordError for JSON outside our format."""

    def refuse(text: str) -> NoReturn:
        raise RecordError(f"{where}: {text}: numbers are integers, decimals are strings")

    def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            raise RecordError(f"{where}: a key stands twice in one object")
        return members

    def parse_integer(text: str) -> int:
        if len(text) > 17 or abs(int(text)) >= 2**53:
            raise RecordError(f"{where}: an integer beyond 2^53-1; it is written as text")
        return int(text)

    try:
        value = json.loads(
            data.decode("utf-8"),
            parse_constant=refuse,
            parse_float=refuse,
            parse_int=parse_integer,
            object_pairs_hook=unique_keys,
        )
        json.dumps(value, ensure_ascii=False).encode()  # refuses unpaired surrogates
    except UnicodeDecodeError as error:
        raise RecordError(f"{where}: not UTF-8 at byte {error.start}; the line was edited") from None
    except json.JSONDecodeError as error:
        raise RecordError(f"{where}: not JSON at column {error.colno}; the line was cut or edited") from None
    except UnicodeEncodeError:
        raise RecordError(f"{where}: half a surrogate pair, which UTF-8 cannot carry") from None
    except RecursionError:
        raise RecordError(f"{where}: nested too deeply to be ours") from None
    if not isinstance(value, dict):
        raise RecordError(f"{where}: not an object")
    return value


def machine_memory() -> int:
    """Return the memory of this machine in bytes; 8 GiB if unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 8 << 30
