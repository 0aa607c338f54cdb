"""How the arms answered development problems, and where the registered gate would fail on them."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from analysis.rules import full_cache_gate
from protocol.plan.design import RERUN_SUFFIX, Design
from protocol.plan.grid import FULL

__all__ = ["count_answers", "format_shares", "gate_warnings"]


def count_answers(bodies: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Count the lanes that ran, and how many of them were correct, truncated at the token limit, without an
    answer, or failed; and the excluded ones, which did not run. With partial scores `correct` is the sum of
    the scores, as text.
    """
    bodies_list = list(bodies)
    answers = _summarize_answers(bodies_list)
    return {
        "lanes": answers.lanes,
        "correct": answers.correct if isinstance(answers.correct, int) else f"{float(answers.correct):.6f}",
        "truncated": answers.truncated,
        "no_answer": answers.no_answer,
        "failed": sum(body["state"] == "failed" for body in bodies_list),
        "excluded": len(bodies_list) - answers.lanes,
    }


def format_shares(row: Mapping[str, Any]) -> str:
    """Return the counts of `count_answers` as shares of the lanes that ran."""
    lanes = row["lanes"]
    if not lanes:
        return f"{row['excluded']} excluded"
    correct = row["correct"]
    text = f"{correct:>4}/{lanes:<4} " if isinstance(correct, int) else f"{lanes:>4} lanes, mean score"
    text += f"{float(correct) / lanes:>6.1%}"
    for name, label in (("truncated", "truncated"), ("no_answer", "no answer")):
        text += f"  {row[name] / lanes:>6.1%} {label}"
    return text + "".join(f"  {row[name]} {name}" for name in ("failed", "excluded") if row[name])


def gate_warnings(protocol: Design, bodies: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each model and task whose full cache would fail its gate; empty without a gate."""
    gate = protocol.content().get("gate")
    if gate is None:
        return []
    lanes = [body for body in bodies if body["cell"]["budget"] == FULL]
    full_lanes = [body for body in lanes if not body["cell"]["arm"].endswith(RERUN_SUFFIX)]
    if not full_lanes:
        return ["gate: the full cache does not run here; kv-prereg rehearse shows what it reaches"]
    messages = []
    for model, task in itertools.product(protocol.models, (task.name for task in protocol.tasks)):
        task_lanes = [body for body in full_lanes if (body["cell"]["model"], body["cell"]["task"]) == (model, task)]
        messages += [
            f"gate would FAIL on {model}, {task}: {shortfall}"
            for shortfall in full_cache_gate.shortfalls(
                _summarize_answers(task_lanes), full_cache_gate.gate_requirement(gate, model, task)
            )
        ]
    return messages


def _summarize_answers(bodies: Iterable[Mapping[str, Any]]) -> full_cache_gate.AnswerCounts:
    return full_cache_gate.count_answers(
        (body["state"], body["grade"], body["stop"], body.get("score")) for body in bodies
    )
