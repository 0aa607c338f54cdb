"""Judged registrations, as small as what is read of them."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MODELS = ("one", "two")


def contrast(subject: str, against: str, model: str = "one", **changed: Any) -> dict[str, Any]:
    """In which neither is better."""
    return {
        "model": model,
        "task": "chain",
        "budget": "64",
        "subject": subject,
        "against": against,
        "n": 250,
        "seeds": 1,
        "difference": "0.000000",
        "better": False,
        "worse": False,
        "matched": True,
    } | changed


def write(
    folder: Path,
    contrasts: list[dict[str, Any]],
    verdict: str = "REFUTED",
    arms: Mapping[str, Any] | None = None,
    events: tuple[str, ...] = ("register", "verdict"),
    lock: Mapping[str, Any] | None = None,
    memory: str | None = None,
    **judged: Any,
) -> Path:
    """A registration with the subject of its first contrast. arms: by name, where they are not policies.
    lock: further fields of it.
    """
    folder.mkdir(parents=True)
    named = dict.fromkeys(name for one in contrasts for name in (one["subject"], one["against"]))
    sweep = judged.pop("sweep", None)
    content = {
        "title": f"About {folder.name}",
        "arms": arms if arms is not None else {name: {"policy": name} for name in named},
        "decision": {"subject": next(iter(named))} | ({"memory": memory} if memory else {}),
    } | ({"sweep": sweep} if sweep else {})
    documents = {"lock": {"protocol": {"content": content}} | dict(lock or {})}
    if "verdict" in events:
        documents["verdict"] = {
            "judged": {
                "verdict": verdict,
                "label": "confirmatory-grade",
                "rule": "superior",
                "contrasts": contrasts,
                "arms": [],
            }
            | judged
        }
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document) + "\n")
    lines = [{"event": event, "body": {}, "time": f"2026-11-2{day}T00:00:00+00:00"} for day, event in enumerate(events)]
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if "verdict" in events:
        entered(folder)
    return folder


def entered(folder: Path) -> None:
    """Have the ledger name the verdict as it is now."""
    digest = hashlib.sha256((folder / "verdict.json").read_bytes()).hexdigest()
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    lines = [line | {"body": {"sha256": digest}} if line["event"] == "verdict" else line for line in lines]
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
