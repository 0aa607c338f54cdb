"""Results of evidence checks: held, failed (raises `Tampered`), unfinished, cannot tell or not run."""

import errno
import subprocess
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from protocol.formats.refusals import BadInput, Tampered

_RERUN = "then run the same command again"
# Errors of the system that do not depend on the evidence, with the remedy.
_REMEDIES: Mapping[int, str] = MappingProxyType(
    {
        errno.ENOSPC: f"free some space, or set TMPDIR to a folder that has some, {_RERUN}",
        errno.EDQUOT: f"free some space, or set TMPDIR to a folder that has some, {_RERUN}",
        errno.ENOMEM: f"free some memory, {_RERUN}",
        errno.EAGAIN: f"end other processes, {_RERUN}",
        errno.EMFILE: f"raise the limit of open files (ulimit -n), {_RERUN}",
        errno.ENFILE: f"close other programs, {_RERUN}",
        errno.EACCES: f"make the folder readable and TMPDIR writable, {_RERUN}",
        errno.EPERM: f"make the folder readable and TMPDIR writable, {_RERUN}",
        errno.EROFS: f"set TMPDIR to a writable folder, {_RERUN}",
        errno.EIO: f"copy the folder to another disk, {_RERUN}",
        errno.ESTALE: f"copy the folder to another disk, {_RERUN}",
        errno.EINTR: _RERUN.removeprefix("then "),
        errno.ETIMEDOUT: _RERUN.removeprefix("then "),
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


def find_remedy(error: Exception) -> str | None:
    """Return what this machine lacks and the remedy, in one line; None where the evidence is at fault."""
    match error:
        case CannotTell():
            return one_line(error)
        case MemoryError():
            return f"this machine does not have enough memory for this; {_REMEDIES[errno.ENOMEM]}"
        case ImportError():
            return (
                f"a package that this check needs is not installed here ({one_line(error)}); run, in the clone: "
                "pip install ."
            )
        case subprocess.SubprocessError():
            return f"a tool did not finish ({one_line(error)}); {_RERUN.removeprefix('then ')}"
        case FileNotFoundError(filename=None):  # raised by tempfile; other missing files have a name
            return f"no folder for temporary files is writable; {_REMEDIES[errno.EROFS]}"
        case OSError(errno=int(number)) if number in _REMEDIES:
            return f"{one_line(error)}; {_REMEDIES[number]}"
    return None


def one_line(message: object) -> str:
    """Return the text on one line, so that untrusted text never starts a new line."""
    return " ".join(str(message).split())
