"""The requests to lm-eval and its answers."""

import functools
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from protocol.formats.refusals import BadInput
from protocol.formats.suggestions import unknown_message
from protocol.harness.child_process import ChildOwner, ChildProcess

WORKER = Path(__file__).with_name("worker.py")
START_SECONDS = 240.0  # seconds for importing datasets and listing 14,000 task files on a slow machine
DEADLINE_SECONDS = 120.0  # seconds for one answer; ROUGE of two texts of 2,000 words takes 3
GENERATION_SECONDS = 600.0  # for one problem of RULER, whose word list takes 11 s of CPU time to import
MEMORY_BYTES = 16 * 2**30  # bytes of address space: arrow reserves much more than it uses
# Nothing is fetched: data are passed in, and a task that needs more is refused.
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


class Facts(NamedTuple):
    """version: of the task file. metric: the first of its list. until: strings that end an answer. longest:
    its `max_gen_toks`, None if it has none. shots: examples before a problem.
    """

    version: str
    metric: str
    until: tuple[str, ...]
    longest: int | None
    shots: int


class Prompt(NamedTuple):
    """text: examples and problem as one user message. prefix: the beginning of the answer; may be empty."""

    text: str
    prefix: str


class Scores(NamedTuple):
    """values: by "filter/metric", in the task's order. answer: the text as it was scored."""

    values: Mapping[str, float]
    answer: str


class TookTooLong(BadInput):
    """No answer within the deadline."""


class ProcessEnded(TookTooLong):
    """The process ended while it worked on an answer: out of memory, or because there is no answer."""


def installed_version() -> str:
    """Return the installed version. Raises BadInput without one."""
    if importlib.util.find_spec("lm_eval") is None:
        raise BadInput("lm_eval: is not installed; pip install '.[tasks]'")
    return importlib.metadata.version("lm_eval")


class Harness(ChildOwner):
    """A process with lm-eval, started when first needed; close it, or use it in a `with` block.

    Every method raises BadInput for a task that lm-eval does not have or that cannot run here, with the reason.
    """

    def __init__(self, deadline: float = DEADLINE_SECONDS):
        installed_version()
        self._deadline = deadline
        self._child = ChildProcess(WORKER, [str(MEMORY_BYTES), str(2 * GENERATION_SECONDS + 1)], START_SECONDS, OFFLINE)

    def facts(self, task: str) -> Facts:
        reply = self._ask({"do": "facts", "task": task})
        return Facts(reply["version"], reply["metric"], tuple(reply["until"]), reply["longest"], reply["shots"])

    def prompt(self, task: str, row: Mapping[str, Any]) -> Prompt:
        """Return lm-eval's prompt for this row of data in the original schema."""
        reply = self._ask({"do": "prompt", "task": task, "row": row})
        return Prompt(reply["text"], reply["prefix"])

    def scores(self, task: str, row: Mapping[str, Any], text: str) -> Scores:
        """Return the official scores of a text, cut where the first of the task's stop strings begins.

        Raises TookTooLong.
        """
        reply = self._ask({"do": "scores", "task": task, "row": row, "text": text})
        return Scores(reply["values"], reply["answer"])

    def ruler(self, task: str, length: int, key: str, count: Callable[[str], int]) -> dict[str, Any]:
        """Return a problem of RULER as lm-eval's row, drawn with `key`, of at most `length` tokens by `count`,
        including the room for the answer. Its answers (`outputs`) depend on task, length and key alone.
        """
        try:
            question = {"do": "ruler", "task": task, "length": length, "key": key}
            row = self._ask(question, GENERATION_SECONDS, count)
        except ProcessEnded:  # it exits where two of the generators would loop for ever
            row = {"outputs": []}
        if not row["outputs"]:
            raise BadInput(
                f"lm_eval task {task!r}: length {length} is too short for every problem of this task; write a "
                "larger number"
            )
        return row

    def _ask(
        self, question: Mapping[str, Any], deadline: float | None = None, count: Callable[[str], int] | None = None
    ) -> dict[str, Any]:
        reply = self._child.ask(question, self._deadline if deadline is None else deadline, count)
        if reply == "timeout":
            raise TookTooLong(f"lm_eval task {question['task']!r}: took too long; try again")
        if reply == "died":
            raise ProcessEnded(f"lm_eval task {question['task']!r}: its process ended; give it more memory")
        if "unknown" in reply:
            raise BadInput(
                unknown_message("task of lm-eval", str(question["task"]), reply["unknown"], "lm-eval ls tasks")
            )
        if "refused" in reply:
            raise BadInput(f"lm_eval task {question['task']!r}: {reply['refused']}")
        return reply


@functools.cache
def shared_harness() -> Harness:
    """Return the harness of this process, since starting another takes seconds. Raises as Harness does."""
    return Harness()
