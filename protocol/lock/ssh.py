"""Run ssh-keygen to make and verify signatures, without a terminal or a window in which it could prompt."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

from protocol.formats.findings import CannotTell
from protocol.formats.programs import run_program
from protocol.formats.refusals import BadInput

_PROMPTS = {"DISPLAY", "WAYLAND_DISPLAY", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE"}


class Unable(BadInput, CannotTell):
    """ssh-keygen is missing or too old: signing is refused, and an audit cannot decide the signature."""


def run_keygen(*arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run ssh-keygen with `data` on its standard input and return the result. Raises Unable."""
    settings = {name: value for name, value in os.environ.items() if name not in _PROMPTS}
    result = run_program(
        ["ssh-keygen", *arguments],
        error=Unable,
        environment=settings,
        data=data,
        if_missing="; install OpenSSH 8.2 or newer",
        if_slow="; touch the key and try again",  # a security key waits to be touched
    )
    if b"unknown option" in result.stderr or b"illegal option" in result.stderr:
        raise Unable("the installed ssh-keygen cannot sign; install OpenSSH 8.2 or newer")
    return result


def find_principal(
    signers: Path, namespace: str, data: bytes, signature: str, *, must_name: bool = False
) -> str | None:
    """Return who of a list of allowed signers signed `data` for `namespace`; None if nobody did. Raises Unable.

    must_name: ask that the line of the key names namespaces; ssh-keygen allows all of them to a line that names none.
    """
    with tempfile.TemporaryDirectory() as scratch:
        allowed_file, signature_file = Path(scratch, "allowed"), Path(scratch, "signature")
        lines = signers.read_text("utf-8", errors="replace").splitlines()
        named = [line for line in lines if not must_name or re.search(r"\bnamespaces=", line, re.IGNORECASE)]
        allowed_file.write_text("".join(f"{line}\n" for line in named))
        signature_file.write_text(signature)
        paths = ("-s", str(signature_file), "-f", str(allowed_file))
        result = run_keygen("-Y", "find-principals", *paths)
        for line in result.stdout.decode(errors="replace").splitlines():
            name = line.split(",")[0]
            if run_keygen("-Y", "verify", "-n", namespace, *paths, "-I", name, data=data).returncode == 0:
                return name
    return None


def is_signed_by(key: str, namespace: str, data: bytes, signature: str) -> bool:
    """Return whether `signature` signs `data` for `namespace` with the public key `key`. Raises Unable."""
    with tempfile.TemporaryDirectory() as scratch:
        allowed_file, signature_file = Path(scratch, "allowed"), Path(scratch, "signature")
        allowed_file.write_text(f"signer {key}\n")
        signature_file.write_text(signature)
        verify = ("-Y", "verify", "-f", str(allowed_file), "-I", "signer", "-n", namespace, "-s", str(signature_file))
        return run_keygen(*verify, data=data).returncode == 0
