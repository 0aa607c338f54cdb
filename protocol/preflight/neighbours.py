"""Budgets beside which no neighbour is registered, so that an excess of memory is charged and not tested."""

import itertools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from analysis.stats import memory_charge
from protocol.formats.value_faults import format_toml
from protocol.formats.vocabulary import FULL
from protocol.plan.budget import Budget, parse_budget

NEAR = 1 + Fraction(str(memory_charge.NEAR))  # the judge tests no neighbour that is further away


def describe_charge(content: Mapping[str, Any]) -> list[str]:
    """Return a line about what an excess of memory would cost, and which neighbours test it instead; none where every
    budget has one, where memory is not measured, where no comparator evicts, and where all arms are fed one text, so
    that they hold equally many slots. content: of a protocol.
    """
    decision = content["decision"]
    if "memory" not in decision or "outcome" in content or not {*decision["against"]} - {FULL}:
        return []
    budgets, neighbours = (list(map(parse_budget, content.get(name, ()))) for name in ("budgets", "neighbours"))
    tested = [*neighbours, *budgets] if neighbours else []
    alone = [budget for budget in budgets if not any(_is_near(budget, at) for at in tested)]
    if not alone:
        return []
    suggested = ", ".join(_format_toml(above) for budget in alone if (above := budget.next_above()) not in budgets)
    return [
        f"memory at {', '.join(map(str, alone))}: a subject that holds even slightly more than its comparator "
        "may be charged with everything that the comparator gains up to its next budget or the full cache. "
        f"With neighbours = [{suggested}] comparators are also decoded at these budgets, and the subject must "
        "win against both instead"
    ]


def describe_equal_slots(lock: Mapping[str, Any]) -> list[str]:
    """Return a line for each neighbour in bytes that gives a comparator no slot more than a budget: nothing new is
    decoded there. 3 % of fewer than 34 slots are less than one. lock: its content.
    """
    content = lock["protocol"]["content"]
    lines = []
    for model, entry in lock["slot_bytes"].items():
        for name in content["decision"]["against"] if entry else ():
            arm = entry["arms"].get(name, {})
            slots = arm.get("slots", {})
            lines += [
                f"neighbours: {neighbour} has room for {slots[neighbour]} slots of {name} on {model}, as many "
                f"as {budget}, so this neighbour tests nothing; one more slot takes "
                f"{entry['heads'] * arm['bytes']} bytes"
                for neighbour, budget in itertools.product(content.get("neighbours", ()), content["budgets"])
                if neighbour in slots and slots[neighbour] == slots.get(budget)
            ]
    return lines


def _is_near(budget: Budget, neighbour: Budget) -> bool:
    if budget.kind != neighbour.kind:
        return False
    here, there = (Fraction(getattr(each, each.kind)) for each in (budget, neighbour))
    return here < there <= NEAR * here or there == here + 1


def _format_toml(budget: Budget) -> str:
    return str(budget) if budget.share is not None or budget.slots is not None else format_toml(str(budget))
