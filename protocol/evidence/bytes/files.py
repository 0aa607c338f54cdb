"""Files that are written once, whole and for good; where those that were fetched are kept."""

import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from protocol.evidence.refusals import BadInput, Tampered


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


def read(path: Path) -> bytes:
    """The bytes of a plain file. Raises FileNotFoundError, and Tampered for anything else in its place: a
    link shows other bytes on another machine, and a pipe waits for ever.
    """
    refuse_other(path)
    return path.read_bytes()


def refuse_other(path: Path) -> None:
    """Raises as `read` does, but reads nothing."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise Tampered(f"{path.name}: is not a plain file; put the file itself there")


def sha256(path: Path) -> str:
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
