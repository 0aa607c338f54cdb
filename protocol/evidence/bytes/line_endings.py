"""Line endings that a copy has otherwise than they were written: what git's core.autocrlf does to a clone."""

import hashlib

from protocol.evidence.findings import Rewritten

_LATER = "or set it in this one and check the files out again"
REMEDY = f"clone again with: git -c core.autocrlf=false clone URL, {_LATER}"


def refuse_rewritten(name: str, data: bytes) -> None:
    """Raises Rewritten when every line of a file of canonical JSON ends as on Windows, which none of ours
    does: the bytes are not those that were hashed, and nobody need have edited them.
    """
    if all_carry_returns(data):
        raise rewritten(name)


def refuse_instead_of(name: str, data: bytes, digest: str) -> None:
    """Raises Rewritten when the text would have this SHA-256 with the line endings of another system."""
    if digest in (hashlib.sha256(one).hexdigest() for one in others(data)):
        raise rewritten(name)


def all_carry_returns(data: bytes) -> bool:
    """Whether every newline, of one at least, follows a carriage return."""
    return 0 < data.count(b"\n") == data.count(b"\r\n")


def rewritten(name: str) -> Rewritten:
    return Rewritten(f"{name}: its line endings were rewritten in this copy; {REMEDY}")


def others(data: bytes) -> list[bytes]:
    """The same text with the line endings of the other systems."""
    plain = data.replace(b"\r\n", b"\n")
    return [one for one in (plain, plain.replace(b"\n", b"\r\n")) if one != data]
