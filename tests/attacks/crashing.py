"""Confirm the toy study, and be killed or meet a full disk at the k-th write: run as a script.

    python crashing.py FOLDER kill|full K

Exits with 0 when it finished before its k-th write.
"""

import errno
import os
import signal
import sys
from pathlib import Path

import finished_study

from protocol.evidence import seal, verdict
from protocol.evidence.registration import Registration

WRITES = ("write", "fsync", "link", "replace", "ftruncate", "unlink")


def confirm(folder: Path, how: str, at: int) -> None:
    """how: kill or full. Returns when it finished before its write `at`, counted from 1."""
    left = at

    def failing(name):
        real = getattr(os, name)

        def act(*arguments, **options):
            nonlocal left
            left -= 1
            if left == 0 and how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if left <= 0 and how == "full" and name in ("write", "fsync", "link"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments, **options)

        return act

    for name in WRITES:
        setattr(os, name, failing(name))
    finish(folder)


def finish(folder: Path) -> None:
    """Whatever is still to be done, undisturbed."""
    if not (folder / seal.NAME).exists():
        finished_study.confirm(folder)
    verdict.write(Registration(folder), finished_study.JUDGED)


if __name__ == "__main__":
    confirm(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
