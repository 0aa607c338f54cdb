"""The base of tasks whose problems this project generates, from their ids and a seed."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Self

from protocol.formats import canonical
from protocol.formats.refusals import BadInput
from protocol.tasks import draws


@dataclass(frozen=True)
class GeneratedTask(ABC):
    """A task whose problems depend on their ids, `seed` and the tokenizer alone."""

    seed: int = field(default=42, kw_only=True)

    @abstractmethod
    def ids(self) -> tuple[str, ...]:
        """Return the ids of the problems."""

    @abstractmethod
    def materials(self) -> dict[str, Any]:
        """Return what a problem is made of, besides what its id says."""

    def refuse_unknown(self, problem_id: str, further_ids: tuple[str, ...] = ()) -> None:
        """Raise BadInput for another task's id."""
        if problem_id not in self.ids() and problem_id not in further_ids:
            raise BadInput(f"problem {problem_id!r}: is not in this task, whose ids start at {self.ids()[0]}")

    def redrawn(self, seed: int) -> Self:
        return replace(self, seed=seed)

    def recipe(self) -> str:
        """As `Task.recipe`."""
        return canonical.digest(self.materials() | {"seed": str(self.seed)})

    def source(self) -> str:
        """Return the SHA-256 of what the problems are made of: the materials and these settings."""
        return canonical.digest(self.materials() | asdict(self))


class LevelledTask(GeneratedTask):
    """A generated task with `repetitions` problems of each level. `calibration` further ones, whose indices continue
    after those of the task, serve what is estimated before any experiment.
    """

    repetitions: int
    calibration: int

    @abstractmethod
    def _make_ids(self, indices: range) -> tuple[str, ...]:
        """Return the ids of the problems with these indices, of every level."""

    def ids(self) -> tuple[str, ...]:
        return self._make_ids(range(self.repetitions))

    def calibration_ids(self) -> tuple[str, ...]:
        return self._make_ids(range(self.repetitions, self.repetitions + self.calibration))


class RetrievalTask(GeneratedTask):
    """A generated task whose answer is a number of four digits, drawn for each problem."""

    grader: ClassVar[str] = "exact"
    chance: ClassVar[str] = "0"  # one of 9,000 numbers

    def gold(self, problem_id: str) -> str:
        return draws.value(self.seed, problem_id)
