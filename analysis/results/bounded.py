"""Reads untrusted result files within bounds on type and size; parses JSON and zip files."""

import io
import json
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from analysis.results.rows import ResultError
from analysis.studies.plain_files import MOST_INFLATED, memory

__all__ = ["data", "members", "parsed", "text"]

ENTRIES = 1_000_000  # of a zip file
ZSTD = 93  # the compression method of zip files that inspect_ai uses
_HEADER = 30  # bytes of a local header before the name
_PLAINLY = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def data(path: Path) -> bytes:
    """Read a file. Raises ResultError for a link, a pipe, a device, and more than an eighth of this machine's
    memory.
    """
    if path.is_symlink():
        raise ResultError(f"{path}: is a link; name the file itself")
    with open(os.open(path, _PLAINLY), "rb") as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise ResultError(f"{path}: is not a plain file; name a result file")
        if state.st_size > (most := memory() // 8):
            raise ResultError(f"{path}: has {state.st_size} bytes; at most {most} are read on this machine")
        return file.read()


def text(read: bytes, where: str) -> str:
    try:
        return read.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise ResultError(f"{where}: byte {problem.start} is not UTF-8; save the file as UTF-8") from None


def parsed(read: bytes, where: str) -> Any:
    """Parse JSON; NaN and infinity are accepted here, and refused as scores."""
    try:
        return json.loads(read)
    except RecursionError:
        raise ResultError(f"{where}: is nested too deeply; no result file is") from None
    except ValueError as problem:
        raise ResultError(f"{where}: is not JSON ({problem}); was it cut short?") from None


def members(read: bytes, where: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of every wanted file in a zip file, in its order.

    Raises ResultError for another format, a damaged file, and one that is too large.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(read)) as packed:
            entries = packed.infolist()
            if len(entries) > ENTRIES:
                raise ResultError(f"{where}: has {len(entries)} entries; at most {ENTRIES} are read")
            left = memory() // 8
            for entry in (one for one in entries if wanted(one.filename)):
                inside = f"{where}: {entry.filename}"
                most = min(MOST_INFLATED, left)
                found = _zstd(read, entry, most, inside) if entry.compress_type == ZSTD else None
                if found is None:
                    with packed.open(entry) as file:
                        found = file.read(most + 1)
                if len(found) > most:
                    raise ResultError(f"{inside}: holds over {most} bytes; no log does")
                left -= len(found)
                yield entry.filename, found
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as problem:
        raise ResultError(
            f"{where}: is no zip file that can be read ({problem}); copy the log again"
        ) from None


def _zstd(read: bytes, entry: zipfile.ZipInfo, most: int, inside: str) -> bytes:
    """Read a member that the standard library cannot read before Python 3.14.

    Its bytes begin after its local header, whose two last fields are the lengths of its name and of its extra
    field.
    """
    try:
        import zstandard
    except ImportError:
        raise ResultError(
            f"{inside}: is packed with zstd; pip install 'kv-prereg[compare]', or convert the log first: "
            "inspect log convert --to json"
        ) from None
    start = entry.header_offset + _HEADER
    name, extra = (int.from_bytes(read[at : at + 2], "little") for at in (start - 4, start - 2))
    packed = read[start + name + extra :][: entry.compress_size]
    try:
        with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as stream:
            found: bytes = stream.read(most + 1)
    except zstandard.ZstdError as problem:
        raise ResultError(f"{inside}: is damaged ({problem}); copy the log again") from None
    if len(found) <= most and zlib.crc32(found) != entry.CRC:
        raise ResultError(f"{inside}: is damaged (another checksum); copy the log again")
    return found
