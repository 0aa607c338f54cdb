"""Studies that another harness runs, and what it might have written: lm-eval samples and a log of inspect_ai, by hand
in their documented formats.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import studies

POOL = 320
PROTOCOL = """
title = "A compressed cache against none"
question = "Does compression cost less than 20 points?"
models = ["Qwen/Qwen3-0.6B"]
seeds = [0]

[runner]
kind = "outside"
metric = "exact_match"
filter = "strict"

[[tasks]]
name = "sums"
called = "sums_test"
file = "pool.jsonl"
draw = 210
chance = 0

[arms]
none = { command = "lm_eval --tasks sums_test" }
h2o = { command = "lm_eval --tasks sums_test --model mine" }

[decision]
rule = "non_inferior"
subject = "h2o"
against = ["none"]
alpha = 0.05
margin = 0.2
method = "restricted-likelihood"
missing = "inconclusive"

[randomness]
source = "local"
"""
DATE = "2026-11-28T02-30-00.123456"


def write(folder: Path, text: str = PROTOCOL, fields: Sequence[str] = ("doc_hash",)) -> Path:
    """Write the protocol and its pool: ids from 0 on, with these fields."""
    folder.mkdir(parents=True)
    rows = [{"id": str(i)} | {name: f"{name} {i}" for name in fields} for i in range(POOL)]
    (folder / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "protocol.toml").write_text(text)
    return folder


def lock(folder: Path) -> Path:
    studies.ran(0, "register", folder)
    return folder


def claim(folder: Path) -> list[int]:
    """Claim a study and return the ids that the claim released."""
    studies.ran(6, "confirm", folder)
    released: list[int] = json.loads((folder / "outside/released.json").read_text())["sums_test"]
    return released


def read_outputs(folder: Path, outputs: Path) -> tuple[int, str]:
    """Return the exit status of confirm with these outputs, and what it printed on both streams."""
    done = studies.here("confirm", folder, "--outputs", outputs)
    return done.returncode, done.stdout + done.stderr


def run_audit(folder: Path) -> tuple[int, dict[str, tuple[str, str]]]:
    """Return the exit status of an audit and the finding on each item."""
    done = studies.here("audit", folder, "--json")
    found = json.loads(done.stdout)["findings"]
    return done.returncode, {finding["item"]: (finding["status"], finding["detail"]) for finding in found}


def samples(scores: Mapping[int, float | None], **changed: Any) -> list[dict[str, Any]]:
    """Return the lines of samples_*.jsonl: every problem under two filters, of which the other one is always wrong."""
    return [
        {
            "doc_id": item,
            "doc": {"sum": item},
            "target": str(item),
            "arguments": [[f"prompt {item}", {}]],
            "resps": [["x"]],
            "filtered_resps": ["x"],
            "filter": name,
            "metrics": ["exact_match"],
            "doc_hash": f"doc_hash {item}",
            "prompt_hash": f"p{item}",
            "target_hash": f"t{item}",
            "exact_match": score if name == "strict" else 0.0,
        }
        | changed
        for item, score in scores.items()
        for name in ("strict", "loose")
    ]


def write_lm_eval(
    outputs: Path,
    arm: str,
    lines: Sequence[Mapping[str, Any]],
    *,
    model: str = "Qwen/Qwen3-0.6B",
    made: datetime | None = None,
) -> Path:
    """Write what lm-eval leaves in its --output_path: a folder of the model with samples and results."""
    folder = outputs / arm / model.replace("/", "__")
    folder.mkdir(parents=True)
    path = folder / f"samples_sums_test_{DATE}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    date = (made or datetime.now(UTC)).timestamp()
    (folder / f"results_{DATE}.json").write_text(json.dumps({"results": {}, "model_name": model, "date": date}))
    return path


def write_csv(path: Path, scores: Mapping[int, float | None]) -> Path:
    """Write a table with the registered metric; an empty cell where there is no score."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = {item: "" if score is None else f"{score:g}" for item, score in scores.items()}
    path.write_text(
        "id,exact_match,doc_hash\n" + "".join(f"{item},{cell},doc_hash {item}\n" for item, cell in cells.items())
    )
    return path


def write_inspect(
    path: Path,
    scores: Mapping[int, str],
    *,
    scorer: str = "exact_match",
    model: str = "hf/Qwen/Qwen3-0.6B",
    created: datetime | None = None,
) -> Path:
    """Write a log of inspect_ai in JSON: one sample a problem, in one epoch."""
    log = {
        "version": 2,
        "status": "success",
        "eval": {"task": "sums_test", "model": model, "created": (created or datetime.now(UTC)).isoformat()},
        "samples": [
            {"id": item, "epoch": 1, "input": f"sum {item}", "target": "1", "scores": {scorer: {"value": value}}}
            for item, value in scores.items()
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(log))
    return path
