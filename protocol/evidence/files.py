"""Files that are written once, whole and for good; where those that were fetched are kept."""

import hashlib
import os
import secrets
from pathlib import Path

from .refusals import BadInput


def create(path: Path, data: bytes) -> None:
    """Write `path`: on return it is on disk, and after a crash it is there whole or not at all.

    Raises BadInput when it exists: what is there is never replaced. Missing folders are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
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


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(folder: Path) -> None:
    """Bring the names in `folder` to disk; syncing a file does not bring its name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _written_beside(path: Path, data: bytes) -> Path:
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with unfinished.open("xb") as file:
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
