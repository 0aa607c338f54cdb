"""Append-only files of lines that never lose an acknowledged line."""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from protocol.formats import files
from protocol.formats.fields import DIGEST, Field, Integer, Table
from protocol.formats.refusals import AlreadyClaimed

START = "0" * 64  # the previous digest of the first line of a chain
HEAD = Table(  # the state of a chain, as a document records it
    {
        "count": Field(Integer(), "Lines."),
        "head": Field(DIGEST, "The sha256 of the last line; 64 zeros before the first."),
    }
)


_BLOCK = 1 << 16


def next_chain(chain: str, sha256: str) -> str:
    """Return the chain of a line with this digest after a line with that chain."""
    return hashlib.sha256((chain + sha256).encode("ascii")).hexdigest()


class Lines(NamedTuple):
    complete: list[bytes]  # without their newline
    torn: int  # bytes after the last newline: a write that a crash cut short


def split_lines(data: bytes) -> Lines:
    *complete, remainder = data.split(b"\n")
    return Lines(complete, len(remainder))


def count_torn(file: IO[bytes]) -> int:
    """Return how many bytes follow the last newline of a file, read from its end."""
    end = start = file.seek(0, os.SEEK_END)
    while start:
        block_end, start = start, max(0, start - _BLOCK)
        file.seek(start)
        if (newline := file.read(block_end - start).rfind(b"\n")) >= 0:
            return end - (start + newline + 1)
    return end


class Journal:
    """A file of lines that only this process may append to until the `with` block ends."""

    def __init__(self, path: Path, descriptor: int, lines: Lines, keeps_lines: bool = True):
        self.lines = lines
        self._keeps_lines = keeps_lines
        self._path = path
        self._descriptor = descriptor

    def drop_torn(self) -> None:
        """Cut off a torn last line; otherwise the next line would be glued to it."""
        if self.lines.torn:
            with files.attach_path(self._path):
                os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - self.lines.torn)
                os.fsync(self._descriptor)
            self.lines = Lines(self.lines.complete, 0)

    def append(self, lines: list[bytes]) -> None:
        """Add `lines` in one write and one fsync: on return they are all on disk, after an error none is."""
        self.drop_torn()
        data = b"".join(line + b"\n" for line in lines)
        size = os.fstat(self._descriptor).st_size
        with files.attach_path(self._path):
            try:
                if os.write(self._descriptor, data) != len(data):
                    raise OSError(errno.ENOSPC, "only part of the data could be written to the disk")
                os.fsync(self._descriptor)
            except OSError:
                os.ftruncate(self._descriptor, size)
                raise
        if self._keeps_lines:
            self.lines.complete.extend(lines)


@contextmanager
def open_journal(path: Path, *, wait: bool, keep_lines: bool = True) -> Iterator[Journal]:
    """Open the journal at `path`, made if missing. Opening does not change its content.

    keep_lines: whether `lines` has the existing lines; otherwise only the count of torn bytes.
    wait: whether to wait for another process that has it open or raise AlreadyClaimed. Raises Tampered for
    anything but a plain file.
    """
    files.make_folder(path.parent)
    if os.path.lexists(path):
        files.refuse_special(path)
    with path.open("a+b", buffering=0) as file:
        lock_file(file, wait=wait, name=str(path))
        files.sync_folder(path.parent)  # always: the file's creator may have died before its name was on disk
        file.seek(0)
        lines = split_lines(file.read()) if keep_lines else Lines([], count_torn(file))
        yield Journal(path, file.fileno(), lines, keep_lines)


def lock_file(file: IO[bytes], *, wait: bool, name: str) -> None:
    """Lock `file` against every other process until it is closed or this process dies."""
    import fcntl  # missing on Windows, where auditing still works: it never locks a file

    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise AlreadyClaimed(f"{name} is locked by another process; let it finish or stop it") from None
