"""Results of evidence checks: held, failed (raises `Tampered`), unfinished, cannot tell or not run."""

import errno
import subprocess
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from protocol.evidence.refusals import BadInput, Tampered

_AGAIN = "then run the same command again"
# Errors of the system that do not depend on the evidence, with the remedy.
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
    """The result of an audit on one item."""

    item: str
    status: Literal["held", "failed", "unfinished", "cannot tell", "not run"]
    detail: str


class CannotTell(Exception):
    """The evidence neither passes nor fails: this machine or this copy of the files cannot decide it."""


class Unfinished(Exception):
    """The study is in progress: the existing evidence passes, and more is to come."""


class Rewritten(Tampered, CannotTell):
    """The line endings of a file were converted: reading refuses it, and an audit cannot decide it."""


class TooLarge(BadInput, CannotTell):
    """A file is too large for this machine's memory; the evidence is not at fault."""


class NotRun(Exception):
    """There is no trace of a step or of the steps after it."""


def trouble(problem: Exception) -> str | None:
    """Return what this machine lacks and the remedy, in one line; None where the evidence is at fault."""
    match problem:
        case CannotTell():
            return line(problem)
        case MemoryError():
            return f"this machine has not the memory for it; {_REMEDIES[errno.ENOMEM]}"
        case ImportError():
            return f"what checks it is not installed here ({line(problem)}); run: pip install kv-prereg"
        case subprocess.SubprocessError():
            return f"a tool did not come to its end ({line(problem)}); {_AGAIN.removeprefix('then ')}"
        case FileNotFoundError(filename=None):  # raised by tempfile; other missing files have a name
            return f"no folder for temporary files can be written; {_REMEDIES[errno.EROFS]}"
        case OSError(errno=int(number)) if number in _REMEDIES:
            return f"{line(problem)}; {_REMEDIES[number]}"
    return None


def line(said: object) -> str:
    """Return the text on one line, so that untrusted text never starts a new line."""
    return " ".join(str(said).split())
