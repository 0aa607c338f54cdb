"""Shard files: lines of records, plain while they grow, and optionally packed once the study is finished.

A packed shard is one gzip member without a name and a time. Every digest is that of the plain lines, so
packing changes no seal. A shard is stored in one of the two forms, never in both.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from protocol.formats import files, gzip_file
from protocol.formats.refusals import Tampered

OWN = "shard-0.jsonl"  # of the lanes that a study decoded itself
PACKED = ".gz"  # suffix of a packed shard
MEMORY_SHARE = 2  # the lines of a shard may have half of this machine's memory


def list_shards(folder: Path) -> list[Path]:
    """Return the paths of shards. Raises Tampered for a link or a file in place of the folder, and for two forms."""
    paths = [
        path for path in files.list_folder(folder) if path.match("shard-*.jsonl") or path.match("shard-*.jsonl.gz")
    ]
    names = {path.name for path in paths}
    for path in paths:
        if is_packed(path) and plain_name(path) in names:
            raise Tampered(f"{path.name}: exists both packed and plain; remove one of the two")
    return paths


def is_packed(path: Path) -> bool:
    return path.suffix == PACKED


def plain_name(path: Path) -> str:
    """Return the file name of the plain form, by which a seal names the shard."""
    return path.name.removesuffix(PACKED)


@contextmanager
def open_shard(path: Path) -> Iterator[IO[bytes]]:
    """Open the plain lines of a shard; those of a packed one are decompressed while they are read.

    Raises Tampered for anything but a plain file and, at the latest at its end, for a packed shard that is not
    exactly one gzip member of the length that it states; TooLarge above half of this machine's memory.
    """
    with files.open_plain(path, memory_share=MEMORY_SHARE) as file:
        if not is_packed(path):
            yield file
            return
        size = plain_bytes(path)
        files.refuse_large(path, size, memory_share=MEMORY_SHARE)
        yield gzip_file.decompressed(file, path.name, size)


def read(path: Path) -> bytes:
    """Return the plain lines of a shard. Raises as `open_shard` does, TooLarge above an eighth of the memory."""
    files.refuse_large(path, plain_bytes(path))
    with open_shard(path) as file:
        return file.read()


def plain_bytes(path: Path) -> int:
    """Return the size of the plain lines; of a packed shard the one that its last four bytes state."""
    with files.open_plain(path, memory_share=MEMORY_SHARE) as file:
        size = file.seek(0, os.SEEK_END)
        if not is_packed(path) or size < gzip_file.MIN_BYTES:
            return size
        file.seek(-4, os.SEEK_END)
        return int.from_bytes(file.read(4), "little")


def count_lines(path: Path) -> int:
    """Return how many complete lines a shard has. Raises as `open_shard` does."""
    with open_shard(path) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
