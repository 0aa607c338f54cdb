"""The registered gate, judged on the held-out lanes of the full cache in every model and task."""

import itertools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from analysis.judgement.study_table import EXCLUDED, Study
from analysis.judgement.untrusted_files import RecordError
from analysis.rules import full_cache_gate
from protocol.formats.json_text import format_decimal
from protocol.formats.vocabulary import FULL


def judge_gate(study: Study) -> dict[str, Any] | None:
    """Return the gate's part of a judgement: `passed`, and the numbers of every model and task; None without a gate.

    A lane that was never run, failed or has no grade is not correct, whatever `decision.missing` says. The gate fails
    without any lane. Raises RecordError for a grid without exactly one arm that never evicts.
    """
    content = study.lock["protocol"]["content"]
    if (gate := content.get("gate")) is None:
        return None
    arms = {cell[3] for cell in study.lock["grid"] if cell[2] == FULL}
    if len(arms) != 1:
        raise RecordError(f"lock: grid: has {len(arms)} arms that never evict; a gate needs one")
    (full,) = arms
    lanes_by_arm, worth = study.by_arm(), "right" if "outcome" in content else "correct"
    places = []
    for model, task in itertools.product(content["models"], (task["name"] for task in content["tasks"])):
        lanes = lanes_by_arm.get((model, task, FULL, full))
        if lanes is None:
            raise RecordError(f"lock: grid: {model} {task} lacks {full}, which the gate needs")
        places.append(_gate_entry(model, task, lanes[lanes["state"] != EXCLUDED], gate, worth))
    return {"arm": full, "passed": all(entry["passed"] for entry in places), "places": places}


def failed_gates(judged: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the (model, task) pairs of a judgement in which the full cache fails its gate."""
    places = (judged.get("gate") or {}).get("places", ())
    return {(entry["model"], entry["task"]) for entry in places if not entry["passed"]}


def _gate_entry(model: str, task: str, lanes: Any, gate: Mapping[str, Any], worth: str) -> dict[str, Any]:
    """worth: the column of what an answer is worth to the task."""
    rows = zip(*(lanes[name] for name in ("state", "grade", "stop", worth)), strict=True)
    counts, requirement = full_cache_gate.count_answers(rows), full_cache_gate.gate_requirement(gate, model, task)
    why = full_cache_gate.shortfalls(counts, requirement)
    published = (
        {} if requirement.published is None else {"published": requirement.published, "margin": requirement.margin}
    )
    shares = {name: format_decimal(Fraction(getattr(counts, name), counts.lanes or 1)) for name in ("truncated", "cut")}
    return {
        "model": model,
        "task": task,
        "n": int(lanes["problem"].nunique()),
        "lanes": counts.lanes,
        "correct": counts.correct if isinstance(counts.correct, int) else format_decimal(counts.correct),
        "accuracy": format_decimal(counts.accuracy),
        **shares,
        "no_answer": format_decimal(Fraction(counts.no_answer, counts.lanes or 1)),
        "ungraded": counts.ungraded,
        "needed": format_decimal(requirement.accuracy),
        "at_most": format_decimal(requirement.truncated),
        **{name: format_decimal(value) for name, value in published.items()},
        "passed": not why,
        "why": why,
    }
