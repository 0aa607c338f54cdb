"""What a check of evidence comes to: held, failed (by raising `Tampered`), unfinished, untold or not run."""

import errno
import subprocess
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from protocol.evidence.refusals import BadInput, Tampered

_AGAIN = "then run the same command again"
# What the system refuses whatever the evidence is, and what to do about it.
_REMEDIES: Mapping[int, str] = MappingProxyType(
    {
        errno.ENOSPC: f"free some space, or set TMPDIR to a folder that has some, {_AGAIN}",
        errno.EDQUOT: f"free some space, or set TMPDIR to a folder that has some, {_AGAIN}",
        errno.ENOMEM: f"free some memory, {_AGAIN}",
        errno.EAGAIN: f"end other processes, {_AGAIN}",
        errno.EMFILE: f"raise the limit of open files (ulimit -n), {_AGAIN}",
        errno.ENFILE: f"close other programs, {_AGAIN}",
        errno.EACCES: f"give yourself the right to read the folder and to write to TMPDIR, {_AGAIN}",
        errno.EPERM: f"give yourself the right to read the folder and to write to TMPDIR, {_AGAIN}",
        errno.EROFS: f"set TMPDIR to a folder that can be written, {_AGAIN}",
        errno.EIO: f"copy the folder to another disk, {_AGAIN}",
        errno.ESTALE: f"copy the folder to another disk, {_AGAIN}",
        errno.EINTR: _AGAIN.removeprefix("then "),
        errno.ETIMEDOUT: _AGAIN.removeprefix("then "),
    }
)


class Finding(NamedTuple):
    """What an audit says of one item."""

    item: str
    status: Literal["held", "failed", "unfinished", "cannot tell", "not run"]
    detail: str


class CannotTell(Exception):
    """The evidence neither holds nor fails: this machine, or this copy of it, cannot show which."""


class Unfinished(Exception):
    """The study is on its way: what is there holds, and more is to come."""


class Rewritten(Tampered, CannotTell):
    """Line endings of a file are not those that were written: reading it is refused, checking cannot tell."""


class TooLarge(BadInput, CannotTell):
    """A file that this machine has not the memory for: refused, and no fault of the evidence."""


class NotRun(Exception):
    """A step of which, and of whose successors, there is no trace."""


def trouble(problem: Exception) -> str | None:
    """What this machine lacks and what to do about it, in one line; None where the evidence is at fault."""
    match problem:
        case CannotTell():
            return line(problem)
        case MemoryError():
            return f"this machine has not the memory for it; {_REMEDIES[errno.ENOMEM]}"
        case ImportError():
            return f"what checks it is not installed here ({line(problem)}); run: pip install kv-prereg"
        case subprocess.SubprocessError():
            return f"a tool did not come to its end ({line(problem)}); {_AGAIN.removeprefix('then ')}"
        case FileNotFoundError(filename=None):  # of tempfile; one that is missing in the folder has a name
            return f"no folder for temporary files can be written; {_REMEDIES[errno.EROFS]}"
        case OSError(errno=int(number)) if number in _REMEDIES:
            return f"{line(problem)}; {_REMEDIES[number]}"
    return None


def line(said: object) -> str:
    """Words on one line: no text of a stranger begins a line of its own."""
    return " ".join(str(said).split())
