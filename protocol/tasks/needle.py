"""Needle-in-a-Haystack: one fact at a chosen depth of a long passage (CrystalCache, section 4.2)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from protocol.tasks import draws, filler
from protocol.tasks.generated_task import RetrievalTask
from protocol.tasks.problem import Fact, Problem
from protocol.tasks.prompt_length import fill_to_length

TEMPLATES = (
    Fact("The special magic number is", ".", "What is the special magic number?"),
    Fact("The secret code for Project Aurora is", ".", "What is the secret code for Project Aurora?"),
    # The paper has five templates and names the two above; these three are ours.
    Fact("The access number of the northern archive is", ".", "What is the access number of the northern archive?"),
    Fact("The locker combination at the river station is", ".", "What is the locker combination at the river station?"),
    Fact(
        "The registration number of the blue sailboat is", ".", "What is the registration number of the blue sailboat?"
    ),
)


@dataclass(frozen=True)
class Needle(RetrievalTask):
    """Problems needle/<length>/<depth>/<index>, `repetitions` per depth, counted from index `first`.

    length: tokens of a whole prompt, see protocol.tasks.prompt_length; the filler is whole sentences, so a
        prompt is up to one sentence shorter.
    depths: the share of the filler's sentences before the fact.

    A problem depends on its id, `seed` and the tokenizer alone. Departures from the paper: the passage is ours, each
    problem has its own order of the sentences, and the answer begins with the words of the fact in place of "Answer:".
    """

    length: int
    repetitions: int
    first: int = 0
    depths: tuple[str, ...] = ("0", "0.25", "0.5", "0.75", "1")

    def ids(self) -> tuple[str, ...]:
        indices = range(self.first, self.first + self.repetitions)
        return tuple(f"needle/{self.length}/{depth}/{index:03d}" for depth in self.depths for index in indices)

    def build(self, problem_id: str, count: Callable[[str], int]) -> Problem:
        """count: tokens of a text. Raises BadInput for another task's id or too short a length."""
        self.refuse_unknown(problem_id)
        depth = float(problem_id.split("/")[2])
        fact = self._template(problem_id)
        value = self.gold(problem_id)
        passage = draws.shuffled(filler.TOWN, self.seed, problem_id, "filler")

        def make(n: int) -> Problem:
            text = filler.surround(fact.stated(value), filler.sentences(passage, n), depth)
            return Problem(problem_id, " ".join(text), fact.question, fact.stem, value)

        return fill_to_length(make, self.length, count)

    def topics(self) -> Mapping[str, str]:
        return {problem_id: self._template(problem_id).stem for problem_id in self.ids()}

    def population(self) -> str:
        return f"about {len(TEMPLATES)} facts, which are those of its development too, and about no others"

    def _template(self, problem_id: str) -> Fact:
        return TEMPLATES[draws.pick(len(TEMPLATES), self.seed, problem_id, "template")]

    def materials(self) -> dict[str, Any]:
        return {"family": "needle", "templates": [list(fact) for fact in TEMPLATES], "filler": list(filler.TOWN)}
