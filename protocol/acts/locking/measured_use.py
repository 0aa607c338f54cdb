"""Run the full cache on development problems, where budgets are shares of its use.

It runs as in the study: with the registered prompts, temperature, limits, threads, processes and problems per
batch, with the first seed. The number of lanes does not depend on the free memory, so that a second
measurement gives the same result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from analysis.output.phases import At, phase
from protocol.evidence.refusals import BadInput
from protocol.locked.planned import Planned
from protocol.plan import full_use, grid
from protocol.plan.design import Arm, Budget, Design
from protocol.running import progress, runner
from protocol.running.executors import Job, Produced, pool

__all__ = ["measured", "shares"]


def shares(protocol: Design) -> list[Budget]:
    """Return the budgets that are shares of the full cache's use."""
    return [budget for budget in protocol.budgets if budget.of_full is not None]


def measured(planned: Planned, problems: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the field `full_use` of a lock, measured on these problems of each task, without excluded ones.

    Raises BadInput if the full cache fails on a problem.
    """
    protocol = planned.protocol
    alone = replace(protocol, arms=(Arm(grid.FULL, grid.FULL),), seeds=protocol.seeds[:1], sweep=None)
    work = runner.units(grid.cells(alone), problems, protocol.generation.problems_per_batch)
    most = protocol.generation.lanes_per_batch
    lanes = {} if most is None else dict.fromkeys(protocol.models, most)
    held: dict[str, dict[str, dict[str, int]]] = {}
    total, workers = sum(len(unit.problems) for unit in work), protocol.generation.workers or 1
    with phase("measuring the full cache's use") as tell:
        report = progress.reporter(total, total, lambda at: tell(At(*at)))
        with pool.opened(planned._replace(protocol=alone), lanes, report=report) as execute:
            results = execute(Job(*unit) for unit in work)
            reached = runner.Reached(work, workers)
            for unit, produced in zip(work, results, strict=True):
                of_task = held.setdefault(unit.model, {}).setdefault(unit.task, {})
                of_task |= _at_the_end(produced, unit.task)
                report(reached.after(unit, produced.seconds))
    return {
        model: {
            task: full_use.entry(own, [str(budget) for budget in protocol.budgets])
            for task, own in tasks.items()
        }
        for model, tasks in held.items()
    }


def _at_the_end(produced: Produced, task: str) -> dict[str, int]:
    """Return, for each problem that ran, the slots per KV head and layer after the last token that was fed.
    """
    found = {}
    for (_, problem), (body, _) in produced.records.items():
        if body["state"] == "failed":
            raise BadInput(
                f"budgets: the full cache fails on {problem} of {task} ({body['reason']}), so that nothing "
                "is a share of its use; leave the task out, or write shares of the prompt"
            )
        if body["state"] == "ok":
            own = produced.trajectories[int(body["trajectory"].partition("#")[2])]
            found[problem] = own["held"][-1] // own["heads"]
    return found
