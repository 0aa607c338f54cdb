"""Mathematical equality of the boxed answer and the gold answer, decided by math-verify 0.9.

math-verify uses sympy, which on some formulas runs for ever or exhausts memory; its own alarm does not always
fire (Math-Verify issue 65). It therefore runs in a second process (see protocol.grading.worker) that is
killed at a deadline and restarted: model output is not parsed in this process, and is never run as code.
"""

import importlib.util
import json
import os
import select
import subprocess
import sys
import weakref
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self

from protocol.formats.refusals import BadInput
from protocol.grading import boxed
from protocol.grading.grade import Grade

__all__ = ["LONGEST", "MathVerify"]

LONGEST = 500  # characters of an answer that math-verify gets
DEADLINE_SECONDS = 10.0  # seconds for one comparison; the slowest of 500 golds of MATH-500 takes 0.2
MEMORY_BYTES = 2 * 2**30  # bytes of address space
START_SECONDS = 120.0  # seconds for importing sympy on a slow machine
WORKER = Path(__file__).with_name("worker.py")


class MathVerify:
    """A grader with its own process, started when first needed; close it, or use it in a `with` block.

    The process also ends with this object, with the interpreter, and when the interpreter is killed.

    Only the last box is compared (protocol.grading.boxed), never another number of the text. Known false
    positives: an interval (1,2) for the set {1,2}, and a number without its base (2 for 2_8). Known false
    negatives: .333 for 1/3, 45 degrees for pi/4, 2 1/2 for 5/2 (but not "2½"). math-verify is not symmetric:
    the gold comes first.
    """

    def __init__(self, deadline: float = DEADLINE_SECONDS, memory: int = MEMORY_BYTES):
        if importlib.util.find_spec("math_verify") is None:
            raise BadInput("grader math: math-verify is not installed; pip install 'kv-prereg[run]'")
        self._deadline = deadline
        self._memory = memory
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process. The grader can be used again, which starts another."""
        if self._process is not None:
            self._finalize()
            self._process = None

    def grade(self, gold: str, text: str) -> Grade:
        """As protocol.grading.boxed, except that an answer with another spelling is correct if it is equal.

        "timeout" at the deadline; "error" when the process ended twice on the same answer, probably out of
        memory. An answer of more than 500 characters is wrong.
        """
        spelled = boxed.grade(gold, text)
        if spelled.status != "wrong" or spelled.answer is None:
            return spelled
        if len(spelled.answer) > LONGEST:
            return spelled._replace(reason=f"the boxed answer has more than {LONGEST} characters")
        match self.compare(gold, spelled.answer):
            case "same":
                return Grade("correct", spelled.answer, "")
            case "different":
                return spelled
            case "timeout":
                return Grade("timeout", spelled.answer, f"math-verify took more than {self._deadline:g} s")
            case "died":
                return Grade("error", spelled.answer, "math-verify's process ended, probably out of memory")

    def compare(self, gold: str, answer: str) -> Literal["same", "different", "timeout", "died"]:
        """Return whether two formulas are equal. Equal strings are compared too, so that a gold can be
        checked.
        """
        verdict = self._query(gold, answer)
        # sympy's caches fill the memory of the process: retry in a new one.
        return self._query(gold, answer) if verdict == "died" else verdict

    def _query(self, gold: str, answer: str) -> Literal["same", "different", "timeout", "died"]:
        process = self._get_process()
        try:
            _require_pipe(process.stdin).write(json.dumps([boxed.normalize(gold), answer]).encode() + b"\n")
        except BrokenPipeError:
            self.close()
            return "died"
        match _read_line(process, self._deadline):
            case b"same\n":
                return "same"
            case b"different\n":
                return "different"
            case None:
                self.close()
                return "timeout"
            case _:
                self.close()
                return "died"

    def _get_process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                # -P: the modules next to worker.py are not on the child's path.
                [sys.executable, "-P", str(WORKER), str(self._memory), str(2 * self._deadline + 1)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env=os.environ | {"PYTHONHASHSEED": "0"},
                start_new_session=True,  # Ctrl-C interrupts this process, not the grading
            )
            self._finalize = weakref.finalize(self, _end_process, self._process)
            if _read_line(self._process, START_SECONDS) != b"ready\n":
                self.close()
                raise BadInput("grader math: its process did not start; try: python -c 'import math_verify'")
        return self._process


def _read_line(process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
    """Return the next line, b"" when the process ended, None when it took too long."""
    replies = _require_pipe(process.stdout)
    readable, _, _ = select.select([replies], [], [], seconds)
    return replies.readline() if readable else None


def _require_pipe(end: IO[bytes] | None) -> IO[bytes]:
    assert end is not None  # Popen got PIPE
    return end


def _end_process(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    _require_pipe(process.stdin).close()
    _require_pipe(process.stdout).close()
