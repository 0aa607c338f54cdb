"""Full-cache use: mean slots of the full cache at the end of an answer, of which budgets can be shares.

Crystal-KV (Section 6.2) defines a budget "relative to the average per-question KV usage of FullKV". Here that is the
mean over development problems of the slots per KV head and layer after the last token that is fed, prompt and answer,
for each model and task. The lock stores the slots of each problem; this file has the arithmetic.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

from protocol.formats.vocabulary import OF_FULL
from protocol.plan.budget import slots_of_full_share

FIELD = "full_use"  # the field of a lock

FullUse: TypeAlias = Mapping[tuple[str, str], Fraction]  # mean slots per KV head and layer, by model and task


def full_shares(budgets: Iterable[str]) -> list[str]:
    """Return those budgets, as text, that are shares of the full-cache use."""
    return [budget for budget in budgets if budget.endswith(OF_FULL)]


def lock_entry(slots_by_problem: Mapping[str, int], budgets: Iterable[str]) -> dict[str, Any]:
    """Return the entry of one model and task in a lock. slots_by_problem: slots at the end of an answer, not empty."""
    mean = Fraction(sum(slots_by_problem.values()), len(slots_by_problem))
    slots = {share: slots_of_full_share(Decimal(share.removesuffix(OF_FULL)), mean) for share in full_shares(budgets)}
    return {"held": dict(slots_by_problem), "mean": str(mean), "slots": slots}


def read_means(locked: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> FullUse:
    """Return the means by model and task from the field of a lock."""
    return {(model, task): Fraction(entry["mean"]) for model, tasks in locked.items() for task, entry in tasks.items()}
