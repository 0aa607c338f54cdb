"""Files of lines (shards, journals of instruments), plain while they grow, and optionally packed once the study ended.

A packed file is one stream of xz, or of gzip in the earlier form. Every digest is that of the plain lines, so packing
changes no seal. A file is stored in one form alone.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import IO

from protocol.formats import files, packed_file
from protocol.formats.refusals import AlreadyClaimed, Tampered

OWN = "shard-0.jsonl"  # of the lanes that a study decoded itself
PACKED = packed_file.XZ  # suffix of a file that is packed today
SUFFIXES = (PACKED, packed_file.GZIP)  # of all packed files
_TWO_FORMS = "exists both packed and plain; remove one of the two"
MEMORY_SHARE = 2  # the lines of a shard may have half of this machine's memory


def list_shards(folder: Path) -> list[Path]:
    """Return the paths of shards. Raises Tampered for a link or a file in place of the folder, and for two forms."""
    paths = [path for path in files.list_folder(folder) if PurePath(plain_name(path)).match("shard-*.jsonl")]
    names = set[str]()
    for path in paths:
        if plain_name(path) in names:
            raise Tampered(f"{path.name}: {_TWO_FORMS}")
        names.add(plain_name(path))
    return paths


def is_packed(path: Path) -> bool:
    return path.suffix in SUFFIXES


def plain_name(path: PurePath) -> str:
    """Return the file name of the plain form, by which a seal names the shard."""
    return path.stem if path.suffix in SUFFIXES else path.name


def find_form(path: Path) -> Path:
    """Return the path of the form in which a plain file is stored; its own if it is missing.

    Raises Tampered for two forms.
    """
    forms = (path, *(path.with_name(path.name + suffix) for suffix in SUFFIXES))
    stored = [form for form in forms if files.exists(form)]
    if len(stored) > 1:
        raise Tampered(f"{stored[1].name}: {_TWO_FORMS}")
    return stored[0] if stored else path


def refuse_packed(path: Path) -> None:
    """Raise AlreadyClaimed where a plain file, to which lines are to be appended, is packed."""
    if (packed := find_form(path)) != path:
        raise AlreadyClaimed(f"{packed} is packed: its study is finished and can record nothing more")


@contextmanager
def open_shard(path: Path) -> Iterator[IO[bytes]]:
    """Open the plain lines of a shard; those of a packed one are decompressed while they are read.

    Raises Tampered for anything but a plain file and, at the latest at its end, for a packed shard that is not
    exactly one stream of the length that it states; TooLarge above half of this machine's memory.
    """
    with files.open_plain(path, memory_share=MEMORY_SHARE) as file:
        if not is_packed(path):
            yield file
            return
        size = plain_bytes(path)
        files.refuse_large(path, size, memory_share=MEMORY_SHARE)
        yield packed_file.decompressed(file, path.name, size)


def read(path: Path) -> bytes:
    """Return the plain lines of a shard. Raises as `open_shard` does, TooLarge above an eighth of the memory."""
    files.refuse_large(path, plain_bytes(path))
    with open_shard(path) as file:
        return file.read()


def plain_bytes(path: Path) -> int:
    """Return the size of the plain lines; of a packed shard the one that its end states."""
    with files.open_plain(path, memory_share=MEMORY_SHARE) as file:
        return packed_file.stated_bytes(file, path.name) if is_packed(path) else file.seek(0, os.SEEK_END)


def count_lines(path: Path) -> int:
    """Return how many complete lines a shard has. Raises as `open_shard` does."""
    with open_shard(path) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
