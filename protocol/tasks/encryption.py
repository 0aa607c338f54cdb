"""Held-out problems encrypted to another person, who lends the key when the study is confirmed.

The file format is age (age-encryption.org/v1), so the `age` tool opens it too. Limits: whoever had the plain
file may have kept it; published problems can be found by anyone; nothing proves that another person has the
key, or that they are independent of the author; and a key that was lent once opens the file from then on.
"""

import importlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from protocol.formats.refusals import BadInput, Drifted

NONCE = 16  # bytes between the header of an age file and its content
OTHER_KEY = "No matching keys"


def encrypt(data: bytes, recipients: Sequence[str]) -> bytes:
    """Encrypt data so that each of the public keys (`age1...`, `ssh-ed25519 ...` or `ssh-rsa ...`) opens it.

    Raises BadInput for a text that is no such key.
    """
    ciphertext: bytes = pyrage().encrypt(data, [_recipient(text.strip()) for text in recipients])
    return ciphertext


def decrypt(path: Path, identity: Path) -> bytes:
    """Return the content of `path`, decrypted in memory with the private key in `identity`.

    Raises BadInput if the file was not encrypted to that key, Drifted if the file was altered.
    """
    return _decrypt_bytes(path, path.read_bytes(), identity)


def refuse_other_key(path: Path, identity: Path) -> None:
    """Raise as `decrypt` does for a private key that does not open `path`. Only the header is tried, which
    has the content's key once for each recipient; no content is decrypted.
    """
    stanzas, mark, rest = path.read_bytes().partition(b"\n--- ")
    mac, _, content = rest.partition(b"\n")
    if not mark:
        raise _altered_error(path)
    with suppress(Drifted):  # expected for the right key, since the content is missing
        _decrypt_bytes(path, stanzas + mark + mac + b"\n" + content[:NONCE], identity)


def pyrage() -> Any:
    """Return the library. Raises BadInput without it: installed after the lock it would be drift."""
    try:
        return importlib.import_module("pyrage")
    except ImportError:
        raise BadInput("encrypted problems need pyrage; run: pip install '.[seal]' (before registering)") from None


def _decrypt_bytes(path: Path, data: bytes, identity: Path) -> bytes:
    age, keys = pyrage(), _identities(identity)
    try:
        plaintext: bytes = age.decrypt(data, keys)
    except age.DecryptError as error:
        if OTHER_KEY in str(error):
            raise BadInput(
                f"--identity {identity}: is not a key for which {path} was encrypted; ask the key's holder"
            ) from None
        raise _altered_error(path) from None
    return plaintext


def _altered_error(path: Path) -> Drifted:
    return Drifted(f"{path}: was altered after it was encrypted; restore the file that was locked")


def _recipient(text: str) -> Any:
    age = pyrage()
    kind = age.x25519 if text.startswith("age1") else age.ssh
    try:
        return kind.Recipient.from_str(text)
    except age.RecipientError:  # the message does not show the text, which may be a private key
        raise BadInput("--to: is not a public key; use age1..., ssh-ed25519 ... or ssh-rsa ...") from None


def _identities(path: Path) -> list[Any]:
    """Return the private keys in a file that age-keygen or ssh-keygen wrote."""
    age = pyrage()
    try:
        data = path.read_bytes()
        if data.startswith(b"-----BEGIN"):
            return [age.ssh.Identity.from_buffer(data)]
        lines = [line for line in data.decode().splitlines() if line.strip() and not line.startswith("#")]
        identities = [age.x25519.Identity.from_str(line.strip()) for line in lines]
    except (age.IdentityError, UnicodeDecodeError):
        identities = []
    except OSError as error:
        raise BadInput(f"--identity {path}: could not be read: {error.strerror}") from None
    if not identities:
        raise BadInput(
            f"--identity {path}: is not a private key of age or ssh without a passphrase; give the file that "
            "age-keygen or ssh-keygen wrote"
        )
    return identities
