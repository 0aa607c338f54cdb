"""RULER's generated tasks (arXiv:2404.06654), by the generators of the installed lm-eval."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from protocol import harness
from protocol.formats import canonical
from protocol.formats.vocabulary import OFFICIAL
from protocol.tasks.generated_task import GeneratedTask
from protocol.tasks.problem import Problem

# Tasks that need only word lists; the others need essays or question sets from the hub.
GENERATED = (*("niah_single_1", "niah_multikey_2", "niah_multikey_3"), *("ruler_vt", "ruler_cwe", "ruler_fwe"))
REPETITIONS = 500  # per length, as in lm-eval and RULER


@dataclass(frozen=True)
class Ruler(GeneratedTask):
    """Problems <lm_eval>/<length>/<index>, 500 per length; the level is the length.

    lengths: tokens of a prompt without its chat template, including the room for the answer, as in RULER;
        counted by the model's own tokenizer.

    A problem depends on its id, `seed` and the tokenizer alone; its answers do not depend on the tokenizer.
    Departs from lm-eval, which draws all problems of a length in one sequence: each is drawn from its id, by
    the same generator. The last line is the question.
    """

    name: str
    lm_eval: str
    lengths: tuple[int, ...]

    @property
    def grader(self) -> str:
        return f"{OFFICIAL}{self.lm_eval}"

    def ids(self) -> tuple[str, ...]:
        return tuple(f"{self.lm_eval}/{length}/{index:03d}" for length in self.lengths for index in range(REPETITIONS))

    def build(self, problem_id: str, count: Callable[[str], int]) -> Problem:
        """count: tokens of a text. Raises BadInput for another task's id and too short a length, and as Harness."""
        length, key = self._parse_id(problem_id)
        row = harness.shared_harness().ruler(self.lm_eval, length, key, count)
        context, _, question = str(row["input"]).strip().rpartition("\n")
        gold = _format_gold(length, row["outputs"])
        return Problem(problem_id, context, question, str(row["gen_prefix"]), gold, str(length))

    def gold(self, problem_id: str) -> str:
        """Return the row without its text, as JSON. Raises as `build` does."""
        length, key = self._parse_id(problem_id)
        # The answers are the same for every tokenizer, so assume four characters a token.
        row = harness.shared_harness().ruler(self.lm_eval, length, key, lambda text: len(text) // 4)
        return _format_gold(length, row["outputs"])

    def population(self) -> str:
        return f"drawn afresh from the generator of {self.lm_eval}"

    def levels(self) -> Mapping[str, str]:
        return {problem_id: problem_id.split("/")[-2] for problem_id in self.ids()}

    def materials(self) -> dict[str, Any]:
        return {"family": "ruler"}

    def source(self) -> str:
        """Return the SHA-256 of what the problems are made of, except lm-eval itself."""
        lengths = [str(length) for length in self.lengths]
        return canonical.digest(self.materials() | {"task": self.lm_eval, "lengths": lengths, "seed": str(self.seed)})

    def _parse_id(self, problem_id: str) -> tuple[int, str]:
        """Return (length, key that the problem is drawn from)."""
        self.refuse_unknown(problem_id)
        _, length, index = problem_id.rsplit("/", 2)
        return int(length), f"{self.seed}|{self.lm_eval}|{length}|{index}"


def _format_gold(length: int, outputs: list[str]) -> str:
    """Return the fields of a row that lm-eval's scorer reads, with empty fields for its prompt template."""
    row = {"gen_prefix": "", "input": "", "max_length": length, "outputs": outputs}
    return canonical.dumps(row).decode()
