"""The first process of a contained run, which starts the command and ends with it (see `contained`).

It is started by its path, alone, with what it is to do as JSON in its one argument, and imports nothing of
this project. In namespaces of its own it makes a root that holds what the command may see, read-only, and
enters it. The command has no privilege there. When this process ends, the system ends what is left beside it.

Exit status: that of the command; 128 and the number of the signal that ended it; 125 without a root.
"""

import ctypes
import json
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import Any

__all__ = ["main"]

UNREADY = 125
# Of mount(2) and prctl(2), in the numbers of Linux on every machine.
BIND, MOVE, RECURSIVE, REMOUNT, READ_ONLY = 4096, 8192, 16384, 32, 1
KEPT = {
    "nosuid": 2,
    "nodev": 4,
    "noexec": 8,
    "noatime": 1024,
    "nodiratime": 2048,
    "relatime": 1 << 21,
}
DROP_FROM_BOUND, SET_SECUREBITS, NO_NEW_PRIVILEGES = 24, 28, 38
ROOT_IS_NOBODY = 0b11  # user 0 has no privilege, locked
CAPABILITIES = 64
LIMITS = {
    "cpu": resource.RLIMIT_CPU,
    "memory": resource.RLIMIT_AS,
    "file": resource.RLIMIT_FSIZE,
    "files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "core": resource.RLIMIT_CORE,
}


def main(asked: dict[str, Any]) -> int:
    """asked: command, its environment and folder, limits by name; root: where to make one, with the paths
    that are visible in it; None where the command has the root that there is.
    """
    if (root := asked["root"]) is not None:
        try:
            make_root(root, asked["visible"], asked["scratch"])
        except OSError as problem:
            print(f"no root of its own: {problem}", file=sys.stderr)
            return UNREADY
    child = os.fork()
    if not child:
        try:
            become(asked)
        finally:
            os._exit(UNREADY)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(UNREADY))
    signal.alarm(asked["seconds"])
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def become(asked: dict[str, Any]) -> None:
    """The command, without privileges and within limits."""
    os.setsid()
    os.chdir(asked["folder"])
    if asked["root"] is not None:
        control(SET_SECUREBITS, ROOT_IS_NOBODY)
        for capability in range(CAPABILITIES):
            control(DROP_FROM_BOUND, capability)
    control(NO_NEW_PRIVILEGES, 1)
    for name, most in asked["limits"].items():
        hard = resource.getrlimit(LIMITS[name])[1]
        at_most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(OSError, ValueError):  # a limit that this system does not have
            resource.setrlimit(LIMITS[name], (at_most, at_most))
    os.execve(asked["command"][0], asked["command"], asked["environment"])


def make_root(root: str, visible: list[str], scratch: str) -> None:
    """Enter a new root in `root`: memory, with the `visible` files and folders where they are, read-only,
    and the empty folder `scratch`. Raises OSError.
    """
    mount("tmpfs", root, "tmpfs", 0, "size=64m,mode=755")
    for path in visible:
        place = root + path
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if os.path.islink(path):
            os.symlink(os.readlink(path), place)
            continue
        if os.path.isdir(path):
            os.makedirs(place, exist_ok=True)
        else:
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o600))
        mount(path, place, "", BIND | RECURSIVE)
    os.makedirs(root + scratch, exist_ok=True)
    with suppress(OSError), open("/proc/sys/user/max_user_namespaces", "w") as most:
        most.write("0")  # of those inside this one, in which the command would have privileges again
    for place, options in mounted(root + "/"):
        kept = sum(KEPT[option] for option in options if option in KEPT)
        mount("", place, "", REMOUNT | BIND | READ_ONLY | kept)
    os.chdir(root)
    mount(".", "/", "", MOVE)
    os.chroot(".")
    os.chdir("/")


def mounted(below: str) -> list[tuple[str, list[str]]]:
    """Every mount whose place begins with `below`, with its options."""
    with open("/proc/self/mountinfo", "rb") as file:
        fields = [line.split(b" ") for line in file.read().splitlines()]
    found = [(each[4].decode("unicode_escape").encode("latin-1"), each[5].decode()) for each in fields]
    return [
        (os.fsdecode(place), options.split(","))
        for place, options in found
        if os.fsdecode(place).startswith(below)
    ]


def mount(what: str, place: str, kind: str, flags: int, options: str = "") -> None:
    given = [os.fsencode(text) for text in (what, place, kind)]
    if ctypes.CDLL(None, use_errno=True).mount(*given, ctypes.c_ulong(flags), options.encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), place)


def control(option: int, value: int) -> None:
    """prctl(2); what a system does not have, or does not allow, is left out."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
