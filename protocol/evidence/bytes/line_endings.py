"""Detect line endings that were converted after a file was written, as core.autocrlf of git does."""

import hashlib

from protocol.evidence.findings import Rewritten

_LATER = "or set it in this one and check the files out again"
REMEDY = f"clone again with: git -c core.autocrlf=false clone URL, {_LATER}"


def refuse_rewritten(name: str, data: bytes) -> None:
    """Raise Rewritten when every line of a canonical JSON file ends in CRLF.

    This project never writes CRLF: the bytes differ from those that were hashed, without any edit.
    """
    if all_carry_returns(data):
        raise rewritten(name)


def refuse_instead_of(name: str, data: bytes, digest: str) -> None:
    """Raise Rewritten when `data` would have this SHA-256 with the line endings of another system."""
    if digest in (hashlib.sha256(one).hexdigest() for one in others(data)):
        raise rewritten(name)


def all_carry_returns(data: bytes) -> bool:
    """Return whether there is a newline and every newline follows a carriage return."""
    return 0 < data.count(b"\n") == data.count(b"\r\n")


def rewritten(name: str) -> Rewritten:
    return Rewritten(f"{name}: its line endings were rewritten in this copy; {REMEDY}")


def others(data: bytes) -> list[bytes]:
    """Return the same text with the line endings of other systems."""
    plain = data.replace(b"\r\n", b"\n")
    return [one for one in (plain, plain.replace(b"\n", b"\r\n")) if one != data]
