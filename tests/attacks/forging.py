"""A folder written anew by its author, who keeps every digest: documents, records and ledger fit each other,
whatever they say.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Change = Callable[[str, Any], Any]  # of the content of a document, a body or a line's body, by the file's name


def canonical(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode("utf-8", "surrogatepass")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def forge(folder: Path, change: Change) -> None:
    """Let `change` have its way with everything that a finished study says, and mend what cites it.

    change(name, content) returns the content; the name is that of the document, "ledger.jsonl" for the body
    of a line, "records" or "probe" for the body of a record.
    """
    path = {name: folder / f"{name}.json" for name in ("lock", "claim", "seal", "verdict")}
    was = {name: json.loads(each.read_bytes()) for name, each in path.items()}
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_bytes().splitlines()]
    entries: list[dict[str, Any]] = []

    def document(name: str, content: Any, **cites: Any) -> str:
        content = change(f"{name}.json", mended(content, cites))
        data = canonical(content)
        path[name].write_bytes(data + b"\n")
        return sha256(data + b"\n") if name == "verdict" else sha256(data)

    def head() -> dict[str, Any]:
        return {"count": len(entries), "head": entries[-1]["sha256"] if entries else "0" * 64}

    lock = document("lock", was["lock"])
    outcomes = {phase: records(folder / phase, lock, change) for phase in ("probe", "records")}
    digests = {"lock": lock}
    for line in lines:
        match event := line["event"]:
            case "register":
                cites = {"lock": lock}
            case "claim":
                digests["claim"] = document("claim", was["claim"], lock=lock, ledger=head())
                cites = {"claim": digests["claim"]}
            case "seal":
                shards = {each.name: shard(each) for each in sorted((folder / "records").glob("shard-*"))}
                sealed = {"shards": shards, "outcome": outcomes["records"], "ledger": head()}
                digests["seal"] = document("seal", was["seal"], **digests, **sealed)
                cites = {"seal": digests["seal"]}
            case "verdict":
                given = {"lock": lock, "seal": digests["seal"], "ledger": head()}
                cites = {"sha256": document("verdict", was["verdict"], **given)}
            case "probed":
                cites = {"outcome": outcomes["probe"]}
            case _:
                cites = {}
        body = change("ledger.jsonl", mended(line["body"], cites))
        entry = {"index": len(entries), "event": event, "body": body, "time": line["time"]}
        entry["previous"] = entries[-1]["sha256"] if entries else "0" * 64
        entries.append(entry | {"sha256": sha256(canonical(entry))})
    (folder / "ledger.jsonl").write_bytes(b"".join(canonical(entry) + b"\n" for entry in entries))


def mended(content: Any, cites: dict[str, Any]) -> Any:
    return content | cites if isinstance(content, dict) else content


def records(place: Path, lock: str, change: Change) -> str:
    """Rewrite the shards of a phase; returns the digest of the outcome."""
    bodies = []
    for path in sorted(place.glob("shard-*.jsonl")):
        written, chain = [], "0" * 64
        for line in path.read_bytes().splitlines():
            record = json.loads(line)
            body = change(place.name, record["body"] | {"registration": lock})
            own = {"body": body, "costs": record["costs"]}
            digest = sha256(canonical(own))
            chain = sha256((chain + digest).encode())
            written.append(canonical(own | {"sha256": digest, "chain": chain}) + b"\n")
            bodies.append(body)
        path.write_bytes(b"".join(written))
    with contextlib.suppress(KeyError, TypeError):  # an outcome of what is no record is nobody's to mend
        bodies.sort(key=lambda body: (*(body["cell"][each] for each in CELL), body["problem"]))
    return sha256(b"".join(canonical(body) + b"\n" for body in bodies))


CELL = ("model", "task", "budget", "arm", "seed")


def shard(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return {"sha256": sha256(data), "bytes": len(data), "records": data.count(b"\n")}
