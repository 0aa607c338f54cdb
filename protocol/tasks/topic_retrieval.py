"""Retrieval with a topic of its own for every problem: the successors of needle and association.

The 200 held-out problems of `association-1024` are about three topics, and those of `needle-1024` about five: they
show how an effect varies within a topic, and hardly how it varies between topics. Here no two problems share a topic,
and a topic is for development or held out in every length and every task (`split_units`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from protocol.tasks import draws, filler
from protocol.tasks.association import FRAMING
from protocol.tasks.generated_task import RetrievalTask
from protocol.tasks.problem import Fact, Problem
from protocol.tasks.prompt_length import fill_to_length
from protocol.tasks.topic_texts import GENERAL, MENTIONS, TEMPLATES, TOPICS

DEPTHS = ("0", "0.25", "0.5", "0.75", "1")
# How many mentions of the topic an association has, and among which sentences they are drawn, as in `association`.
MENTIONS_BY_DENSITY: Mapping[str, tuple[int, tuple[str, ...]]] = {"high": (4, MENTIONS), "low": (2, GENERAL)}


@dataclass(frozen=True)
class TopicRetrieval(RetrievalTask):
    """Problems <family>/<length>/<density>/<depth>/<topic>, one for each topic: a fact about it among filler.

    lengths: tokens of a whole prompt, see protocol.tasks.prompt_length. depths: the share of the filler's sentences
        before the fact. densities: how often the topic is mentioned again, as in `association`; none for a needle,
        whose filler is another passage.

    Ids have no part for a setting that does not vary: no density without mentions, no depth where it is always 0.
    Lengths, densities and depths take turns over the topics, so that each is equally frequent. How the fact is stated
    (one of 24 templates), which mentions are made, the order of the filler and the value are drawn for each problem:
    it depends on its id, `seed` and the tokenizer alone.
    """

    family: str
    lengths: tuple[int, ...]
    depths: tuple[str, ...] = DEPTHS
    densities: tuple[str, ...] = ()

    def ids(self) -> tuple[str, ...]:
        return tuple(self._settings())

    def split_units(self) -> Mapping[str, str]:
        """Return the topic of each problem, whose hash decides which split the problem is in."""
        return {problem_id: problem_id.rpartition("/")[2] for problem_id in self._settings()}

    def population(self) -> str:
        """Return what the problems are a sample of."""
        return f"each about one of the {len(TOPICS)} places of a generator with {len(TEMPLATES)} ways to state a fact"

    def levels(self) -> Mapping[str, str]:
        """Return by id the length of needles of several lengths, else the depth, else the length, whichever varies."""
        if len(self.depths) == len(self.lengths) == 1:
            return {}
        is_by_length = len(self.depths) == 1 or (len(self.lengths) > 1 and not self.densities)
        position = 0 if is_by_length else 2
        return {problem_id: str(setting[position]) for problem_id, setting in self._settings().items()}

    def build(self, problem_id: str, count: Callable[[str], int]) -> Problem:
        """count: tokens of a text. Raises BadInput for another task's id or too short a length."""
        settings = self._settings()
        self.refuse_unknown(problem_id)
        length, density, depth, topic = settings[problem_id]
        stem, ending, question = TEMPLATES[draws.pick(len(TEMPLATES), self.seed, problem_id, "template")]
        fact = Fact(stem.format(topic=topic), ending, question.format(topic=topic))
        passage = draws.shuffled(filler.ORGANISATION if density else filler.TOWN, self.seed, problem_id, "filler")
        number, pool = MENTIONS_BY_DENSITY[density] if density else (0, ())
        drawn = draws.shuffled(pool, self.seed, problem_id, "mentions")[:number]
        mentions = [mention.format(topic=topic) for mention in drawn]
        value = self.gold(problem_id)

        def make(n: int) -> Problem:
            text = filler.surround(fact.stated(value), filler.sentences(passage, n), float(depth), mentions)
            framing = [FRAMING] if density else []
            return Problem(problem_id, " ".join([*framing, *text]), fact.question, fact.stem, value)

        return fill_to_length(make, length, count)

    def materials(self) -> dict[str, Any]:
        texts: dict[str, Any] = {"framing": FRAMING, "templates": [list(fact) for fact in TEMPLATES]}
        texts |= {"topics": TOPICS, "mentions": MENTIONS, "general": GENERAL}
        return texts | {"fillers": [list(filler.TOWN), list(filler.ORGANISATION)]}

    def _settings(self) -> dict[str, tuple[int, str, str, str]]:
        """Return (length, density, depth, topic) by id."""
        settings = {}
        for index, topic in enumerate(TOPICS):
            densities = self.densities or ("",)
            density, depth = densities[index % len(densities)], self.depths[index % len(self.depths)]
            length = self.lengths[index // (len(densities) * len(self.depths)) % len(self.lengths)]
            varied = [*([density] if density else []), *([depth] if self.depths != ("0",) else [])]
            name = topic.removeprefix("the ").replace(" ", "-").lower()
            settings["/".join([self.family, str(length), *varied, name])] = (length, density, depth, topic)
        return settings
