"""Problems that only the driver can open, handed to the worker that has their batch: encrypted to a key which
that worker alone has, in memory, while it lives. No disk has them as they are, whoever is killed.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from protocol.evidence.bytes import canonical, files
from protocol.tasks import encrypted

__all__ = ["SUFFIX", "Receiver", "hand"]

SUFFIX = ".age"  # in the place of a job's


def hand(place: Path, given: Mapping[str, Any], recipient: str) -> None:
    """Beside the job at `place`. given: problems by id, as their fields. recipient: of who has the job."""
    files.replace(place.with_suffix(SUFFIX), encrypted.encrypt(canonical.dumps(given), [recipient]))


class Receiver:
    """The end of a worker. recipient: what the driver encrypts to; the other half is nowhere else."""

    def __init__(self) -> None:
        self._age = encrypted.pyrage()
        self._identity = self._age.x25519.Identity.generate()
        self.recipient = str(self._identity.to_public())

    def received(self, place: Path) -> Mapping[str, Any] | None:
        """What was handed over with the job at `place`; None while nothing is. What does not open is removed,
        for the driver to hand over again.
        """
        path = place.with_suffix(SUFFIX)
        with suppress(FileNotFoundError):
            try:
                given: dict[str, Any] = canonical.loads(
                    self._age.decrypt(files.read(path), [self._identity]), path.name
                )
                return given
            except self._age.DecryptError:
                path.unlink()
        return None
