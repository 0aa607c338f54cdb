"""A task that combines several: problems of different lengths that count as one set."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from protocol.formats import canonical
from protocol.formats.refusals import BadInput
from protocol.formats.registry import load_attribute
from protocol.tasks.association import Association, MovedAssociation
from protocol.tasks.needle import Needle
from protocol.tasks.problem import Problem


@dataclass(frozen=True)
class TaskUnion:
    """The problems of every part, in order. The parts share one recipe, and no id is in two of them.

    A contrast over it averages over the parts, like a paper whose table cells combine several lengths.
    """

    parts: tuple[Needle | Association, ...]

    def __post_init__(self) -> None:
        if len({part.recipe() for part in self.parts}) != 1 or len(set(self.ids())) != len(self.ids()):
            raise ValueError("the parts of a task must share a recipe and no id")

    @property
    def grader(self) -> str:
        return self.parts[0].grader

    @property
    def chance(self) -> str:
        return self.parts[0].chance

    def ids(self) -> tuple[str, ...]:
        return tuple(item for part in self.parts for item in part.ids())

    def build(self, problem_id: str, count: Callable[[str], int]) -> Problem:
        """count: tokens of a text. Raises BadInput for another task's id."""
        for part in self.parts:
            if problem_id in part.ids():
                return part.build(problem_id, count)
        raise BadInput(f"problem {problem_id!r}: is not in this task, whose ids start at {self.ids()[0]}")

    def gold(self, problem_id: str) -> str:
        return self.parts[0].gold(problem_id)

    def levels(self) -> Mapping[str, str]:
        """Return the levels of parts that have them; otherwise the length of each part, in tokens."""
        return {
            item: part_levels.get(item, str(part.length))
            for part in self.parts
            for part_levels in [part.levels() if isinstance(part, MovedAssociation) else {}]
            for item in part.ids()
        }

    def topics(self) -> Mapping[str, str]:
        return {item: topic for part in self.parts for item, topic in part.topics().items()}

    def population(self) -> str:
        return self.parts[0].population()

    def redrawn(self, seed: int) -> "TaskUnion":
        return TaskUnion(tuple(part.redrawn(seed) for part in self.parts))

    def recipe(self) -> str:
        return self.parts[0].recipe()

    def source(self) -> str:
        """Return the SHA-256 of what the problems are made of: the sources of the parts."""
        return canonical.digest({"family": "several", "parts": [part.source() for part in self.parts]})


def unite(family: str, lengths: Iterable[int], *, repetitions: int) -> TaskUnion:
    """Return the tasks of a family at these lengths as one. family: the path "module:attribute" of its class."""
    make_task = load_attribute(family)
    return TaskUnion(tuple(make_task(length, repetitions=repetitions) for length in lengths))
