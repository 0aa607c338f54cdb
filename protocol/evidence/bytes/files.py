"""Files that are written once, whole and for good, and read as if a stranger had put them there; where those
that were fetched are kept.
"""

import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from protocol.evidence.findings import TooLarge
from protocol.evidence.refusals import BadInput, Tampered

MOST_OF_A_DOCUMENT = 1 << 22  # bytes; those of shipped studies have up to 65 000
_PLAINLY = (
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
)


def create(path: Path, data: bytes) -> None:
    """Write `path`: on return it is on disk, and after a crash it is there whole or not at all.

    Raises BadInput when it exists: what is there is never replaced. Missing folders are made.
    """
    make(path.parent)
    unfinished = _written_beside(path, data)
    try:
        os.link(unfinished, path)  # unlike a rename, a link does not overwrite
    except FileExistsError:
        raise BadInput(f"{path} exists and is written once; work in a new folder") from None
    finally:
        unfinished.unlink()
    sync(path.parent)


def replace(path: Path, data: bytes) -> None:
    """As `create`, but in place of what is there: only for files that nothing vouches for yet."""
    os.replace(_written_beside(path, data), path)
    sync(path.parent)


def read(path: Path, most: int | None = None) -> bytes:
    """The bytes of a plain file. Raises FileNotFoundError, and Tampered for anything else in its place and
    for a file of more than `most` bytes: a link shows other bytes on another machine, a pipe waits for ever,
    and a file without end fills the memory. Without `most` raises TooLarge above an eighth of this machine's
    memory: what is parsed takes six times its bytes.
    """
    with opened(path, most) as file:
        return file.read()


@contextmanager
def opened(path: Path, most: int | None = None, share: int = 8) -> Iterator[BufferedReader]:
    """A plain file to read from. Raises as `read` does; what is no plain file is not opened at all. share:
    which part of the memory a file may have without `most`: one that is read piece by piece may have more.
    """
    refuse_other(path)
    with open(os.open(path, _PLAINLY), "rb") as file:
        _refuse_other(path, now := os.fstat(file.fileno()))
        if most is not None and now.st_size > most:
            raise Tampered(f"{path.name}: has {now.st_size} bytes; no such file of ours has over {most}")
        if most is None and now.st_size > (here := _memory() // share):
            raise TooLarge(
                f"{path.name}: has {now.st_size} bytes, this machine reads {here}; use a larger one"
            )
        yield file


def lines(path: Path) -> int:
    """How many newlines a plain file has. Raises as `read` does."""
    with opened(path, share=2) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def refuse_other(path: Path) -> None:
    """Raises as `read` does of what is no plain file, but opens nothing."""
    _refuse_other(path, path.lstat())


def there(path: Path) -> bool:
    """Whether anything has this name, be it a link that leads nowhere: reading it says what is wrong."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def listed(folder: Path) -> list[Path]:
    """What lies in a folder, by name; nothing where none is. Raises Tampered for a link or a file in its
    place.
    """
    if not there(folder):
        return []
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise Tampered(f"{folder.name}: is not a plain folder; put the folder itself there")
    return sorted(folder.iterdir())


def plain_sha256(path: Path, most: int | None = None) -> str:
    """SHA-256 in hex of what `read` returns, and refused as there."""
    with opened(path, most) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256(path: Path) -> str:
    """Of weights, data and sources of this machine, which may be links."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make(folder: Path) -> None:
    """Make `folder` and what is missing above it; on return their names are on disk."""
    if not folder.is_dir():
        make(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def identity(path: str | Path) -> str:
    """Device, inode, size and both times: while they stay the same, a file is taken to hold what it held."""
    of = os.stat(path)
    return f"{of.st_dev}:{of.st_ino}:{of.st_size}:{of.st_mtime_ns}:{of.st_ctime_ns}"


def sync(folder: Path) -> None:
    """Bring the names in `folder` to disk; syncing a file does not bring its name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with named(folder):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """An OSError from within says which path it is about: those of writing and syncing do not."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _refuse_other(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise Tampered(f"{path.name}: is not a plain file; put the file itself there")


def _memory() -> int:
    """Bytes of this machine; 8 GiB where it does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 8 << 30


def _written_beside(path: Path, data: bytes) -> Path:
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with named(path), unfinished.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return unfinished


def home() -> Path:
    """Where what was fetched is kept: $KV_PREREG_HOME, else ~/.cache/kv-prereg."""
    chosen = os.environ.get("KV_PREREG_HOME")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "kv-prereg"
