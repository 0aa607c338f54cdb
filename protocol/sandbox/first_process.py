"""The first process in a sandbox, which starts the command and ends with it (see `sandbox`).

It is started by its path with one argument, the request as JSON, and imports nothing of this project. In its
own namespaces it builds a read-only root with what the command may see, and enters it. The command has no
privileges there. When this process ends, the system kills all others in its namespace.

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

UNREADY = 125
# Flags of mount(2) and prctl(2), equal on all architectures of Linux.
BIND, MOVE, RECURSIVE, REMOUNT, READ_ONLY = 4096, 8192, 16384, 32, 1
MOUNT_FLAGS = {"nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024, "nodiratime": 2048, "relatime": 1 << 21}
DROP_FROM_BOUND, SET_SECUREBITS, NO_NEW_PRIVILEGES = 24, 28, 38
ROOT_IS_NOBODY = 0b11  # user 0 has no privileges, and this cannot be undone
CAPABILITIES = 64
LIMITS = {
    "cpu": resource.RLIMIT_CPU,
    "memory": resource.RLIMIT_AS,
    "file": resource.RLIMIT_FSIZE,
    "files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "core": resource.RLIMIT_CORE,
}


def main(request: dict[str, Any]) -> int:
    """Run a request and return the exit status. request: the command, its environment and folder, limits by
    name; root: where to build one, and the visible paths in it, or None to use the current root.
    """
    if (root := request["root"]) is not None:
        try:
            make_root(root, request["visible"], request["scratch"], request["is_writable"])
        except OSError as error:
            print(f"no separate root folder: {error}", file=sys.stderr)
            return UNREADY
    child = os.fork()
    if not child:
        try:
            exec_command(request)
        finally:
            os._exit(UNREADY)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(UNREADY))
    signal.alarm(request["seconds"])
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def exec_command(request: dict[str, Any]) -> None:
    """Replace this process by the command, without privileges and with limits."""
    os.setsid()
    os.chdir(request["folder"])
    if request["root"] is not None:
        call_prctl(SET_SECUREBITS, ROOT_IS_NOBODY)
        for capability in range(CAPABILITIES):
            call_prctl(DROP_FROM_BOUND, capability)
    call_prctl(NO_NEW_PRIVILEGES, 1)
    for name, most in request["limits"].items():
        hard = resource.getrlimit(LIMITS[name])[1]
        at_most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(OSError, ValueError):  # a limit that this system lacks
            resource.setrlimit(LIMITS[name], (at_most, at_most))
    os.execve(request["command"][0], request["command"], request["environment"])


def make_root(root: str, visible: list[str], scratch: str, is_writable: bool) -> None:
    """Build a new root in memory at `root` and enter it: the `visible` files and folders at their paths,
    read-only, and the empty folder `scratch`, which can be written if `is_writable`. Raises OSError.
    """
    mount("tmpfs", root, "tmpfs", 0, "size=64m,mode=755")
    for path in visible:
        target = root + path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.islink(path):
            os.symlink(os.readlink(path), target)
            continue
        if os.path.isdir(path):
            os.makedirs(target, exist_ok=True)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
        mount(path, target, "", BIND | RECURSIVE)
    os.makedirs(root + scratch, exist_ok=True)
    with suppress(OSError), open("/proc/sys/user/max_user_namespaces", "w") as most:
        most.write("0")  # a nested user namespace would give the command privileges again
    for target, options in list_mounts(root + "/"):
        flags = sum(MOUNT_FLAGS[option] for option in options if option in MOUNT_FLAGS)
        mount("", target, "", REMOUNT | BIND | READ_ONLY | flags)
    if not is_writable:
        mount("", root, "", REMOUNT | BIND | READ_ONLY)
    os.chdir(root)
    mount(".", "/", "", MOVE)
    os.chroot(".")
    os.chdir("/")


def list_mounts(below: str) -> list[tuple[str, list[str]]]:
    """Return each mount whose path begins with `below`, with its options."""
    with open("/proc/self/mountinfo", "rb") as file:
        rows = [line.split(b" ") for line in file.read().splitlines()]
    mounts = [(row[4].decode("unicode_escape").encode("latin-1"), row[5].decode()) for row in rows]
    return [
        (os.fsdecode(target), options.split(",")) for target, options in mounts if os.fsdecode(target).startswith(below)
    ]


def mount(source: str, target: str, filesystem: str, flags: int, options: str = "") -> None:
    arguments = [os.fsencode(text) for text in (source, target, filesystem)]
    if ctypes.CDLL(None, use_errno=True).mount(*arguments, ctypes.c_ulong(flags), options.encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def call_prctl(option: int, value: int) -> None:
    """Call prctl(2) and ignore options that the system lacks or refuses."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
