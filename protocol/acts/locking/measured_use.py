"""Runs the full cache on development problems, where budgets are shares of what it holds.

It is run as the study will run it: the registered prompts, temperature, limits, threads, processes and
problems per batch, with the first seed. How many lanes decode together is not left to the memory that is
free, so that the same is found when it is asked again.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from protocol.evidence.refusals import BadInput
from protocol.locked.planned import Planned
from protocol.plan import full_use, grid
from protocol.plan.design import Arm, Budget, Design
from protocol.running import runner
from protocol.running.executors import Job, Produced, pool
from protocol.running.progress import lines

__all__ = ["measured", "shares"]


def shares(protocol: Design) -> list[Budget]:
    """The budgets that are shares of the full cache's use."""
    return [budget for budget in protocol.budgets if budget.of_full is not None]


def measured(planned: Planned, problems: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The field `full_use` of a lock, from these problems of each task, but for those that are excluded.

    Says on standard error how far it is. Raises BadInput where a problem has no full cache to measure.
    """
    protocol = planned.protocol
    alone = replace(protocol, arms=(Arm(grid.FULL, grid.FULL),), seeds=protocol.seeds[:1], sweep=None)
    work = runner.units(grid.cells(alone), problems, protocol.generation.problems_per_batch)
    most = protocol.generation.lanes_per_batch
    lanes = {} if most is None else dict.fromkeys(protocol.models, most)
    held: dict[str, dict[str, dict[str, int]]] = {}
    started, done, total = time.monotonic(), 0, sum(len(unit.problems) for unit in work)
    last = {unit.cells: number for number, unit in enumerate(work, start=1)}
    report = lines("measuring the full cache's use")
    with pool.opened(planned._replace(protocol=alone), lanes) as execute:
        results = execute(Job(*unit) for unit in work)
        for number, (unit, produced) in enumerate(zip(work, results, strict=True), start=1):
            of_task = held.setdefault(unit.model, {}).setdefault(unit.task, {})
            of_task |= _at_the_end(produced, unit.task)
            done += len(unit.problems)
            seconds = time.monotonic() - started
            cells = sum(end <= number for end in last.values())
            report(runner.Progress(done, total, done, cells, len(last), seconds, done, unit))
    return {
        model: {
            task: full_use.entry(own, [str(budget) for budget in protocol.budgets])
            for task, own in tasks.items()
        }
        for model, tasks in held.items()
    }


def _at_the_end(produced: Produced, task: str) -> dict[str, int]:
    """Slots per KV head and layer after the last token that was fed, by problem, of those that ran."""
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
