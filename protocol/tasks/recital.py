"""Recital: copy a register at the end of a passage, line by line, in an answer of a hundred tokens."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from protocol.tasks import draws, filler
from protocol.tasks.generated_task import GeneratedTask
from protocol.tasks.problem import Problem
from protocol.tasks.prompt_length import fill_to_length

HEADING = "This is the register of the museum."
QUESTION = "Copy the register of the museum, line by line."

OBJECTS = (
    *("anchor", "basket", "bicycle", "blanket", "candle", "clock", "compass", "cradle", "drum", "flute"),
    *("globe", "helmet", "kettle", "kite", "ladder", "ladle", "lamp", "lantern", "mirror", "plough"),
    *("puppet", "ribbon", "rocket", "saddle", "statue", "teapot", "telescope", "trumpet", "umbrella"),
    *("vase", "violin", "wagon", "whistle"),
)


@dataclass(frozen=True)
class Recital(GeneratedTask):
    """Problems recital/<length>/<lines>/<index>, `repetitions` of them.

    A passage, then a register of `lines` objects with a number each. The answer begins with the heading of
    the register; it is right if it contains the number of one line, drawn for the problem, so the accuracy is
    the share of the lines that were copied. A line has to survive every eviction before it is copied.

    length: tokens of a whole prompt, see protocol.tasks.prompt_length. A problem depends on its id, `seed`
    and the tokenizer alone.
    """

    length: int
    lines: int
    repetitions: int
    grader: ClassVar[str] = "exact"
    chance: ClassVar[str] = "0"  # one of 9,000 numbers

    def ids(self) -> tuple[str, ...]:
        return tuple(f"recital/{self.length}/{self.lines}/{index:03d}" for index in range(self.repetitions))

    def build(self, problem_id: str, count: Callable[[str], int]) -> Problem:
        """count: tokens of a text. Raises BadInput for another task's id or too short a length."""
        self.refuse_unknown(problem_id)
        passage = draws.shuffled(filler.TOWN, self.seed, problem_id, "filler")
        objects = draws.shuffled(OBJECTS, self.seed, problem_id, "objects")[: self.lines]
        values = self._values(problem_id)
        register = [f"The {name} has the number {value}." for name, value in zip(objects, values, strict=True)]

        def make(n: int) -> Problem:
            text = " ".join(filler.sentences(passage, n))
            context = "\n".join([text, "", HEADING, *register])
            return Problem(problem_id, context, QUESTION, HEADING + "\n", self.gold(problem_id))

        return fill_to_length(make, self.length, count)

    def gold(self, problem_id: str) -> str:
        """Return the number of the drawn line."""
        return self._values(problem_id)[draws.pick(self.lines, self.seed, problem_id, "line")]

    def population(self) -> str:
        return f"drawn afresh from a generator of registers of {self.lines} lines"

    def _values(self, problem_id: str) -> list[str]:
        """Return the number of each line: the stride has no common divisor with 9000, so they differ."""
        first = int(draws.value(self.seed, problem_id)) - 1000
        return [str(1000 + (first + 3571 * line) % 9000) for line in range(self.lines)]

    def materials(self) -> dict[str, Any]:
        texts: dict[str, Any] = {"family": "recital", "heading": HEADING, "question": QUESTION}
        return texts | {"objects": OBJECTS, "filler": list(filler.TOWN)}
