"""Signatures of locks: `ssh-keygen -Y sign` over the bytes of lock.json, stored next to it.

A signature shows that the holder of a key had this lock. It shows neither when nor whose key it is, which a
list of allowed signers says (ssh-keygen(1), ALLOWED SIGNERS). If a lock names its signer, the signature is
required. To verify one by hand:

    ssh-keygen -Y check-novalidate -n kv-prereg -s lock.json.sig < lock.json
"""

import base64
import hashlib
import re
import tempfile
from pathlib import Path

from protocol.formats import files
from protocol.formats.findings import NotRun
from protocol.formats.programs import last_error_line
from protocol.formats.refusals import AlreadyClaimed, BadInput, Tampered
from protocol.lock import lock, ssh

NAME = lock.SIGNATURE
NAMESPACE = "kv-prereg"
MAX_BYTES = 1 << 16  # of a signature, which has some hundred to a few thousand
_KEY_LINE = re.compile(r"((?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]+) ([A-Za-z0-9+/]+={0,2})(?: .*)?")


def usable_public_key(key: Path) -> str:
    """Return the public key as a lock names its signer: type and base64, without a comment.

    key: the private key, or the public key of one in ssh-agent. It makes a test signature, so that no lock is
    written that cannot be signed. Raises BadInput when there is no such key or it cannot sign.
    """
    line = _public_key(key)
    _make_signature(key, line, b"")
    return line


def sign(folder: Path, key: Path) -> Path:
    """Sign the lock of `folder` and return the path of the signature, which is written once.

    Nothing prompts, so a key with a passphrase has to be in ssh-agent. Raises AlreadyClaimed when the lock is
    signed, BadInput when the key cannot sign here or is not the one that the lock names.
    """
    signer = lock.read(folder).content.get("signer")
    path = folder / NAME
    if files.exists(path):
        raise AlreadyClaimed(f"{path} exists: the lock is signed already, and a lock is signed only once")
    line = _public_key(key)
    if signer not in {None, line}:
        raise BadInput(f"{key}: is not the key that {lock.NAME} names, which is {_fingerprint(signer)}")
    files.create(path, _make_signature(key, line, files.read(folder / lock.NAME)))
    return path


def check(folder: Path, signers: Path | None = None) -> str:
    """Verify the signature of the lock and return a text that names the signer or the key.

    signers: a file of allowed signers; without one only the key is named. Raises Tampered for a signature of
    something else, or by neither the signer that the lock names nor one in the list, and for a missing one if
    the lock names a signer or `signers` is given. Raises NotRun for any other unsigned lock, CannotTell
    without ssh-keygen, BadInput when `signers` is not a file.
    """
    if signers is not None and not signers.is_file():
        raise BadInput(f"{signers}: no such file; name a list of allowed signers (see man ssh-keygen)")
    signer = lock.read(folder).content.get("signer")
    if not files.exists(folder / NAME):
        if signer is not None:
            raise Tampered(f"{NAME}: missing, although the lock names its signer, {_fingerprint(signer)}")
        if signers is not None:
            raise Tampered(f"{NAME}: missing, but you require a signature by one of {signers.name}")
        raise NotRun(lock.UNSIGNED)
    data, signature = files.read(folder / lock.NAME), files.read(folder / NAME, MAX_BYTES)
    fingerprint = _signer_fingerprint(data, signature)
    if fingerprint is None:
        raise Tampered(f"{NAME}: is not a signature of this {lock.NAME}")
    if signer is not None and fingerprint != _fingerprint(signer):
        raise Tampered(f"{NAME}: is by {fingerprint}, but the lock names {_fingerprint(signer)}")
    key_text = f"{fingerprint}, the key that the lock names" if signer is not None else fingerprint
    if signers is None:
        return f"signed with {key_text}; nothing here shows whose key this is"
    return f"signed with {key_text}, which belongs to {_find_principal(signature, data, signers)}"


def _public_key(key: Path) -> str:
    for path in (key, key.with_name(f"{key.name}.pub")):
        if path.is_file() and (match := _KEY_LINE.fullmatch(_read_text(path).strip())):
            return f"{match[1]} {match[2]}"
    if not key.is_file():
        raise BadInput(f"{key}: no such key; make one with: ssh-keygen -t ed25519 -f {key}")
    result = ssh.run_keygen("-y", "-P", "", "-f", str(key))
    if not (match := _KEY_LINE.fullmatch(result.stdout.decode(errors="replace").strip())):
        raise BadInput(f"{key}: {last_error_line(result)}; a key with a passphrase needs {key.name}.pub next to it")
    return f"{match[1]} {match[2]}"


def _make_signature(key: Path, line: str, data: bytes) -> bytes:
    """Sign `data` with the key whose public half is `line`, verify the signature and return it."""
    result = ssh.run_keygen("-Y", "sign", "-n", NAMESPACE, "-P", "", "-f", str(key), data=data)
    if result.returncode:
        raise BadInput(f"{key}: cannot sign: {last_error_line(result)}; if it has a passphrase, run: ssh-add {key}")
    if (fingerprint := _signer_fingerprint(data, result.stdout)) != _fingerprint(line):
        raise BadInput(f"{key}: signs as {fingerprint}, which differs from the public key next to it")
    return result.stdout


def _find_principal(signature: bytes, data: bytes, signers: Path) -> str:
    """Return who in the list signed `data`. Raises Tampered when nobody did."""
    if (name := ssh.find_principal(signers, NAMESPACE, data, signature.decode(errors="replace"))) is None:
        raise Tampered(f"{NAME}: is signed by none of the signers that {signers.name} allows for {NAMESPACE}")
    return name


def _signer_fingerprint(data: bytes, signature: bytes) -> str | None:
    """Return the fingerprint of the key that signed `data`; None when `signature` does not sign it."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, NAME)
        path.write_bytes(signature)
        result = ssh.run_keygen("-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(path), data=data)
    match = re.search(r"SHA256:[A-Za-z0-9+/]{43}", result.stdout.decode(errors="replace"))
    return match[0] if match and result.returncode == 0 else None


def _fingerprint(line: str) -> str:
    """Return the fingerprint of a public key as `ssh-keygen -l` prints it."""
    try:
        blob = base64.b64decode(line.split(" ")[1], validate=True)
    except (IndexError, ValueError):
        raise Tampered(f"{lock.NAME}: signer is not a public key") from None
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
