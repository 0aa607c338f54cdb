"""A small study on disk, written from answers that a test states by hand."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Lane = tuple[str, str, str, str, int, str]  # model, task, budget, arm, seed, problem


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def content(**decision: Any) -> dict[str, Any]:
    """One model, one task, one budget; crystal against snapkv and h2o, two seeds."""
    return {
        "title": "A small study",
        "question": "Is crystal better?",
        "models": ["tiny"],
        "seeds": [0, 1],
        "budgets": ["0.5"],
        "tasks": [{"name": "needle", "query": "inside", "max_new_tokens": 12}],
        "arms": {name: {"policy": name} for name in ("full", "crystal", "snapkv", "h2o")},
        "generation": {"temperature": "0", "dtype": "float32", "device": "cpu", "threads": 1},
        "decision": {
            "rule": "superior",
            "subject": "crystal",
            "against": ["snapkv", "h2o"],
            "at_least": 1,
            "alpha": "0.05",
            "method": "sign-flip",
            "draws": 10_000,
            "seed": 7,
            "cache_tolerance": "0.02",
            "missing": "inconclusive",
        }
        | decision,
    }


def write(
    folder: Path,
    content: Mapping[str, Any],
    problems: int,
    record: Callable[[Lane], Mapping[str, Any] | None],
) -> Path:
    """Write lock and records. record: a lane to what it changes in an ordinary wrong answer; None: not run."""
    ids = [f"p{i:03d}" for i in range(problems)]
    grid = [
        [model, task["name"], budget, arm, seed]
        for model in content["models"]
        for task in content["tasks"]
        for arm in content["arms"]
        for budget in (["full"] if arm == "full" else content["budgets"])
        for seed in content["seeds"]
    ]
    lock = canonical(
        {
            "kind": "kv-prereg lock",
            "version": 1,
            "name": folder.name,
            "parent": None,
            "protocol": {"sha256": "0", "content": content},
            "grid": grid,
            "items": {task["name"]: {"dev": ["d"], "confirm": ids} for task in content["tasks"]},
            "data": {},
        }
    )
    (folder / "records").mkdir(parents=True)
    (folder / "lock.json").write_bytes(lock + b"\n")
    lines = []
    for cell in grid:
        for problem in ids:
            changed = record((*cell, problem))
            if changed is not None:
                body = ordinary(hashlib.sha256(lock).hexdigest(), cell, problem) | changed
                lines.append(canonical({"body": body, "costs": {"attempt": 1}}))
    (folder / "records" / "0.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    return folder


def ordinary(registration: str, cell: list[Any], problem: str) -> dict[str, Any]:
    return {
        "registration": registration,
        "phase": "confirm",
        "cell": dict(zip(("model", "task", "budget", "arm", "seed"), cell, strict=True)),
        "problem": problem,
        "state": "ok",
        "reason": "",
        "text": "1",
        "tokens": 7,
        "stop": "eos",
        "grade": "wrong",
        "cache": cache("512" if cell[3] == "full" else "256"),
    }


def cache(slots: str) -> dict[str, Any]:
    return {"mean": f"{slots}.000000", "peak": f"{slots}.500000", "mean_bytes": 1000, "peak_bytes": 1100}


FAILED = {"state": "failed", "reason": "BudgetError", "grade": None, "cache": None, "text": "", "stop": None}
