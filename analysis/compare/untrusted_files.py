"""Reads untrusted result files within bounds on type and size; parses JSON and zip files."""

import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from analysis.compare.scored_answers import ResultError
from protocol.formats import files, packed_file, strict_json
from protocol.formats.findings import TooLarge
from protocol.formats.refusals import Tampered

ENTRIES = 1_000_000  # of a zip file
ZSTD = 93  # the compression method of zip files that inspect_ai uses
_HEADER_BYTES = 30  # bytes of a local header before the name


def read_bytes(path: Path) -> bytes:
    """Read a file. Raises ResultError for a link, a pipe, a device, and more than an eighth of the memory."""
    if path.is_symlink():
        raise ResultError(f"{path}: is a symbolic link; name the file itself")
    try:
        return files.read(path)
    except (Tampered, TooLarge) as refusal:
        raise ResultError(str(path.parent / str(refusal))) from None


def decode_text(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise ResultError(f"{where}: byte {problem.start} is not valid UTF-8; save the file as UTF-8") from None


def parse_json(content: bytes, where: str) -> Any:
    """Parse JSON; NaN and infinity are accepted here, and refused as scores. A key that stands twice is refused, since
    parsers differ in which of its values they take.
    """
    try:
        return json.loads(content, object_pairs_hook=strict_json.unique_keys)
    except strict_json.JsonFault as fault:
        raise ResultError(f"{where}: {fault}") from None
    except RecursionError:
        raise ResultError(f"{where}: is nested too deeply for a result file; name another file") from None
    except ValueError as problem:
        raise ResultError(f"{where}: is not valid JSON ({problem}); check that the file is complete") from None


def zip_members(archive: bytes, where: str, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of every wanted file in a zip file, in its order.

    Raises ResultError for another format, a damaged file, and one that is too large.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as zip_file:
            entries = zip_file.infolist()
            if len(entries) > ENTRIES:
                raise ResultError(
                    f"{where}: has {len(entries)} entries, and at most {ENTRIES} are read; name a smaller file"
                )
            remaining = files.machine_memory() // 8
            for entry in (candidate for candidate in entries if is_wanted(candidate.filename)):
                location = f"{where}: {entry.filename}"
                limit = min(packed_file.MAX_BYTES, remaining)
                content = _read_zstd(archive, entry, limit, location) if entry.compress_type == ZSTD else None
                if content is None:
                    with zip_file.open(entry) as file:
                        content = file.read(limit + 1)
                if len(content) > limit:
                    raise ResultError(
                        f"{location}: is larger than {limit} bytes, too large for a log; name another file"
                    )
                remaining -= len(content)
                yield entry.filename, content
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as problem:
        raise ResultError(f"{where}: is not a readable zip file ({problem}); copy the log again") from None


def _read_zstd(archive: bytes, entry: zipfile.ZipInfo, limit: int, location: str) -> bytes:
    """Read a member that the standard library cannot read before Python 3.14.

    Its bytes begin after its local header, whose two last fields are the lengths of its name and of its extra field.
    """
    try:
        import zstandard
    except ImportError:
        raise ResultError(
            f"{location}: is compressed with zstd; pip install '.[compare]', or convert the log first: "
            "inspect log convert --to json"
        ) from None
    start = entry.header_offset + _HEADER_BYTES
    name, extra = (int.from_bytes(archive[offset : offset + 2], "little") for offset in (start - 4, start - 2))
    packed = archive[start + name + extra :][: entry.compress_size]
    try:
        with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as stream:
            content: bytes = stream.read(limit + 1)
    except zstandard.ZstdError as problem:
        raise ResultError(f"{location}: is damaged ({problem}); copy the log again") from None
    if len(content) <= limit and zlib.crc32(content) != entry.CRC:
        raise ResultError(f"{location}: is damaged (its checksum differs); copy the log again")
    return content
