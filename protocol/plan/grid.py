"""The registered grid: its cells, and the budget and policy of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from protocol.formats.refusals import BadInput
from protocol.formats.vocabulary import FULL, RERUN_SUFFIX
from protocol.plan.budget import Budget, Slot
from protocol.plan.design import Design
from protocol.plan.slot_bytes import scale_interval

if TYPE_CHECKING:
    from policies import Policy


MAX_CELLS = 100_000  # of a lock; one of 4 MiB holds no more


class Cell(NamedTuple):
    """(model, task, budget, arm, seed). The task is part of a cell, since a contrast never mixes tasks."""

    model: str
    task: str
    budget: str
    arm: str
    seed: int


def cells(protocol: Design, is_full: Callable[[Design, str], bool] | None = None) -> list[Cell]:
    """Return every cell in running order. The full cache has one cell per seed, for all budgets; an arm that never
    evicts and stores or reads its slots otherwise has the budgets, which it may exceed; the comparators alone run at
    neighbours.

    With a sweep: the cells that confirm runs, which are the same for every winner. is_full: whether an arm of
    a protocol is the full cache; by default its policy decides, which needs torch.

    Raises BadInput for more than a lock can hold, before any is made.
    """
    sizes = (protocol.models, protocol.tasks, protocol.arms, protocol.all_budgets, protocol.seeds)
    if (most := math.prod(map(len, sizes))) > MAX_CELLS:
        raise BadInput(
            f"protocol.toml: budgets: the grid has {most:,} cells, over the limit of {MAX_CELLS:,}; register "
            "fewer budgets or seeds"
        )
    is_full = is_full or type(protocol).is_full
    if protocol.sweep is not None:
        protocol = protocol.confirm_design(protocol.sweep.candidates[0])
    return [
        Cell(model, task.name, budget, arm.name, seed)
        for model in protocol.models
        for task in protocol.tasks
        for arm in protocol.arms
        for budget in ([FULL] if is_full(protocol, arm.name) else map(str, arm_budgets(protocol, arm.name)))
        for seed in protocol.seeds
    ]


def arm_budgets(protocol: Design, arm: str) -> Sequence[Budget]:
    """Return the budgets of an arm: a comparator, run again or not, has the neighbours too."""
    is_comparator = arm.removesuffix(RERUN_SUFFIX) in protocol.decision.against
    return protocol.all_budgets if is_comparator else protocol.budgets


def budget_of(
    protocol: Design, cell: Cell, prompt_tokens: int, use: Fraction | None = None, slot: Slot | None = None
) -> int | None:
    """Return slots per KV head and layer for one prompt; None for the full cache. use: mean slots of the full cache
    for this model and task. slot: the slot size of the arm, if the budget is in bytes.
    """
    budget = _cell_budget(protocol, cell)
    return None if budget is None else budget.count_slots(prompt_tokens, use, slot)


def policy_of(protocol: Design, cell: Cell, slot: Slot | None = None) -> Policy:
    """Return the policy of the arm of a cell. slot: as in `budget_of`."""
    policy, budget = protocol.policy(cell.arm), _cell_budget(protocol, cell)
    if budget is None or not budget.in_bytes:
        return policy
    assert slot is not None, "the bytes of a slot are not given"
    return scale_interval(policy, slot)


def _cell_budget(protocol: Design, cell: Cell) -> Budget | None:
    budgets = {str(budget): budget for budget in protocol.all_budgets}
    return None if cell.budget == FULL else budgets[cell.budget]
