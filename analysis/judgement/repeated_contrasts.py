"""Contrasts that repeat an earlier one: the same two policies, or the same answers in every lane, under another name.

A rule that counts wins counts them once.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from analysis.judgement.contrasts import Pairing, problem_table
from analysis.judgement.memory import Arms
from protocol.formats.vocabulary import FULL


class _Side(NamedTuple):
    """One arm of a contrast. policy: its settings; empty if the lock has none. answers: the grade and the number of
    tokens of every lane.
    """

    budget: str
    policy: tuple[tuple[str, str], ...]
    answers: bytes

    def is_same(self, other: "_Side") -> bool:
        is_same_policy = self.policy != () and (self.budget, self.policy) == (other.budget, other.policy)
        return is_same_policy or self.answers == other.answers


def find_repeated(arms: Arms, lock: Mapping[str, Any], pairings: Sequence[Pairing]) -> list[Pairing | None]:
    """Return, for each pairing, the first before it that has the same two sides in the same model and task."""
    cells = dict.fromkeys(cell for pairing in pairings for cell in _cells(pairing))
    sides = {cell: _read_side(arms, lock, *cell) for cell in cells}

    def is_same(one: Pairing, other: Pairing) -> bool:
        if (one.model, one.task) != (other.model, other.task):
            return False
        return all(
            sides[cell].is_same(sides[earlier]) for cell, earlier in zip(_cells(one), _cells(other), strict=True)
        )

    return [
        next((earlier for earlier in pairings[:index] if is_same(pairing, earlier)), None)
        for index, pairing in enumerate(pairings)
    ]


def _cells(pairing: Pairing) -> list[tuple[str, str, str, str]]:
    budgets = pairing.budget, FULL if pairing.full else pairing.budget
    arms = pairing.subject, pairing.against
    return [(pairing.model, pairing.task, budget, arm) for budget, arm in zip(budgets, arms, strict=True)]


def _read_side(arms: Arms, lock: Mapping[str, Any], model: str, task: str, budget: str, arm: str) -> _Side:
    lanes, problems = arms[model, task, budget, arm], lock["items"][task]["confirm"]
    settings = lock.get("policies", {}).get(arm) or {}
    answers = b"".join(problem_table(lanes, column, problems).tobytes() for column in ("correct", "tokens"))
    return _Side(budget, tuple(sorted(settings.items())), answers)
