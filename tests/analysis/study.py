"""A small study on disk, written from answers that a test states by hand."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from analysis.judgement import statements

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
    **lock: Any,
) -> Path:
    """Lock and records. record: a lane to what it changes in an ordinary wrong answer; None: it never ran.
    lock: more of its fields.
    """
    ids = [f"p{i:03d}" for i in range(problems)]
    grid = cells(content)
    written = canonical(
        {
            "kind": "kv-prereg lock",
            "version": 1,
            "name": folder.name,
            "parent": None,
            "protocol": {"sha256": "0", "content": content},
            "grid": grid,
            "items": items(content, ids),
            "data": {},
        }
        | lock
    )
    (folder / "records").mkdir(parents=True)
    (folder / "lock.json").write_bytes(written + b"\n")
    registration = hashlib.sha256(written).hexdigest()
    lanes = [(cell, problem) for cell in grid for problem in ids]
    changes = [(cell, problem, record((*cell, problem))) for cell, problem in lanes]
    append(folder, *(ordinary(registration, *lane) | change for *lane, change in changes if change is not None))
    return folder


def proves(judged: Mapping[str, Any]) -> list[str]:
    """What a screened study would prove with 200 problems of the same results."""
    assert (judged["verdict"], judged["proves"]) == ("SCREENED", [])
    return statements.proves({**judged, "verdict": judged["rule_says"]})


def cells(content: Mapping[str, Any]) -> list[list[Any]]:
    return [
        [model, task["name"], budget, arm, seed]
        for model in content["models"]
        for task in content["tasks"]
        for arm in content["arms"]
        for budget in (["full"] if arm == "full" else [*content["budgets"], *neighbours(content, arm)])
        for seed in content["seeds"]
    ]


def neighbours(content: Mapping[str, Any], arm: str) -> list[str]:
    return content.get("neighbours", []) if arm in content["decision"]["against"] else []


def items(content: Mapping[str, Any], ids: list[str]) -> dict[str, Any]:
    return {task["name"]: {"dev": ["d"], "confirm": ids} for task in content["tasks"]}


def append(folder: Path, *bodies: Mapping[str, Any]) -> None:
    """Records with these bodies, appended to the shard and chained to its last line."""
    shard = folder / "records" / "shard-0.jsonl"
    lines = shard.read_bytes().splitlines() if shard.exists() else []
    chain = json.loads(lines[-1])["chain"] if lines else "0" * 64
    costs = canonical({"attempt": 1, "prefill_seconds": "1.2", "decode_seconds": "0.4"})
    for body in map(canonical, bodies):
        digest = hashlib.sha256(b'{"body":%b,"costs":%b}' % (body, costs)).hexdigest()
        chain = hashlib.sha256((chain + digest).encode()).hexdigest()
        lines.append(
            b'{"body":%b,"chain":"%b","costs":%b,"sha256":"%b"}' % (body, chain.encode(), costs, digest.encode())
        )
    shard.write_bytes(b"".join(line + b"\n" for line in lines))


def bodies(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "records" / "shard-0.jsonl").read_bytes().splitlines()
    return [json.loads(line)["body"] for line in lines]


def ordinary(registration: str, cell: list[Any], problem: str) -> dict[str, Any]:
    return {
        "registration": registration,
        "phase": "confirm",
        "cell": dict(zip(("model", "task", "budget", "arm", "seed"), cell, strict=True)),
        "problem": problem,
        "state": "ok",
        "reason": "",
        "prompt": "0" * 64,
        "prompt_tokens": 512,
        "slots": None if cell[3] == "full" else 256,
        "text": "1",
        "tokens": 7,
        "stop": "eos",
        "answer": "1",
        "grade": "wrong",
        "grade_reason": "",
        "cache": cache(512) | {"events": []} if cell[3] == "full" else cache(256),
        "trajectory": "0" * 64,
    }


def cache(slots: float) -> dict[str, Any]:
    return {
        "mean": f"{slots:.6f}",
        "peak": f"{slots + 0.5:.6f}",
        "prefill_end": f"{slots:.6f}",
        "mean_bytes": 1000,
        "peak_bytes": 1100,
        "state_bytes": 0,
        "events": [[0, 1024, 512]],
    }


FAILED = {
    "state": "failed",
    "reason": "BudgetError: budget 1 is below the protected set",
    "text": "",
    "tokens": 0,
    "stop": None,
    "answer": None,
    "grade": None,
    "cache": None,
    "trajectory": None,
}
