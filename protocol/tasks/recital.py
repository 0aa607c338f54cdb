"""Recital: copy a register at the end of a passage, line by line, in an answer of a hundred tokens."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from protocol.formats import canonical
from protocol.formats.refusals import BadInput
from protocol.tasks import draws, filler
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
class Recital:
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
    seed: int = 42
    grader: ClassVar[str] = "exact"
    chance: ClassVar[str] = "0"  # one of 9,000 numbers

    def ids(self) -> tuple[str, ...]:
        return tuple(f"recital/{self.length}/{self.lines}/{index:03d}" for index in range(self.repetitions))

    def build(self, problem_id: str, count: Callable[[str], int]) -> Problem:
        """count: tokens of a text. Raises BadInput for another task's id or too short a length."""
        if problem_id not in self.ids():
            raise BadInput(f"problem {problem_id!r}: not of this task, whose ids run from {self.ids()[0]}")
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

    def redrawn(self, seed: int) -> "Recital":
        return replace(self, seed=seed)

    def _values(self, problem_id: str) -> list[str]:
        """Return the number of each line: the stride has no common divisor with 9000, so they differ."""
        first = int(draws.value(self.seed, problem_id)) - 1000
        return [str(1000 + (first + 3571 * line) % 9000) for line in range(self.lines)]

    def recipe(self) -> str:
        """As `Task.recipe`; length and lines are in the id."""
        parts = {"family": "recital", "heading": HEADING, "question": QUESTION, "seed": str(self.seed)}
        return canonical.digest(parts | {"objects": OBJECTS, "filler": list(filler.TOWN)})

    def source(self) -> str:
        """Return the SHA-256 of what the problems are made of: these settings, the objects and the passage."""
        parts: dict[str, Any] = {"family": "recital", "heading": HEADING, "question": QUESTION}
        return canonical.digest(parts | {"objects": OBJECTS, "filler": list(filler.TOWN), **asdict(self)})
