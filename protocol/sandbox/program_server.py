"""The server in a sandbox that runs programs and tests, each in a process of its own (see `protocol.grading.program`).

It is started by its path, its standard input is a socket, and it imports nothing of this project. A request names a
role and limits, and brings sockets. The child that it forks for the request plays the role:

- program: answers calls that arrive on its socket, with the functions that a program defines
- tests: runs tests that call these functions over a socket of another sandbox, and sends the outcome on a second socket
- script: runs a program with an input, and sends what it prints

The server itself reads no program and no test, so that a child inherits none. It replies how the child ended.
"""

import atexit
import builtins
import ctypes
import gc
import json
import os
import random
import resource
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

if TYPE_CHECKING:
    from io import BufferedReader, BufferedRWPair

READY, STOP = b"ready", b"stop"
Stream: TypeAlias = "BufferedReader | BufferedRWPair[Any, Any]"
MAX_MESSAGE = 1 << 23  # bytes of a value or of arguments, encoded
SET_DUMPABLE, SET_NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 4, 38, 22, 2  # of prctl(2)
# By machine: what AUDIT_ARCH calls it, and the numbers of system calls.
ARCHITECTURES: Mapping[str, tuple[int, Mapping[str, int]]] = {
    "x86_64": (
        0xC000003E,
        {
            **{"fork": 57, "vfork": 58, "clone": 56, "clone3": 435, "execve": 59, "execveat": 322},
            **{"kill": 62, "tkill": 200, "tgkill": 234, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297},
            **{"pidfd_open": 434, "pidfd_getfd": 438, "pidfd_send_signal": 424, "prlimit64": 302},
            **{"ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312},
            **{"setpriority": 141, "ioprio_set": 251, "sched_setaffinity": 203, "sched_setscheduler": 144},
            **{"sched_setparam": 142, "sched_setattr": 314, "shmget": 29, "msgget": 68, "semget": 64, "mq_open": 240},
            **{"add_key": 248, "request_key": 249, "keyctl": 250, "socket": 41, "bpf": 321, "perf_event_open": 298},
            **{"io_uring_setup": 425, "userfaultfd": 323, "unshare": 272, "setns": 308, "mount": 165},
            **{"fcntl": 72, "ioctl": 16},
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            **{"clone": 220, "clone3": 435, "execve": 221, "execveat": 281},
            **{"kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240},
            **{"pidfd_open": 434, "pidfd_getfd": 438, "pidfd_send_signal": 424, "prlimit64": 261},
            **{"ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272},
            **{"setpriority": 140, "ioprio_set": 30, "sched_setaffinity": 122, "sched_setscheduler": 119},
            **{"sched_setparam": 118, "sched_setattr": 274, "shmget": 194, "msgget": 186, "semget": 190},
            **{"mq_open": 180, "add_key": 217, "request_key": 218, "keyctl": 219, "socket": 198, "bpf": 280},
            **{"perf_event_open": 241, "io_uring_setup": 425, "userfaultfd": 282, "unshare": 97, "setns": 268},
            **{"mount": 40, "fcntl": 25, "ioctl": 29},
        },
    ),
}
CLONE_THREAD = 0x10000
# The second argument of calls that would have a file signal another process: F_SETOWN and F_SETOWN_EX, FIOSETOWN and
# SIOCSPGRP.
DENIED_OPERATIONS: Mapping[str, tuple[int, ...]] = {"fcntl": (8, 15), "ioctl": (0x8901, 0x8902)}
NO_SUCH_CALL, NOT_PERMITTED = 38, 1  # errno


def main() -> None:
    """Serve requests until the socket closes. Each is JSON: the role, and its limits `cpu` and `wall` in seconds,
    `memory` in bytes. The reply is JSON: `status` as of `Popen.returncode`, `cpu` seconds spent, and `is_late`.
    """
    control = socket.socket(fileno=os.dup(0))
    call_prctl(SET_DUMPABLE, 0)  # no child may trace this process
    if not can_confine():
        return
    control.send(READY)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 12, 2)
        if not message:
            return
        if message == STOP:  # the child ended while this was sent
            continue
        request = json.loads(message)
        if not (child := os.fork()):
            play_role(request, control, [socket.socket(fileno=number) for number in descriptors])
        for number in descriptors:
            os.close(number)
        control.send(json.dumps(wait_for(child, control, request["wall"])).encode())


def wait_for(child: int, control: socket.socket, seconds: float) -> dict[str, Any]:
    """Wait for a child at most so many seconds, or until something arrives on `control`; then it is killed."""
    descriptor = os.pidfd_open(child)
    ready, _, _ = select.select([descriptor, control.fileno()], [], [], seconds)
    os.close(descriptor)
    if ready != [descriptor]:
        os.kill(child, signal.SIGKILL)
        if control.fileno() in ready:
            control.recv(len(STOP))
    _, status, usage = os.wait4(child, 0)
    cpu = usage.ru_utime + usage.ru_stime
    return {"status": os.waitstatus_to_exitcode(status), "cpu": cpu, "is_late": not ready}


def play_role(request: Mapping[str, Any], control: socket.socket, sockets: list[socket.socket]) -> NoReturn:
    """Play the role in this process, which ends with it."""
    control.close()
    status = 1
    with suppress(BaseException):
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        random.seed(0)
        vars(builtins).update(exit=sys.exit, quit=sys.exit)  # of the module site, which is not imported
        status = ROLES[request["role"]](request, *sockets)
    os._exit(status)


def confine(request: Mapping[str, Any]) -> None:
    """Limit this process, and deny it what reaches other processes, for good."""
    for limit, value in (
        (resource.RLIMIT_CPU, request["cpu"]),
        (resource.RLIMIT_AS, request["memory"]),
        (resource.RLIMIT_FSIZE, 1 << 20),
        (resource.RLIMIT_NOFILE, 64),
    ):
        resource.setrlimit(limit, (value, value))
    deny_system_calls()


def can_confine() -> bool:
    """Whether a confined process can start no other one here."""
    if not (child := os.fork()):
        status = 1
        with suppress(BaseException):
            confine({"cpu": 5, "memory": 1 << 30})
            try:
                if not os.fork():
                    os._exit(1)
            except PermissionError:
                status = 0
        os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def deny_system_calls() -> None:
    """Install a filter (seccomp(2)) that lets this process make threads and no processes, and denies what signals,
    traces, limits or schedules another process, leaves anything behind, or opens a socket. Raises OSError.
    """
    architecture, numbers = ARCHITECTURES[os.uname().machine]
    load, equal, at_least, any_bit, give = 0x20, 0x15, 0x35, 0x45, 0x06  # instructions of BPF
    allow, deny, unknown = (give, 0, 0, 0x7FFF0000), (give, 0, 0, 0x50000 | NOT_PERMITTED), 0x50000 | NO_SUCH_CALL
    program = [(load, 0, 0, 4), (equal, 1, 0, architecture), deny, (load, 0, 0, 0), (at_least, 0, 1, 0x40000000), deny]
    for name, number in numbers.items():
        match name:
            case "clone3":  # its flags cannot be read here, and the C library then calls clone
                program += [(equal, 0, 1, number), (give, 0, 0, unknown)]
            case "clone":
                program += [(equal, 0, 4, number), (load, 0, 0, 16), (any_bit, 0, 1, CLONE_THREAD), allow, deny]
            case "prlimit64":  # of this process itself
                program += [(equal, 0, 4, number), (load, 0, 0, 16), (equal, 0, 1, 0), allow, deny]
            case "fcntl" | "ioctl":
                denied = [step for each in DENIED_OPERATIONS[name] for step in ((equal, 0, 1, each), deny)]
                program += [(equal, 0, len(denied) + 2, number), (load, 0, 0, 24), *denied, allow]
            case _:
                program += [(equal, 0, 1, number), deny]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in [*program, allow]))
    header = ctypes.create_string_buffer(struct.pack("HP", len(program) + 1, ctypes.addressof(code)))
    call_prctl(SET_NO_NEW_PRIVILEGES, 1)
    if call_prctl(SET_SECCOMP, FILTER, ctypes.addressof(header)):
        raise OSError("no system call filter")


def call_prctl(option: int, value: int, address: int = 0) -> int:
    return int(ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), ctypes.c_void_p(address), 0, 0))


def run_script(request: Mapping[str, Any], connection: socket.socket) -> int:
    """Run a program as a script, whose standard output is the connection; return its exit status."""
    task = read_message(connection.makefile("rb"))
    source = os.memfd_create("input")
    with open(source, "wb", closefd=False) as file:
        file.write(task["input"].encode())
    os.lseek(source, 0, os.SEEK_SET)
    os.dup2(source, 0)
    os.dup2(connection.detach(), 1)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.__stdout__ = output = sys.stdout  # type: ignore[misc]
    confine(request)
    namespace, status = make_module("__main__"), 1
    try:
        exec(compile_program(task), namespace)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:  # as Python ends: threads that the script does not wait for, what it registered, files that it left open
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, output):
            if not getattr(stream, "closed", stream is None):
                stream.flush()
        namespace.clear()
        gc.collect()
    return status & 0xFF


def make_module(name: str) -> dict[str, Any]:
    """Return the names of a new module, where the standard library looks for it."""
    module = sys.modules[name] = ModuleType(name)
    return vars(module)


def answer_calls(request: Mapping[str, Any], link: socket.socket) -> int:
    """Run a program, then answer calls of its functions until the link closes."""
    stream = link.makefile("rwb")
    namespace = make_module("program")
    confine(request)
    program = read_message(stream)
    write_message(stream, attempt(lambda: exec(compile_program(program), namespace)))
    while call := read_message(stream):
        arguments, keywords = decode(call["arguments"]), decode(call["keywords"])
        reply = attempt(lambda: find_function(namespace, call["name"])(*arguments, **keywords))  # noqa: B023
        if reply == {"value": None}:
            reply |= {"arguments": attempt(lambda: arguments).get("value")}  # noqa: B023
        write_message(stream, reply)
    return 0


def compile_program(task: Mapping[str, Any]) -> CodeType:
    """Compile a program; of an open one without the last lines that are no Python: those from the first error on, which
    no longer beginning of it is without. Raises SyntaxError.
    """
    lines = task["program"].split("\n")
    while True:
        try:
            return compile("\n".join(lines), "<program>", "exec", dont_inherit=True)
        except SyntaxError as error:
            if not task["is_open"]:
                raise
            del lines[max(0, min(error.lineno or len(lines), len(lines)) - 1) :]


class Undefined(BaseException):
    """A function that no program defines; no test may expect this."""


def find_function(namespace: Mapping[str, Any], name: str) -> Callable[..., Any]:
    """Return what the program calls so, or the method of its class Solution. Raises Undefined."""
    function = namespace.get(name)
    if function is None and "Solution" in namespace:
        function = getattr(namespace["Solution"](), name, None)
    if function is None:
        raise Undefined
    call: Callable[..., Any] = function
    return call


def attempt(act: Callable[[], Any]) -> dict[str, Any]:
    """Return the encoded value of `act()`, the names of the class of what it raised and of those that this derives
    from, or the name of the class of no plain value.
    """
    try:
        value = act()
    except BaseException as error:
        return {"raised": type(error).__name__, "kinds": [kind.__name__ for kind in type(error).__mro__]}
    try:
        return {"value": encode(value)}
    except BaseException:
        return {"class": type(value).__name__}


def encode(value: Any, depth: int = 0) -> Any:
    """Return a plain value as JSON can carry it. Values of derived classes become those of the plain class, and other
    iterables iterators. Raises TypeError for anything else, ValueError for over 100 levels.
    """
    if value is None or value is True or value is False:
        return value
    if depth > 100:
        raise ValueError("nested too deeply")  # as a program may have made it, which is no fault of the tests
    for kind, write in SCALARS.items():
        if isinstance(value, kind):
            return [kind.__name__, write(value)]
    if isinstance(value, Fraction):
        return ["Fraction", [hex(int(value.numerator)), hex(int(value.denominator))]]
    if isinstance(value, dict):
        return ["dict", [[encode(key, depth + 1), encode(dict.get(value, key), depth + 1)] for key in dict.keys(value)]]
    if isinstance(value, range):
        return ["range", [hex(value.start), hex(value.stop), hex(value.step)]]
    if not hasattr(type(value), "__iter__"):
        raise TypeError(f"{type(value).__name__} is no plain value")
    name = next((kind.__name__ for kind in COLLECTIONS if isinstance(value, kind)), "iterator")
    return [name, [encode(item, depth + 1) for item in value]]


COLLECTIONS: tuple[type[Any], ...] = (list, tuple, set, frozenset)
SCALARS: Mapping[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: lambda number: hex(int(number)),
    float: lambda number: float(number).hex(),
    complex: lambda number: [number.real.hex(), number.imag.hex()],
    bytes: lambda data: bytes(data).hex(),
    Decimal: Decimal.__str__,
}


def decode(encoded: Any) -> Any:
    """Return the value, of built-in classes. Raises ValueError, TypeError or KeyError for anything else."""
    if encoded is None or isinstance(encoded, bool):
        return encoded
    name, content = encoded
    return READERS[name](content)


READERS: Mapping[str, Callable[[Any], Any]] = {
    "str": lambda text: str(text),
    "int": lambda text: int(text, 16),
    "float": float.fromhex,
    "complex": lambda parts: complex(*map(float.fromhex, parts)),
    "bytes": bytes.fromhex,
    "dict": lambda pairs: {decode(key): decode(value) for key, value in pairs},
    "iterator": lambda items: iter([decode(item) for item in items]),
    "Decimal": lambda text: Decimal(text),
    "Fraction": lambda ends: Fraction(*(int(end, 16) for end in ends)),
    "range": lambda ends: range(*(int(end, 16) for end in ends)),
    "list": lambda items: [decode(item) for item in items],
    "tuple": lambda items: tuple(decode(item) for item in items),
    "set": lambda items: {decode(item) for item in items},
    "frozenset": lambda items: frozenset(decode(item) for item in items),
}


def write_message(stream: Stream, message: Mapping[str, Any]) -> None:
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


def read_message(stream: Stream) -> dict[str, Any]:
    """Return the next message; an empty one at the end of the stream. Raises ValueError for a faulty one."""
    line = stream.readline()
    message = json.loads(line) if line else {}
    if not isinstance(message, dict):
        raise ValueError("is no message")
    return message


class Verdict(BaseException):
    """What ends the tests whatever they catch."""


class Program:
    """The program as its tests see it: functions whose calls another sandbox answers."""

    def __init__(self, link: socket.socket):
        self._stream = link.makefile("rwb")
        self.verdict: dict[str, str] | None = None  # set once, and for good
        self.raised: BaseException | None = None

    def load(self, task: Mapping[str, Any]) -> None:
        program = {name: task[name] for name in ("program", "is_open")}
        if name := self._ask(program).get("raised"):
            self._end("fault", f"the program raises {read_name(name)}")

    def function(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            try:
                message = {"name": name, "arguments": encode(arguments), "keywords": encode(keywords)}
            except TypeError:
                self._end("error", f"the tests give {name} what is no plain value")
            reply = self._ask(message)
            try:
                if reply.get("arguments") and reply.get("value", ...) is None:  # whatever the program writes
                    for argument, changed in zip(arguments, decode(reply["arguments"]), strict=True):
                        update(argument, changed)
                if "raised" not in reply:
                    return decode(reply["value"])
            except (ValueError, TypeError, KeyError, RecursionError, ArithmeticError):
                self._end("fault", f"{name} gives a value that is not plain: {read_name(reply.get('class'))}")
            kind = find_exception(reply.get("kinds"))
            if not issubclass(kind, Exception):
                self._end("fault", f"{name} raises {read_name(reply['raised'])}")
            self.raised = kind.__new__(kind)
            raise self.raised

        return call

    def _ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        if self.verdict:
            raise Verdict
        reply: dict[str, Any] = {}
        try:
            write_message(self._stream, message)
            line = self._stream.readline(MAX_MESSAGE)
            if line and not line.endswith(b"\n"):
                self._end("fault", f"the program gives more than {MAX_MESSAGE} bytes, or part of a value")
            reply = json.loads(line) if line else {}
        except OSError:
            pass
        except (ValueError, RecursionError):
            self._end("fault", "the program gives no plain value")
        if not reply:
            self._end("ended", "the program ends before its tests do")
        return reply

    def _end(self, outcome: str, reason: str) -> NoReturn:
        self.verdict = {"outcome": outcome, "reason": reason}
        raise Verdict


def read_name(name: Any) -> str:
    """Return the name of a class, or what stands for one that no record can have."""
    return name if isinstance(name, str) and name.isascii() and name.isidentifier() and len(name) < 60 else "unnamed"


def find_exception(names: Any) -> type[BaseException]:
    """Return the first built-in exception among the names of an exception's classes. A StopIteration becomes a
    RuntimeError, as in a generator: it would end `all(map(f, ...))` without a failure.
    """
    for name in names if isinstance(names, list) else ():
        kind = vars(builtins).get(read_name(name))
        if isinstance(kind, type) and issubclass(kind, BaseException) and not issubclass(kind, BaseExceptionGroup):
            return RuntimeError if issubclass(kind, StopIteration | StopAsyncIteration) else kind
    return RuntimeError


def update(argument: Any, changed: Any) -> None:
    """Make a list, dict or set equal to what a call that gave None made of it."""
    if isinstance(argument, list) and isinstance(changed, list):
        argument[:] = changed
    elif isinstance(argument, dict | set) and type(argument) is type(changed):
        argument.clear()
        argument.update(changed)


def run_tests(request: Mapping[str, Any], link: socket.socket, results: socket.socket) -> int:
    """Run tests of a program, and send the outcome: "passed"; "fault", "ended" or "error", with the reason."""
    stream = results.makefile("rwb")
    task = read_message(stream)
    confine(request)
    program = Program(link)
    namespace: dict[str, Any] = {"__name__": "tests"}
    number, count = 0, len(task["tests"])
    try:
        program.load(task)
        exec(compile(task["setup"], "<setup>", "exec"), namespace)
        namespace |= {name: program.function(name) for name in task["names"]}
        for number, test in enumerate(task["tests"], start=1):
            exec(compile(test, f"<test {number}>", "exec"), namespace)
        outcome = {"outcome": "passed", "reason": ""}
    except BaseException as error:
        reason = "fails"
        if error is program.raised:
            reason = f"ends with {type(error).__name__}, which the program raises"
        elif not isinstance(error, AssertionError):
            reason = f"ends with {read_name(type(error).__name__)}"
        outcome = {"outcome": "fault", "reason": f"test {number} of {count} {reason}"}
    write_message(stream, program.verdict or outcome)
    return 0


ROLES: Mapping[str, Callable[..., int]] = {"program": answer_calls, "tests": run_tests, "script": run_script}

if __name__ == "__main__":
    main()
