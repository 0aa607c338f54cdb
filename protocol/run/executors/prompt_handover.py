"""Hand prompts of encrypted problems from the driver, which can decrypt them, to the worker that has their batch.

They are encrypted to a key that only this worker has, in memory, while it lives. Nothing is written to disk
in plain text, whichever process is killed.
"""

from contextlib import suppress
from pathlib import Path

from protocol.formats import files
from protocol.tasks import encryption

SUFFIX = ".age"  # replaces the suffix of the job's file


def hand_over(job_path: Path, prompts: bytes, recipient: str) -> None:
    """Write the prompts next to the job at `job_path`. recipient: public key of the worker that has the job."""
    files.replace(job_path.with_suffix(SUFFIX), encryption.encrypt(prompts, [recipient]))


class Receiver:
    """The worker's end. recipient: the public key that the driver encrypts to; the private key exists only here."""

    def __init__(self) -> None:
        self._age = encryption.pyrage()
        self._identity = self._age.x25519.Identity.generate()
        self.recipient = str(self._identity.to_public())

    def receive(self, job_path: Path) -> bytes | None:
        """Return the prompts handed over with the job at `job_path`; None while there are none. A file that
        cannot be decrypted is removed, so that the driver writes it again.
        """
        path = job_path.with_suffix(SUFFIX)
        with suppress(FileNotFoundError):
            try:
                prompts: bytes = self._age.decrypt(files.read(path), [self._identity])
                return prompts
            except self._age.DecryptError:
                path.unlink()
        return None
