"""The door to the held-out problems."""

from dataclasses import dataclass
from pathlib import Path

from . import claim, ledger
from .lock import Lock
from .refusals import AlreadyClaimed, BadInput


@dataclass(frozen=True)
class HeldOut:
    """The held-out problems of `lock`, to be had under the claim in `folder` only."""

    lock: Lock
    folder: Path

    def ids(self, task: str, purpose: str) -> tuple[str, ...]:
        """The held-out problem ids of `task`; the ledger keeps that they were read, and what for.

        Raises BadInput without a claim, Tampered when the claim names another lock, AlreadyClaimed after the
        seal.
        """
        claim.read(self.folder, self.lock)
        if (self.folder / claim.SEAL).exists():
            raise AlreadyClaimed(f"{self.folder} is sealed; its held-out problems are not read again")
        if task not in self.lock.content["items"]:
            raise BadInput(f"task {task!r} is not locked; use one of {sorted(self.lock.content['items'])}")
        if not purpose:
            raise BadInput("purpose: say what the held-out problems are read for")
        ledger.append(self.folder, "held-out", {"task": task, "purpose": purpose})
        return tuple(self.lock.content["items"][task]["confirm"])
