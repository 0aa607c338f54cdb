"""The registered grid: every cell that must end in one state, and the lanes that one problem needs."""

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from analysis.rules.rule import FULL
from protocol.plan.design import Budget, Design

__all__ = ["FULL", "Cell", "budget_of", "cells"]


class Cell(NamedTuple):
    """(model, task, budget, arm, seed). The task is part of a cell, since a contrast never mixes tasks."""

    model: str
    task: str
    budget: str
    arm: str
    seed: int


def cells(protocol: Design, whole: Callable[[Design, str], bool] | None = None) -> list[Cell]:
    """Every cell in running order. An arm that never evicts has one cell a seed, whatever the budgets.

    Of a protocol with a sweep: the cells that confirm runs, which are the same whoever wins. whole: whether
    an arm of a protocol never evicts; by default its policy is asked, with torch.
    """
    whole = never_evicts if whole is None else whole
    if protocol.sweep is not None:
        protocol = protocol.confirmed(protocol.sweep.candidates[0])
    return [
        Cell(model, task.name, budget, arm.name, seed)
        for model in protocol.models
        for task in protocol.tasks
        for arm in protocol.arms
        for budget in ([FULL] if whole(protocol, arm.name) else map(str, protocol.budgets))
        for seed in protocol.seeds
    ]


def budget_of(protocol: Design, cell: Cell, prompt_tokens: int, use: Fraction | None = None) -> int | None:
    """Slots per KV head and layer for one prompt; None for an arm that never evicts. use: mean slots of the
    full cache, of this model and task.
    """
    named: dict[str, Budget] = {str(budget): budget for budget in protocol.budgets}
    if cell.budget == FULL:
        return None
    return named[cell.budget].of(prompt_tokens, use)


def never_evicts(protocol: Design, arm: str) -> bool:
    return protocol.arm(arm).press is None and not protocol.policy(arm).evicts
