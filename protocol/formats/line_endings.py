"""Detect line endings that were converted after a file was written, as core.autocrlf of git does."""

import hashlib

from protocol.formats.findings import Rewritten

_OR_CHECK_OUT = "or set it in this one and check the files out again"
REMEDY = f"clone again with: git -c core.autocrlf=false clone URL, {_OR_CHECK_OUT}"


def refuse_rewritten(name: str, data: bytes) -> None:
    """Raise Rewritten when every line of a canonical JSON file ends in CRLF.

    This project never writes CRLF: the bytes differ from those that were hashed, without any edit.
    """
    if has_only_crlf(data):
        raise rewritten_error(name)


def refuse_converted(name: str, data: bytes, digest: str) -> None:
    """Raise Rewritten when `data` would have this SHA-256 with the line endings of another system."""
    if digest in (hashlib.sha256(variant).hexdigest() for variant in other_endings(data)):
        raise rewritten_error(name)


def has_only_crlf(data: bytes) -> bool:
    """Return whether there is a newline and every newline follows a carriage return."""
    return 0 < data.count(b"\n") == data.count(b"\r\n")


def rewritten_error(name: str) -> Rewritten:
    return Rewritten(f"{name}: its line endings were rewritten in this copy; {REMEDY}")


def other_endings(data: bytes) -> list[bytes]:
    """Return the same text with the line endings of other systems."""
    lf_data = data.replace(b"\r\n", b"\n")
    return [variant for variant in (lf_data, lf_data.replace(b"\n", b"\r\n")) if variant != data]
