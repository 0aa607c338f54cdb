"""A sandbox for untrusted commands: no network, no other files, resource limits, no surviving processes.

It uses bubblewrap if that works, else `unshare` of util-linux. The command sees the interpreter, its
packages, system libraries and the folders passed to it, all read-only, and no network, other processes or
home. If neither works, nothing is run.

result = sandbox.run(command, folder)                # until it ends
with sandbox.open_server(command, folder, ...) as peer:   # its standard input is a socket, and it is killed at the end
"""

import ctypes
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from protocol.formats.findings import CannotTell

Mechanism = Literal["bubblewrap", "unshare"]
MECHANISMS: tuple[Mechanism, ...] = ("bubblewrap", "unshare")
FIRST_PROCESS = Path(__file__).resolve().parent / "first_process.py"
# What programs need of a system, if it exists.
SYSTEM_PATHS = (
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/bin",
    "/sbin",
    "/nix/store",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
NAMESPACES = ("--user", "--map-root-user", "--mount", "--pid", "--net", "--ipc", "--uts")
ALARM_MARGIN = 5  # seconds after the time limit until the first process ends itself, if nothing killed it
GRACE = 0.5  # seconds in which output from before the end is read
CHUNK_BYTES = 1 << 16
SUBREAPER = 36  # of prctl(2)
PARENT_DEATH_SIGNAL = 1  # of prctl(2)


class Limits(NamedTuple):
    """Resource limits. memory, file, output: bytes; memory is the address space of one process."""

    seconds: int = 900  # wall-clock
    cpu: int = 900  # seconds of one process
    memory: int = 4 << 30  # a judgement takes 0.4
    output: int = 16 << 20  # of stdout and of stderr
    file: int = 64 << 20
    files: int = 256
    processes: int = 128  # of the user in the sandbox; the system does not count those of user 0


LIMITS = Limits()


class SandboxResult(NamedTuple):
    """The result of a command. status: its exit status, or 128 + the number of the signal that ended it.

    stopped: the limit at which it was ended; None if it ended by itself.
    """

    status: int
    stdout: bytes
    stderr: bytes
    stopped: Literal["time", "output"] | None
    how: str


def run(
    command: Sequence[str],
    folder: Path,
    *,
    readable: Sequence[Path] = (),
    limits: Limits = LIMITS,
    mechanisms: Sequence[Mechanism] = MECHANISMS,
) -> SandboxResult:
    """Run `command` in `folder` and kill every process that it started.

    readable: further files and folders that it may read. mechanisms: the candidates; the first that works is
    used. The environment has only what Python programs need; home and temporary folder are empty and are
    deleted afterwards; standard input is empty. Raises CannotTell, and runs nothing, if no mechanism works.
    """
    return _run(command, folder, readable, limits, find_mechanism(mechanisms))


def find_mechanism(mechanisms: Sequence[Mechanism] = MECHANISMS) -> Mechanism:
    """Return the first mechanism that works here. Raises CannotTell without one."""
    if (mechanism := next(filter(is_usable, mechanisms), None)) is None:
        raise CannotTell(
            f"this machine has no working sandbox, so it was not run: {' and '.join(mechanisms)} do not work; "
            "install bubblewrap (bwrap), on a system that allows user namespaces"
        )
    return mechanism


def is_usable(mechanism: Mechanism) -> bool:
    """Return whether a trivial command runs with this mechanism here."""
    if shutil.which("bwrap" if mechanism == "bubblewrap" else "unshare") is None or sys.platform != "linux":
        return False
    prefix = Path(sys.prefix)
    return _run([sys.executable, "-I", "-S", "-c", ""], prefix, (), Limits(seconds=20), mechanism).status == 0


def _run(
    command: Sequence[str], folder: Path, readable: Sequence[Path], limits: Limits, mechanism: Mechanism
) -> SandboxResult:
    with _contained(command, folder, readable, limits, mechanism) as (contained, scratch), _kill_survivors():
        return _collect_output(contained, limits, scratch, f"contained by {mechanism}")


@contextmanager
def open_server(
    command: Sequence[str], folder: Path, mechanism: Mechanism, *, readable: Sequence[Path], limits: Limits
) -> Iterator[socket.socket]:
    """Start `command` in a sandbox without any file that it could write, and yield the other end of its standard
    input, a socket of whole messages. It is killed with every process that it started when the context ends, and
    with this process. mechanism: one that works; other arguments as of `run`.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, _contained(command, folder, readable, limits, mechanism, is_writable=False) as (contained, scratch):
        with theirs:
            process = _start(contained, scratch, theirs.fileno(), subprocess.DEVNULL)
        try:
            yield ours
        finally:
            _kill_session(process)
            with suppress(OSError):
                while ours.recv(CHUNK_BYTES):  # until the last process that has the other end is gone
                    pass


@contextmanager
def _contained(
    command: Sequence[str],
    folder: Path,
    readable: Sequence[Path],
    limits: Limits,
    mechanism: Mechanism,
    *,
    is_writable: bool = True,
) -> Iterator[tuple[list[str], Path]]:
    """Yield the command line that runs `command` in a sandbox, and the folder where it starts."""
    with tempfile.TemporaryDirectory(prefix="kv-prereg-contained-") as private:
        root, scratch = (Path(private).resolve() / name for name in ("root", "scratch"))
        for directory in (root, scratch):
            directory.mkdir()
        visible = _visible_paths([*readable, folder, FIRST_PROCESS])
        request = {
            "command": list(command),
            "folder": str(folder),
            "environment": _environment(scratch),
            "root": str(root) if mechanism == "unshare" else None,
            "is_writable": is_writable,
            "visible": visible,
            "scratch": str(scratch),
            "seconds": limits.seconds + ALARM_MARGIN,
            "limits": _limits_by_name(limits),
        }
        first_command = [sys.executable, "-I", "-S", "-B", str(FIRST_PROCESS), json.dumps(request)]
        yield [*_wrapper_arguments(mechanism, visible, scratch, folder, is_writable), *first_command], scratch


def _wrapper_arguments(
    mechanism: Mechanism, visible: Sequence[str], scratch: Path, folder: Path, is_writable: bool
) -> list[str]:
    """Return the arguments that precede the command line of the first process."""
    match mechanism:
        case "bubblewrap":
            arguments = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
            for path in visible:
                if os.path.islink(path):
                    arguments += ["--symlink", os.readlink(path), path]
                else:
                    arguments += ["--dev-bind" if path in DEVICES else "--ro-bind", path, path]
            arguments += ["--dir", str(scratch), "--chdir", str(folder)]
            return [*arguments, *([] if is_writable else ["--remount-ro", "/"]), "--"]
        case "unshare":
            return ["unshare", *NAMESPACES, "--fork", "--kill-child", "--"]


def _visible_paths(readable: Sequence[Path]) -> list[str]:
    """Return the paths to mount: parents first, none twice or below another. Links of the system's root stay links."""
    interpreter = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]
    requested = [*SYSTEM_PATHS, *DEVICES, *interpreter, *map(os.path.realpath, interpreter), *map(str, readable)]
    paths: list[str] = []
    for path in sorted({os.path.abspath(candidate) for candidate in requested if os.path.lexists(candidate)}):
        if not any(path.startswith(f"{above}/") for above in paths):
            paths.append(path)
    return paths


def _environment(scratch: Path) -> dict[str, str]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    text = {
        "PYTHONUTF8": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
        "PATH": os.defpath,
    }
    return {"HOME": str(scratch), "TMPDIR": str(scratch), **text, **threads}


def _limits_by_name(limits: Limits) -> dict[str, int]:
    return {name: getattr(limits, name) for name in ("cpu", "memory", "file", "files", "processes")} | {"core": 0}


def _collect_output(command: list[str], limits: Limits, scratch: Path, how: str) -> SandboxResult:
    """Start the command in its own session and read its output until it ends or is stopped."""
    stopped: Literal["time", "output"] | None = None
    process = _start(command, scratch, subprocess.DEVNULL, subprocess.PIPE)
    assert process.stdout
    assert process.stderr
    buffers = {process.stdout: bytearray(), process.stderr: bytearray()}
    deadline, ended = time.monotonic() + limits.seconds, None
    try:
        with selectors.DefaultSelector() as open_pipes:
            for pipe in buffers:
                open_pipes.register(pipe, selectors.EVENT_READ)
            while ended is None or (open_pipes.get_map() and time.monotonic() < ended + GRACE):
                if ended is None and process.poll() is not None:
                    ended = time.monotonic()
                if time.monotonic() > deadline:
                    stopped = "time"
                    break
                for key, _ in open_pipes.select(0.05):
                    chunk = os.read(key.fd, CHUNK_BYTES)
                    if not chunk:
                        open_pipes.unregister(key.fileobj)
                    buffers[key.fileobj] += chunk  # type: ignore[index]
                if any(len(buffer) > limits.output for buffer in buffers.values()):
                    stopped = "output"
                    break
    finally:
        _kill_session(process)
        for pipe in buffers:
            pipe.close()
    out, err = (bytes(buffer[: limits.output]) for buffer in buffers.values())
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return SandboxResult(status, out, err, stopped, how)


def _start(command: list[str], scratch: Path, standard_input: int, output: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [shutil.which(command[0]) or command[0], *command[1:]],
        stdin=standard_input,
        stdout=output,
        stderr=output,
        env={"PATH": os.defpath},
        cwd=scratch,
        start_new_session=True,
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,
    )


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _end_with_parent() -> None:
    """Have the system kill this process once the auditor is gone, however that ended; it takes its namespaces along."""
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


@contextmanager
def _kill_survivors() -> Iterator[None]:
    """Kill processes that outlive the command and its namespaces: meanwhile this process is a subreaper, so
    orphans become its children. Processes that were there before are left alone, with theirs.
    """
    if sys.platform != "linux":
        yield
        return
    control: Callable[..., Any] = ctypes.CDLL(None).prctl
    earlier = _descendants()
    control(SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        while survivors := _descendants(earlier):
            for process in survivors:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            for process in survivors:
                with suppress(ChildProcessError):
                    os.waitpid(process, 0)
        control(SUBREAPER, 0, 0, 0, 0)


def _descendants(others: AbstractSet[int] = frozenset()) -> set[int]:
    """Return the ids of all descendants of this process but `others` and theirs."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    descendants: set[int] = set()
    waiting = {os.getpid()}
    while waiting:
        waiting = {child for child, parent in parents.items() if parent in waiting} - descendants - others
        descendants |= waiting
    return descendants
