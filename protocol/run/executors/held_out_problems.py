"""The held-out problems of a confirmation: built once, and refused if a model has seen a prompt before."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.evidence.held_out_guard import HeldOutGuard
from protocol.formats.refusals import BadInput
from protocol.models import calibration
from protocol.models.load import tokenizer as load_tokenizer
from protocol.tasks import held_out_guard, prompting
from protocol.tasks.held_out_guard import HeldOutProblems
from protocol.tasks.problem import Problem
from protocol.workspace.planned_study import PlannedStudy

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class ExposedPrompts(NamedTuple):
    """What a model has seen. calibration: digests of prompts that its statistics were measured on. probed: development
    problems, by the digests of their prompts.
    """

    calibration: frozenset[str]
    probed: Mapping[str, str]


class UnbuiltProblems(NamedTuple):
    """The held-out problems of a confirmation before any is built: this value can be sent to the process that does.

    ids: by task. exposed: by model. extra_prompts: by arm.
    """

    held_out: HeldOutGuard
    ids: Mapping[str, Sequence[str]]
    exposed: Mapping[str, ExposedPrompts]
    extra_prompts: Mapping[str, str]

    def open_all(self, planned: PlannedStudy) -> HeldOutProblems:
        """Build every problem for every model, this once. Raises BadInput for a problem with a prompt that its model
        was probed with, or that statistics of its model were measured on: by the prompt's digest, whatever its id.
        """
        built: dict[tuple[str, str, str], Problem] = {}
        tasks_by_name = planned.tasks
        query_placement = {task.name: task.query for task in planned.protocol.tasks}
        for model in planned.protocol.models:
            tokenizer = load_tokenizer(model, planned.home)
            count_tokens = prompting.counter(tokenizer)
            for task, ids in self.ids.items():
                for problem in ids:
                    built[model, task, problem] = held_out_guard.build(
                        tasks_by_name[task], task, problem, count_tokens, self.held_out
                    )
            if any(self.exposed[model]):
                for (name, task, _), problem_text in built.items():
                    if name == model:
                        self._refuse_exposed(problem_text, model, query_placement[task], tokenizer)
        return HeldOutProblems(self.held_out, self.held_out.key(), built)

    def _refuse_exposed(self, problem: Problem, model: str, query: str, tokenizer: "PreTrainedTokenizerBase") -> None:
        exposed = self.exposed[model]
        if prompting.digest(*prompting.render(problem, tokenizer, "inside")) in exposed.calibration:
            raise BadInput(
                f"problem {problem.id!r}: statistics of {model} were measured on its prompt; calibrate on "
                "other problems and register a new study"
            )
        for extra_prompt in dict.fromkeys(self.extra_prompts.values()):
            digest = prompting.digest(*prompting.render(problem, tokenizer, query, extra_prompt))
            if digest in exposed.probed:
                raise BadInput(
                    f"problem {problem.id!r}: {model} was probed with its prompt, as "
                    f"{exposed.probed[digest]!r}; register a new study on other problems"
                )


def list_exposed_prompts(
    planned: PlannedStudy, probed_bodies: Iterable[Mapping[str, Any]]
) -> dict[str, ExposedPrompts]:
    """Return by model the prompts that it has seen. probed_bodies: of the records of the probe."""
    probed: dict[str, dict[str, str]] = {model: {} for model in planned.protocol.models}
    for body in probed_bodies:
        probed.setdefault(body["cell"]["model"], {})[body["prompt"]] = body["problem"]
    return {
        model: ExposedPrompts(
            frozenset[str]().union(*map(calibration.prompt_digests, planned.statistics_files(model).values())),
            probed[model],
        )
        for model in planned.protocol.models
    }
