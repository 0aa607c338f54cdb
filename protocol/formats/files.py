"""Write files once and atomically, read them as untrusted input, and name the cache folder of downloads."""

import hashlib
import os
import secrets
import stat
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO

from protocol.formats.findings import TooLarge
from protocol.formats.refusals import BadInput, Tampered

MAX_LINE_BYTES = 1 << 26  # an answer of ten million tokens
MAX_DOCUMENT_BYTES = 1 << 22  # the largest document of a shipped study has 65 000
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def create(path: Path, data: bytes) -> None:
    """Write `path`: on return it is on disk, and after a crash it exists completely or not at all.

    Raises BadInput when it exists: a file is never replaced. Missing folders are made.
    """
    make_folder(path.parent)
    temporary = _write_temporary(path, data)
    try:
        os.link(temporary, path)  # unlike a rename, a link does not overwrite
    except FileExistsError:
        raise BadInput(f"{path} exists already and is never overwritten; work in a new folder") from None
    finally:
        temporary.unlink()
    sync_folder(path.parent)


def replace(path: Path, data: bytes) -> None:
    """Write `path` as `create` does, but replace an existing file: only for files that nothing cites yet."""
    os.replace(_write_temporary(path, data), path)
    sync_folder(path.parent)


def read(path: Path, max_bytes: int | None = None) -> bytes:
    """Return the bytes of a plain file.

    Raises FileNotFoundError, and Tampered for anything but a plain file and for more than `max_bytes` bytes: a link
    shows other bytes on another machine, a pipe blocks, and an endless file fills the memory. Without `max_bytes`,
    raises TooLarge above an eighth of this machine's memory: parsed data takes six times its bytes.
    """
    with open_plain(path, max_bytes) as file:
        return file.read()


@contextmanager
def open_plain(path: Path, max_bytes: int | None = None, memory_share: int = 8) -> Iterator[BufferedReader]:
    """Open a plain file for reading. Raises as `read` does, and opens nothing but plain files.

    memory_share: without `max_bytes`, a file may have one part in so many of the memory; a file that is read
    piece by piece may have more.
    """
    refuse_special(path)
    with open(os.open(path, _OPEN_FLAGS), "rb") as file:
        _refuse_special(path, status := os.fstat(file.fileno()))
        refuse_large(path, status.st_size, max_bytes, memory_share)
        yield file


def refuse_large(path: Path, size: int, max_bytes: int | None = None, memory_share: int = 8) -> None:
    """Raise Tampered above `max_bytes`; without it, TooLarge above one part in `memory_share` of the memory."""
    if max_bytes is not None and size > max_bytes:
        raise Tampered(f"{path.name}: has {size} bytes; no file of this kind has more than {max_bytes}")
    if max_bytes is None and size > (limit := machine_memory() // memory_share):
        raise TooLarge(
            f"{path.name}: has {size} bytes, but this machine can read only {limit}; use a machine with more memory"
        )


def iter_lines(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    """Yield lines of an open file with their newlines; a torn last one has none. Raises Tampered for too long a one."""
    for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b""), start=1):
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            raise Tampered(f"{path.name}:{number}: has more than {MAX_LINE_BYTES} bytes, which no record has")
        yield line
        if not line.endswith(b"\n"):  # the last one, even if the rest of it is written now
            return


def refuse_special(path: Path) -> None:
    """Raise Tampered for anything but a plain file, without opening it."""
    _refuse_special(path, path.lstat())


def exists(path: Path) -> bool:
    """Return whether anything has this name, even a dangling link, which reading then refuses."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def list_folder(folder: Path) -> list[Path]:
    """Return the sorted entries of a folder, none if it is missing. Raises Tampered for a link or a file."""
    if not exists(folder):
        return []
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise Tampered(f"{folder.name}: is not a plain folder; put a real folder there")
    return sorted(folder.iterdir())


def plain_sha256(path: Path, max_bytes: int | None = None) -> str:
    """Return the SHA-256 in hex of what `read` returns. Raises as `read` does."""
    with open_plain(path, max_bytes) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256(path: Path) -> str:
    """Return the SHA-256 of weights, data or sources on this machine, which may be links."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_folder(folder: Path) -> None:
    """Make `folder` and its missing parents; on return their names are on disk."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def file_identity(path: str | Path) -> str:
    """Return device, inode, size and both times: while these are equal, the content is assumed unchanged."""
    status = os.stat(path)
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


def sync_folder(folder: Path) -> None:
    """Flush the names in `folder` to disk; syncing a file does not flush its name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with attach_path(folder):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def attach_path(path: Path) -> Iterator[None]:
    """Add the path to an OSError from the `with` block: errors of writing and syncing lack it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _refuse_special(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Tampered(f"{path.name}: is not a plain file; put a real file there")


def machine_memory() -> int:
    """Return the bytes of this machine's memory; 8 GiB where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 8 << 30


def _write_temporary(path: Path, data: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with attach_path(path), temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def temporary_file(owner: object) -> IO[bytes]:
    """Return a file without a name that is closed, and so removed, with its owner."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  # no block of code lasts as long as its owner
    weakref.finalize(owner, file.close)
    return file


def cache_home() -> Path:
    """Return the folder of downloads: $KV_PREREG_HOME, else ~/.cache/kv-prereg. Raises BadInput for a file."""
    configured = os.environ.get("KV_PREREG_HOME")
    home = Path(configured).expanduser() if configured else Path.home() / ".cache" / "kv-prereg"
    if home.is_file():
        raise BadInput(f"KV_PREREG_HOME: {home} is a file; name a folder, or unset it")
    return home
