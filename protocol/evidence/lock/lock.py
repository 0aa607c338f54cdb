"""lock.json: what was registered, frozen. Its digest is the name by which everything else cites it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protocol.evidence.bytes import documents
from protocol.evidence.bytes.documents import Document as Lock
from protocol.evidence.refusals import AlreadyClaimed, BadInput

__all__ = ["NAME", "Lock", "read", "refuse_second", "write"]

NAME = "lock.json"


def write(folder: Path, content: Mapping[str, Any]) -> str:
    """Lock `folder` and return the lock's digest. A lock is never replaced."""
    refuse_second(folder)
    return documents.write(folder / NAME, content)


def refuse_second(folder: Path) -> None:
    """Raises AlreadyClaimed when `folder` is locked."""
    if (folder / NAME).exists():
        raise AlreadyClaimed(f"{folder} is locked already; register another study in another folder")


def read(folder: Path) -> Lock:
    """The lock of `folder`. Raises BadInput when there is none, Tampered when it is not canonical."""
    if not (folder / NAME).exists():
        raise BadInput(f"{folder} is not locked; run: python -m protocol.register {folder}")
    return documents.read(folder / NAME)
