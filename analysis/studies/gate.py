"""The registered gate, judged on the held-out lanes of the full cache in every model and task."""

import itertools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from analysis.output.printed import decimal
from analysis.rules import full_cache
from analysis.rules.rule import FULL
from analysis.studies.study_files import EXCLUDED, RecordError, Study

__all__ = ["closed", "passed"]


def passed(study: Study) -> dict[str, Any] | None:
    """Return the gate's part of a judgement: `passed`, and the numbers of every model and task; None without
    a gate.

    A lane that was never run, failed or has no grade is not correct, whatever `decision.missing` says. The
    gate fails without any lane. Raises RecordError for a grid without exactly one arm that never evicts.
    """
    content = study.lock["protocol"]["content"]
    if (gate := content.get("gate")) is None:
        return None
    arms = {cell[3] for cell in study.lock["grid"] if cell[2] == FULL}
    if len(arms) != 1:
        raise RecordError(f"lock: grid: has {len(arms)} arms that never evict; a gate needs one")
    (full,) = arms
    every = study.by_arm()
    places = []
    for model, task in itertools.product(content["models"], (task["name"] for task in content["tasks"])):
        lanes = every.get((model, task, FULL, full))
        if lanes is None:
            raise RecordError(f"lock: grid: {model} {task} lacks {full}, which the gate needs")
        places.append(_place(model, task, lanes[lanes["state"] != EXCLUDED], gate))
    return {"arm": full, "passed": all(place["passed"] for place in places), "places": places}


def closed(judged: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the (model, task) pairs of a judgement in which the full cache fails its gate."""
    places = (judged.get("gate") or {}).get("places", ())
    return {(place["model"], place["task"]) for place in places if not place["passed"]}


def _place(model: str, task: str, lanes: Any, gate: Mapping[str, Any]) -> dict[str, Any]:
    rows = zip(*(lanes[name] for name in ("state", "grade", "stop", "correct")), strict=True)
    seen, asked = full_cache.answers(rows), full_cache.needed(gate, model, task)
    why = full_cache.shortfalls(seen, asked)
    published = {} if asked.published is None else {"published": asked.published, "margin": asked.margin}
    shares = {name: decimal(Fraction(getattr(seen, name), seen.lanes or 1)) for name in ("truncated", "cut")}
    return {
        "model": model,
        "task": task,
        "n": int(lanes["problem"].nunique()),
        "lanes": seen.lanes,
        "correct": seen.correct if isinstance(seen.correct, int) else decimal(seen.correct),
        "accuracy": decimal(seen.accuracy),
        **shares,
        "no_answer": decimal(Fraction(seen.no_answer, seen.lanes or 1)),
        "ungraded": seen.ungraded,
        "needed": decimal(asked.accuracy),
        "at_most": decimal(asked.truncated),
        **{name: decimal(value) for name, value in published.items()},
        "passed": not why,
        "why": why,
    }
