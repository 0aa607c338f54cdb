"""Write files once and atomically, read them as untrusted input, and name the cache folder of downloads."""

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

MOST_OF_A_DOCUMENT = 1 << 22  # the largest document of a shipped study has 65 000
_PLAINLY = (
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
)


def create(path: Path, data: bytes) -> None:
    """Write `path`: on return it is on disk, and after a crash it exists completely or not at all.

    Raises BadInput when it exists: a file is never replaced. Missing folders are made.
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
    """Write `path` as `create` does, but replace an existing file: only for files that nothing cites yet."""
    os.replace(_written_beside(path, data), path)
    sync(path.parent)


def read(path: Path, most: int | None = None) -> bytes:
    """Return the bytes of a plain file.

    Raises FileNotFoundError, and Tampered for anything but a plain file and for more than `max_bytes` bytes:
    a link shows other bytes on another machine, a pipe blocks, and an endless file fills the memory. Without
    `max_bytes`, raises TooLarge above an eighth of this machine's memory: parsed data takes six times its
    bytes.
    """
    with opened(path, most) as file:
        return file.read()


@contextmanager
def opened(path: Path, most: int | None = None, share: int = 8) -> Iterator[BufferedReader]:
    """Open a plain file for reading. Raises as `read` does, and opens nothing but plain files.

    memory_share: without `max_bytes`, a file may have one part in so many of the memory; a file that is read
    piece by piece may have more.
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
    """Return how many newlines a plain file has. Raises as `read` does."""
    with opened(path, share=2) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def refuse_other(path: Path) -> None:
    """Raise Tampered for anything but a plain file, without opening it."""
    _refuse_other(path, path.lstat())


def there(path: Path) -> bool:
    """Return whether anything has this name, even a dangling link, which reading then refuses."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def listed(folder: Path) -> list[Path]:
    """Return the sorted entries of a folder, none if it is missing. Raises Tampered for a link or a file."""
    if not there(folder):
        return []
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise Tampered(f"{folder.name}: is not a plain folder; put the folder itself there")
    return sorted(folder.iterdir())


def plain_sha256(path: Path, most: int | None = None) -> str:
    """Return the SHA-256 in hex of what `read` returns. Raises as `read` does."""
    with opened(path, most) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256(path: Path) -> str:
    """Return the SHA-256 of weights, data or sources on this machine, which may be links."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make(folder: Path) -> None:
    """Make `folder` and its missing parents; on return their names are on disk."""
    if not folder.is_dir():
        make(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def identity(path: str | Path) -> str:
    """Return device, inode, size and both times: while these are equal, the content is assumed unchanged."""
    of = os.stat(path)
    return f"{of.st_dev}:{of.st_ino}:{of.st_size}:{of.st_mtime_ns}:{of.st_ctime_ns}"


def sync(folder: Path) -> None:
    """Flush the names in `folder` to disk; syncing a file does not flush its name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with named(folder):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Add the path to an OSError from the `with` block: errors of writing and syncing lack it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _refuse_other(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise Tampered(f"{path.name}: is not a plain file; put the file itself there")


def _memory() -> int:
    """Return the bytes of this machine's memory; 8 GiB where the system does not say."""
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
    """Return the folder of downloads: $KV_PREREG_HOME, else ~/.cache/kv-prereg."""
    chosen = os.environ.get("KV_PREREG_HOME")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "kv-prereg"
