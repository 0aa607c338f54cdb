"""Files of a stranger's folder: no link, pipe or device is opened, and none is read beyond its bounds."""

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["MOST", "RecordError", "inflated", "lines", "memory", "parsed", "read", "refuse_other"]

# Bytes of the largest document and inflated side file that are taken; the shipped ones have up to 65 000 and
# some hundred thousand.
MOST = 1 << 22
MOST_INFLATED = 1 << 28
MOST_OF_A_LINE = 1 << 26  # an answer of ten million tokens
_GZIP = 31  # of zlib: the window of 32 KiB, within the header and the checksum of gzip
_PLAINLY = (
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
)


class RecordError(ValueError):
    """A lock or record that is not what it claims to be; one line names the file, line and field."""


def refuse_other(folder: Path) -> None:
    """Raises RecordError where something below `folder` is neither a plain file nor a plain folder: a link
    shows the bytes of another place, and lets what is drawn be written there; a pipe waits for ever. The
    folder itself may be reached by a link.
    """
    waiting = [str(folder)] if folder.is_dir() else []
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif not entry.is_file(follow_symlinks=False):
                    name = os.path.relpath(entry.path, folder)
                    raise RecordError(f"{folder}: {name}: is not a plain file; put the file itself there")


def read(path: Path, most: int = MOST) -> bytes:
    """Raises FileNotFoundError, and RecordError for a file of more than `most` bytes. For what lies in a
    folder that `refuse_other` let pass.
    """
    with open(os.open(path, _PLAINLY), "rb") as file:
        _refuse_large(path, os.fstat(file.fileno()).st_size, most)
        return file.read()


def lines(folder: Path, pattern: str = "*.jsonl") -> Iterator[tuple[str, int, bytes]]:
    """Of every shard in a folder, by name: its name, and the number and bytes of each line, with its newline
    where it has one. Raises RecordError for a shard of over half of this machine's memory, though a line at a
    time is held, and for a line without end.
    """
    for path in sorted(folder.glob(pattern)):
        with open(os.open(path, _PLAINLY), "rb") as file:
            _refuse_large(path, os.fstat(file.fileno()).st_size, memory() // 2)
            for number, line in enumerate(iter(lambda: file.readline(MOST_OF_A_LINE), b""), 1):
                if len(line) == MOST_OF_A_LINE and not line.endswith(b"\n"):
                    raise RecordError(f"{path.name}:{number}: has over {MOST_OF_A_LINE} bytes")
                yield path.name, number, line


def inflated(path: Path) -> bytes:
    """What a gzip file holds. Raises FileNotFoundError; RecordError for what is none or holds too much."""
    inflating = zlib.decompressobj(_GZIP)
    try:
        data = inflating.decompress(read(path, MOST_INFLATED), MOST_INFLATED + 1)
    except zlib.error as problem:
        raise RecordError(f"{path.name}: damaged ({problem}); bring back the whole folder") from None
    if len(data) > MOST_INFLATED or not inflating.eof:
        raise RecordError(
            f"{path.name}: damaged (it holds too much, or was cut short); bring back the whole folder"
        )
    return data


def _refuse_large(path: Path, size: int, most: int) -> None:
    if size > most:
        raise RecordError(f"{path}: has {size} bytes; no such file of ours has over {most}")


def parsed(data: bytes, where: str) -> dict[str, Any]:
    """The object that a line or a document holds. Raises RecordError for what our JSON does not have."""

    def refuse(text: str) -> NoReturn:
        raise RecordError(f"{where}: {text}: numbers are integers, decimals are strings")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        held = dict(pairs)
        if len(held) < len(pairs):
            raise RecordError(f"{where}: a key stands twice in one object")
        return held

    def whole(text: str) -> int:
        if len(text) > 17 or abs(int(text)) >= 2**53:
            raise RecordError(f"{where}: an integer beyond 2^53-1; it is written as text")
        return int(text)

    try:
        value = json.loads(
            data.decode("utf-8"),
            parse_constant=refuse,
            parse_float=refuse,
            parse_int=whole,
            object_pairs_hook=once,
        )
        json.dumps(value, ensure_ascii=False).encode()  # refuses half a surrogate pair
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


def memory() -> int:
    """Bytes of this machine; 8 GiB where it does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 8 << 30
