"""Run the full cache on development problems, where budgets are shares of its use.

It runs as in the study: with the registered prompts, temperature, limits, threads, processes and problems per
batch, with the first seed. The number of lanes does not depend on the free memory, so that a second
measurement gives the same result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput
from protocol.formats.vocabulary import FULL
from protocol.plan import full_use, grid
from protocol.plan.budget import Budget
from protocol.plan.design import Arm, Design
from protocol.run import progress, runner
from protocol.run.executors import JobResult, process_pool
from protocol.workspace.planned_study import PlannedStudy


def share_budgets(protocol: Design) -> list[Budget]:
    """Return the budgets that are shares of the full cache's use."""
    return [budget for budget in protocol.all_budgets if budget.of_full is not None]


def measure_full_cache(planned: PlannedStudy, problems: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the field `full_use` of a lock, measured on these problems of each task, without excluded ones.

    Raises BadInput if the full cache fails on a problem.
    """
    protocol = planned.protocol
    full_cache_design = replace(protocol, arms=(Arm(FULL, FULL),), seeds=protocol.seeds[:1], sweep=None)
    units = runner.split_into_units(grid.cells(full_cache_design), problems, protocol.generation.problems_per_batch)
    lanes_per_batch = protocol.generation.lanes_per_batch
    lanes = {} if lanes_per_batch is None else dict.fromkeys(protocol.models, lanes_per_batch)
    slots: dict[str, dict[str, dict[str, int]]] = {}
    total, workers = sum(len(unit.problems) for unit in units), protocol.generation.workers or 1
    with phase("measuring the full cache's use") as update:
        report = progress.make_reporter(total, total, update)
        with process_pool.open_executor(planned._replace(protocol=full_cache_design), lanes, report=report) as execute:
            results = execute(units)
            position = runner.ProgressTracker(units, workers)
            for unit, produced in zip(units, results, strict=True):
                task_slots = slots.setdefault(unit.model, {}).setdefault(unit.task, {})
                task_slots |= _final_slots(produced, unit.task)
                report(position.advance(unit, produced.seconds))
    return {
        model: {
            task: full_use.lock_entry(problem_slots, [str(budget) for budget in protocol.all_budgets])
            for task, problem_slots in tasks.items()
        }
        for model, tasks in slots.items()
    }


def _final_slots(produced: JobResult, task: str) -> dict[str, int]:
    """Return, for each problem that ran, the slots per KV head and layer after the last token that was fed."""
    slots = {}
    for (_, problem), (body, _) in produced.records.items():
        if body["state"] == "failed":
            raise BadInput(
                f"budgets: the full cache fails on {problem} of {task} ({body['reason']}), so its use cannot "
                "be measured; leave the task out, or write shares of the prompt"
            )
        if body["state"] == "ok":
            trajectory = produced.trajectories[int(body["trajectory"].partition("#")[2])]
            slots[problem] = trajectory["held"][-1] // trajectory["heads"]
    return slots
