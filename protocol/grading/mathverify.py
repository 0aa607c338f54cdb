"""Mathematical equality of the boxed answer and the gold answer, decided by math-verify 0.9.

math-verify uses sympy, which on some formulas runs for ever or exhausts memory; its own alarm does not always
fire (Math-Verify issue 65). It therefore runs in a second process (see protocol.grading.worker) that is
killed at a deadline and restarted: model output is not parsed in this process, and is never run as code.
"""

import importlib.util
from pathlib import Path
from typing import Literal

from protocol.formats.refusals import BadInput
from protocol.grading import boxed
from protocol.grading.grade import Grade
from protocol.harness import ChildOwner, ChildProcess

LONGEST = 500  # characters of an answer that math-verify gets
DEADLINE_SECONDS = 10.0  # seconds for one comparison; the slowest of 500 golds of MATH-500 takes 0.2
MEMORY_BYTES = 2 * 2**30  # bytes of address space
START_SECONDS = 120.0  # seconds for importing sympy on a slow machine
WORKER = Path(__file__).with_name("worker.py")


class MathVerify(ChildOwner):
    """A grader with its own process, started when first needed; close it, or use it in a `with` block.

    The process also ends with this object, with the interpreter, and when the interpreter is killed.

    Only the last box is compared (protocol.grading.boxed), never another number of the text. Known false
    positives: an interval (1,2) for the set {1,2}, and a number without its base (2 for 2_8). Known false
    negatives: .333 for 1/3, 45 degrees for pi/4, 2 1/2 for 5/2 (but not "2½"). math-verify is not symmetric:
    the gold comes first.
    """

    def __init__(self, deadline: float = DEADLINE_SECONDS, memory: int = MEMORY_BYTES):
        if importlib.util.find_spec("math_verify") is None:
            raise BadInput("grader math: math-verify is not installed; pip install '.[run]'")
        self._deadline = deadline
        self._child = ChildProcess(WORKER, [str(memory), str(2 * deadline + 1)], START_SECONDS, {})

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
        if self._child.start() != "ready":
            raise BadInput("grader math: its process did not start; try: python -c 'import math_verify'")
        reply = self._child.ask({"gold": boxed.normalize(gold), "answer": answer}, self._deadline)
        if isinstance(reply, str):
            return reply
        return "same" if reply["same"] else "different"
