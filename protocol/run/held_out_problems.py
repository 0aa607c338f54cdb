"""The held-out problems of a confirmation: built once, and refused if a model has seen a prompt before."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from protocol.evidence.held_out_guard import HeldOutGuard
from protocol.formats.refusals import BadInput
from protocol.models import calibration, load
from protocol.tasks import held_out_guard, prompting
from protocol.tasks.held_out_guard import HeldOutProblems
from protocol.tasks.problem import Problem
from protocol.workspace.planned_study import PlannedStudy

__all__ = ["build_held_out", "refuse_exposed"]


def build_held_out(
    planned: PlannedStudy, held_out: HeldOutGuard, problems: Mapping[str, Sequence[str]]
) -> HeldOutProblems:
    """Build every held-out problem for every model, this once: they are compared here, and then run."""
    built: dict[tuple[str, str, str], Problem] = {}
    tasks_by_name = planned.tasks
    for model in planned.protocol.models:
        count_tokens = prompting.counter(load.tokenizer(model, planned.home))
        for task, ids in problems.items():
            task_object = tasks_by_name[task]
            built |= {
                (model, task, problem): held_out_guard.build(task_object, task, problem, count_tokens, held_out)
                for problem in ids
            }
    return HeldOutProblems(held_out, held_out.key(), built)


def refuse_exposed(planned: PlannedStudy, probed_bodies: Iterable[Mapping[str, Any]], opened: HeldOutProblems) -> None:
    """Raise BadInput for a held-out problem with a prompt that its model was probed with, or that statistics
    of its model were measured on: by the prompt's digest, whatever its id.
    """
    probed: dict[str, dict[str, str]] = defaultdict(dict)  # problems, by model and digest of the prompt
    for body in probed_bodies:
        probed[body["cell"]["model"]][body["prompt"]] = body["problem"]
    query_placement = {task.name: task.query for task in planned.protocol.tasks}
    extra_prompts = dict.fromkeys(planned.protocol.extra_prompt(arm.name) for arm in planned.protocol.arms)
    for model in planned.protocol.models:
        calibration_prompts = frozenset[str]().union(
            *map(calibration.prompt_digests, planned.statistics_files(model).values())
        )
        if not calibration_prompts and not probed[model]:
            continue
        tokenizer = load.tokenizer(model, planned.home)
        problems = {
            (task, problem_id): problem_text
            for (model_name, task, problem_id), problem_text in opened.problems.items()
            if model_name == model
        }
        for (task, problem), problem_text in problems.items():
            if prompting.digest(*prompting.render(problem_text, tokenizer, "inside")) in calibration_prompts:
                raise BadInput(
                    f"problem {problem!r}: statistics of {model} were measured on its prompt; "
                    "calibrate on other problems and register anew"
                )
            for extra_prompt in extra_prompts:
                prompt_digest = prompting.digest(
                    *prompting.render(problem_text, tokenizer, query_placement[task], extra_prompt)
                )
                if prompt_digest in probed[model]:
                    raise BadInput(
                        f"problem {problem!r}: {model} was probed with its prompt, as "
                        f"{probed[model][prompt_digest]!r}; register anew on other problems"
                    )
