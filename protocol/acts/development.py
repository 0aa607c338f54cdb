"""How the arms answered development problems, and where the registered gate would fail on them."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from analysis.rules import full_cache
from protocol.plan.design import AGAIN, Design
from protocol.plan.grid import FULL

__all__ = ["counted", "shares", "warnings"]


def counted(bodies: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Count the lanes that ran, and how many of them were correct, truncated at the token limit, without an
    answer, or failed; and the excluded ones, which did not run. With partial scores `correct` is the sum of
    the scores, as text.
    """
    listed = list(bodies)
    seen = _answers(listed)
    return {
        "lanes": seen.lanes,
        "correct": seen.correct if isinstance(seen.correct, int) else f"{float(seen.correct):.6f}",
        "truncated": seen.truncated,
        "no_answer": seen.no_answer,
        "failed": sum(body["state"] == "failed" for body in listed),
        "excluded": len(listed) - seen.lanes,
    }


def shares(row: Mapping[str, Any]) -> str:
    """Return the counts of `count_answers` as shares of the lanes that ran."""
    lanes = row["lanes"]
    if not lanes:
        return f"{row['excluded']} excluded"
    correct = row["correct"]
    told = f"{correct:>4}/{lanes:<4} " if isinstance(correct, int) else f"{lanes:>4} lanes, mean score"
    told += f"{float(correct) / lanes:>6.1%}"
    for name, words in (("truncated", "truncated"), ("no_answer", "no answer")):
        told += f"  {row[name] / lanes:>6.1%} {words}"
    return told + "".join(f"  {row[name]} {name}" for name in ("failed", "excluded") if row[name])


def warnings(protocol: Design, bodies: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each model and task whose full cache would fail its gate; empty without a gate."""
    gate = protocol.content().get("gate")
    if gate is None:
        return []
    lanes = [body for body in bodies if body["cell"]["budget"] == FULL]
    whole = [body for body in lanes if not body["cell"]["arm"].endswith(AGAIN)]
    if not whole:
        return ["gate: the full cache does not run here; kv-prereg rehearse shows what it reaches"]
    found = []
    for model, task in itertools.product(protocol.models, (task.name for task in protocol.tasks)):
        here = [body for body in whole if (body["cell"]["model"], body["cell"]["task"]) == (model, task)]
        found += [
            f"gate would FAIL on {model}, {task}: {why}"
            for why in full_cache.shortfalls(_answers(here), full_cache.needed(gate, model, task))
        ]
    return found


def _answers(bodies: Iterable[Mapping[str, Any]]) -> full_cache.Answers:
    return full_cache.answers(
        (body["state"], body["grade"], body["stop"], body.get("score")) for body in bodies
    )
