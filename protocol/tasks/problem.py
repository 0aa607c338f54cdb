"""One problem, and the fact that it asks for."""

from typing import NamedTuple

__all__ = ["Fact", "Problem"]


class Problem(NamedTuple):
    """context: the filler with the fact. prefix: how the answer begins. gold: what has to follow."""

    id: str
    context: str
    question: str
    prefix: str
    gold: str


class Fact(NamedTuple):
    """A statement whose value is drawn: `stem` value `ending`. The answer begins with `stem`."""

    stem: str
    ending: str
    question: str

    def stated(self, value: str) -> str:
        return f"{self.stem} {value}{self.ending}"
