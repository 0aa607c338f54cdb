"""Chain arithmetic: follow a chain of definitions and write every step, in 80 to 300 tokens."""

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, TypeVar

from protocol.formats import canonical
from protocol.tasks import file_rows
from protocol.tasks.generated_task import LevelledTask
from protocol.tasks.problem import Problem

VARIABLES = tuple(consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeio")
DIGITS = tuple(str(digit) for digit in range(10))
# Every operator permutes the ten digits, so that a wrong operand gives a wrong result.
OPERATORS = (*(f"+{n}" for n in range(1, 10)), "*3", "*7", "*9")
MOST_DISTRACTORS = 14
LONGEST_DISTRACTION = 5

T = TypeVar("T")


class Puzzle(NamedTuple):
    """definitions: two shuffled tables. question: the variable to find, the first variable and its value."""

    definitions: str
    question: str
    solution: str
    """Every step, then the boxed answer."""
    answer: str


def apply(value: int, operator: str) -> int:
    """Return value + n or value * n, modulo 10."""
    operand = int(operator[1:])
    return (value + operand if operator[0] == "+" else value * operand) % 10


def puzzle(steps: int, distractors: int, source: random.Random) -> Puzzle:
    """Return a chain of `steps` definitions among `distractors` that lead elsewhere.

    "From ba, add 3, to ko" is written in two tables: `ba >ko` in the first (the next variable) and `@ba +3` in the
    second (the operator). A variable is three words, one each for its use as source, as target and as name of an
    operator: with one word for all of them small models take thousands of steps longer to learn the lookup.
    """
    sizes = [steps]
    while sum(sizes) < steps + distractors:
        most = min(LONGEST_DISTRACTION, steps + distractors - sum(sizes))
        sizes.append(1 + draw_below(most, source))
    names = shuffled(VARIABLES, source)
    if len(names) < steps + distractors + len(sizes):
        raise ValueError(f"{steps} steps and {distractors} distractors need more than {len(names)} variables")
    edges = []
    for size in sizes:
        chain, names = names[: size + 1], names[size + 1 :]
        edges += [(a, b, OPERATORS[draw_below(len(OPERATORS), source)]) for a, b in pairwise(chain)]
    start = value = draw_below(10, source)
    lines = []
    for a, b, operator in edges[:steps]:
        result = apply(value, operator)
        lines.append(f"from {a} >{b} using @{a} {operator} gives {value} {operator} = {result} ;")
        value = result
    first, last = edges[0][0], edges[steps - 1][1]
    leads = " ".join(f"{a} >{b}" for a, b, _ in shuffled(edges, source))
    operators = " ".join(f"@{a} {operator}" for a, _, operator in shuffled(edges, source))
    return Puzzle(
        definitions=f"{leads}\n{operators}",
        question=f"find {last} ? starting >{first} = {start} ;",
        solution="\n".join([*lines, f"from {last} ? \\boxed{{{value}}}"]),
        answer=str(value),
    )


def draw_below(bound: int, source: random.Random) -> int:
    """Draw an integer from 0 to `bound` - 1. Python guarantees the sequence of random(), not that of randrange()."""
    return int(source.random() * bound)


def shuffled(items: Sequence[T], source: random.Random) -> list[T]:
    keys = [source.random() for _ in items]
    return [items[index] for index in sorted(range(len(items)), key=keys.__getitem__)]


@dataclass(frozen=True)
class Chain(LevelledTask):
    """Problems chain/<steps>/<index>, `repetitions` of each level; the level is the number of steps.

    fewest, most: distractors, drawn for each problem.
    calibration: further problems of each level, for what is estimated before any experiment; their indices
        continue after those of the task, and none of their puzzles is in the task.

    A problem depends on its id and `seed` alone, whatever the tokenizer.
    """

    levels: tuple[int, ...]
    repetitions: int
    calibration: int
    fewest: int = 1
    most: int = 4
    grader: ClassVar[str] = "boxed"
    chance: ClassVar[str] = "0.1"  # one of ten digits

    def build(self, problem_id: str, count: Callable[[str], int]) -> Problem:
        """Raises BadInput for another task's id."""
        self.refuse_unknown(problem_id, self.calibration_ids())
        chain_puzzle = self.puzzle(problem_id)
        return Problem(problem_id, chain_puzzle.definitions, chain_puzzle.question, prefix="", gold=chain_puzzle.answer)

    def gold(self, problem_id: str) -> str:
        return self.puzzle(problem_id).answer

    def population(self) -> str:
        return "drawn afresh from a generator of chains of definitions"

    def puzzle(self, problem_id: str) -> Puzzle:
        source = random.Random(f"{self.seed}|{problem_id}")
        distractors = self.fewest + draw_below(self.most + 1 - self.fewest, source)
        return puzzle(int(problem_id.split("/")[1]), distractors, source)

    def content_digest(self, problem_id: str) -> str:
        """Return the digest of what the problem asks, the same where its text stands in a file."""
        chain_puzzle = self.puzzle(problem_id)
        return file_rows.digest_text(chain_puzzle.definitions, chain_puzzle.question)

    def materials(self) -> dict[str, Any]:
        words = {"family": "chain", "operators": OPERATORS, "variables": VARIABLES}
        return words | {"fewest": self.fewest, "most": self.most}

    def source(self) -> str:
        """Return the SHA-256 of what the problems are made of: these settings, the words and every puzzle."""
        puzzles = [list(self.puzzle(problem_id)) for problem_id in self.ids()]
        return canonical.digest(self.materials() | asdict(self) | {"puzzles": puzzles})

    def _make_ids(self, indices: range) -> tuple[str, ...]:
        return tuple(f"chain/{steps:02d}/{index:03d}" for steps in self.levels for index in indices)
