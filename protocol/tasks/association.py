"""Delayed Association: a fact, then mentions of its topic among filler (CrystalCache, appendix B)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from protocol.formats import canonical
from protocol.tasks import draws, filler
from protocol.tasks.generated_task import RetrievalTask
from protocol.tasks.problem import Fact, Problem
from protocol.tasks.prompt_length import fill_to_length

FRAMING = "The following is a report about recent events."  # the paper requires a brief sentence and gives none


class Topic(NamedTuple):
    fact: Fact
    high: tuple[str, ...]
    low: tuple[str, ...]


TOPICS = (
    Topic(
        Fact("The secret code for Project Aurora is", ".", "What is the secret code for Project Aurora?"),
        high=(
            "The team discussed Project Aurora's timeline and milestones.",
            "Progress reports for Project Aurora were reviewed by management.",
            "The Aurora initiative has been a key focus this quarter.",
            "Resources were reallocated to support Project Aurora's goals.",
        ),
        low=(
            "Various projects were discussed in the meeting.",
            "The quarterly review covered several ongoing initiatives.",
        ),
    ),
    Topic(
        Fact("Agent Nightingale's extraction point is", ".", "What is Agent Nightingale's extraction point?"),
        high=(
            "Agent Nightingale reported in from the field yesterday.",
            "The handler confirmed Nightingale's cover remains intact.",
            "Updates on Nightingale's mission status were classified.",
            "Nightingale's next check-in is scheduled for tomorrow.",
        ),
        low=("Field agents continued standard operations.", "Status updates were provided for all active agents."),
    ),
    Topic(
        Fact(
            "The activation temperature for Formula X is",
            " degrees.",
            "What is the activation temperature for Formula X in degrees?",
        ),
        high=(
            "Formula X showed promising results in the latest trial.",
            "The researchers adjusted Formula X's concentration levels.",
            "Testing of Formula X continues in Lab 7.",
            "Formula X outperformed all other candidate compounds.",
        ),
        low=("Laboratory experiments continued as scheduled.", "Multiple formulas were tested this week."),
    ),
)


@dataclass(frozen=True)
class Association(RetrievalTask):
    """Problems association/<length>/<density>/<index>, `repetitions` per density, counted from index `first`.

    length: tokens of a whole prompt, see protocol.tasks.prompt_length; the paper's "distance" is about the
        same, as the fact is at the beginning and the question at the end.
    densities: "high" inserts the four mentions of the topic, "low" its two, after 1/(m+1), ..., m/(m+1) of
        the filler's sentences.

    A problem depends on its id, `seed` and the tokenizer alone. Departures from the paper: each problem has its own
    order of the paragraph's sentences and of the mentions, without which two problems of one topic would differ in the
    value alone; straight apostrophes; the answer begins with the words of the fact in place of "Answer:".
    """

    length: int
    repetitions: int
    first: int = 0
    densities: tuple[str, ...] = ("high", "low")

    def ids(self) -> tuple[str, ...]:
        indices = range(self.first, self.first + self.repetitions)
        return tuple(f"association/{self.length}/{density}/{i:03d}" for density in self.densities for i in indices)

    def build(self, problem_id: str, count: Callable[[str], int]) -> Problem:
        """count: tokens of a text. Raises BadInput for another task's id or too short a length."""
        self.refuse_unknown(problem_id)
        fact, high, low = self._topic(problem_id)
        pool = {"high": high, "low": low}[problem_id.split("/")[2]]
        mentions = draws.shuffled(pool, self.seed, problem_id, "mentions")
        value = self.gold(problem_id)
        passage = draws.shuffled(filler.ORGANISATION, self.seed, problem_id, "filler")
        depth = self._depth(problem_id)

        def make(n: int) -> Problem:
            text = filler.surround(fact.stated(value), filler.sentences(passage, n), depth, mentions)
            return Problem(problem_id, " ".join([FRAMING, *text]), fact.question, fact.stem, value)

        return fill_to_length(make, self.length, count)

    def topics(self) -> Mapping[str, str]:
        return {problem_id: self._topic(problem_id).fact.stem for problem_id in self.ids()}

    def population(self) -> str:
        return f"about {len(TOPICS)} topics, which are those of its development too, and about no others"

    def _topic(self, problem_id: str) -> Topic:
        return TOPICS[draws.pick(len(TOPICS), self.seed, problem_id, "topic")]

    def _depth(self, problem_id: str) -> float:
        """Return the share of the filler's sentences before the fact."""
        return 0.0

    def materials(self) -> dict[str, Any]:
        topics = [[list(topic.fact), list(topic.high), list(topic.low)] for topic in TOPICS]
        return {"family": "association", "framing": FRAMING, "topics": topics, "filler": list(filler.ORGANISATION)}


@dataclass(frozen=True)
class MovedAssociation(Association):
    """Problems association-moved/<length>/<density>/<depth>/<index>, `repetitions` per density and depth: the
    fact is at a depth of the filler, and begins the prompt at depth 0 alone.

    depths: the share of the filler's sentences before the fact, as in a needle. Mentions are at the same
        positions as without it, so that some precede the fact.

    This variant is ours: the paper's fact always begins the prompt (appendix B.2, step 3), so that a policy
    that retains early tokens retains it without any use of the mentions.
    """

    depths: tuple[str, ...] = ("0", "0.25", "0.5", "0.75", "1")

    def ids(self) -> tuple[str, ...]:
        indices = range(self.first, self.first + self.repetitions)
        return tuple(
            f"association-moved/{self.length}/{density}/{depth}/{i:03d}"
            for density in self.densities
            for depth in self.depths
            for i in indices
        )

    def levels(self) -> Mapping[str, str]:
        """Return the depth of the fact by id, which this task varies."""
        return {item: item.split("/")[3] for item in self.ids()}

    def recipe(self) -> str:
        return canonical.digest({"family": "association, moved", "of": super().recipe()})

    def source(self) -> str:
        return canonical.digest({"family": "association, moved", "of": super().source()})

    def _depth(self, problem_id: str) -> float:
        return float(problem_id.split("/")[3])
