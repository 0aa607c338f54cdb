"""A child process that answers line by line, is killed at a deadline, and restarted at the next question."""

import json
import os
import select
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, Self


class ChildProcess:
    """A Python script that first prints {"ready": ...}, then answers each line of JSON with one line, or with
    requests {"count": text}, each of which is answered by a number.

    arguments: of the script. start_seconds: deadline for the ready line. environment: added to that of this process.
    The child ends with this object, with the interpreter, and when the interpreter is killed, because its input ends.
    """

    def __init__(self, script: Path, arguments: Sequence[str], start_seconds: float, environment: Mapping[str, str]):
        # -P: the modules next to the script are not on its path.
        self._command = [sys.executable, "-P", str(script), *arguments]
        self._start_seconds = start_seconds
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = bytearray()

    def close(self) -> None:
        if self._process is not None:
            self._finalize()
            self._process = None

    def ask(
        self, question: Mapping[str, Any], deadline: float, count: Callable[[str], int] | None = None
    ) -> dict[str, Any] | Literal["timeout", "died"]:
        """Return its answer within `deadline` seconds. After "timeout" or "died" it is restarted for the next question.

        count: answers its requests to count; that time is excluded from the deadline.
        """
        try:
            if (state := self.start()) != "ready":
                return state
            process = self._process
            assert process is not None
            self._write(process, question)
            reply = self._read_reply(process, deadline)
            while isinstance(reply, dict) and reply.keys() == {"count"} and count is not None:
                self._write(process, {"counted": count(reply["count"])})
                reply = self._read_reply(process, deadline)
        except BrokenPipeError:
            reply = "died"
        if isinstance(reply, str):
            self.close()
        return reply

    def start(self) -> Literal["ready", "timeout", "died"]:
        """Start the process unless it runs, and wait for its ready line."""
        if self._process is None:
            self._buffer.clear()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env=os.environ | {"PYTHONHASHSEED": "0"} | self._environment,
                start_new_session=True,  # Ctrl-C interrupts this process, not the scoring
            )
            self._finalize = weakref.finalize(self, _end_process, self._process)
            ready = self._read_reply(self._process, self._start_seconds)
            if isinstance(ready, str):
                self.close()
                return ready
        return "ready"

    def _write(self, process: subprocess.Popen[bytes], value: Mapping[str, Any]) -> None:
        line = memoryview(json.dumps(value).encode() + b"\n")
        while line:
            line = line[_require_pipe(process.stdin).write(line) :]

    def _read_reply(
        self, process: subprocess.Popen[bytes], seconds: float
    ) -> dict[str, Any] | Literal["timeout", "died"]:
        end = time.monotonic() + seconds
        replies = _require_pipe(process.stdout).fileno()
        while b"\n" not in self._buffer:
            readable, _, _ = select.select([replies], [], [], max(0.0, end - time.monotonic()))
            if not readable:
                return "timeout"
            part = os.read(replies, 1 << 16)
            if not part:
                return "died"
            self._buffer += part
        line, _, rest = self._buffer.partition(b"\n")
        self._buffer = rest
        answer: dict[str, Any] = json.loads(line)
        return answer


class ChildOwner:
    """What a child process answers for; closed, or used in a `with` block. The next question starts another child."""

    _child: ChildProcess

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._child.close()


def _require_pipe(end: IO[bytes] | None) -> IO[bytes]:
    assert end is not None  # Popen got PIPE
    return end


def _end_process(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    _require_pipe(process.stdin).close()
    _require_pipe(process.stdout).close()
