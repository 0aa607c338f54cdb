"""A problem, and the fact that a retrieval problem is about."""

from typing import NamedTuple

from protocol.grading.grade import Gold

THINK = "<think>\n"  # the prefix that asks a model to reason before it answers


class Problem(NamedTuple):
    """context: the filler with the fact, or the whole problem if it has no separate question.

    question: may be empty. prefix: how the answer begins. gold: the expected continuation or answer. level:
    the difficulty of the problem, in its task's terms.
    """

    id: str
    context: str
    question: str
    prefix: str
    gold: Gold
    level: str = ""


class Fact(NamedTuple):
    """A statement whose value is drawn: `stem` value `ending`. The answer begins with `stem`."""

    stem: str
    ending: str
    question: str

    def stated(self, value: str) -> str:
        return f"{self.stem} {value}{self.ending}"
