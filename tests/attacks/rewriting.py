"""A finished study written anew by its author: whatever is edited, everything that cites it is made again, so
that no digest, chain or count is out of place and the judgement is that of the records.
"""

import copy
import gzip
import hashlib
import io
import json
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from analysis.judge import judge
from analysis.judgement.untrusted_files import RecordError
from analysis.selection import select
from protocol.formats.json_text import dumps
from protocol.formats.refusals import SHAPE_ERRORS

PLACES = {"probe": "probe", "confirm": "records"}
Edit = Callable[[dict[str, Any]], Any]  # edits in place, or returns another content


def dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode("utf-8", "surrogatepass")


def digest(value: Any) -> str:
    return hashlib.sha256(dump(value)).hexdigest()


@dataclass
class Lane:
    """A record and the trajectory that it cites, with the side file that both came from."""

    body: dict[str, Any]
    costs: dict[str, Any]
    trajectory: dict[str, Any] | None
    side: str

    @property
    def cell(self) -> dict[str, Any]:
        return self.body["cell"]

    @property
    def arm(self) -> str:
        return self.cell["arm"]

    @property
    def problem(self) -> tuple[str, str]:
        return self.cell["task"], self.body["problem"]


@dataclass
class Rewrite:
    """Everything that a folder says, to be edited and then written."""

    source: Path
    protocol: bytes
    lock: dict[str, Any]
    lines: list[dict[str, Any]]  # of the ledger: event, body, time
    lanes: dict[str, list[Lane]]  # by phase, in the order of their lines
    sources: dict[str, bytes | None] = field(default_factory=dict)  # other members of the bundle; None: gone
    later: dict[str, Edit] = field(default_factory=dict)  # of documents, lines of the ledger (ledger.0), records
    last: list[Callable[[Path], None]] = field(default_factory=list)  # what is done to the finished folder
    keeps_judgement: bool = False  # the verdict is not derived again

    @property
    def confirmed(self) -> list[Lane]:
        return self.lanes["confirm"]

    @property
    def probed(self) -> list[Lane]:
        return self.lanes["probe"]

    @property
    def content(self) -> dict[str, Any]:
        """The protocol, as the lock holds it."""
        return self.lock["protocol"]["content"]

    def of(self, arm: str, phase: str = "confirm") -> list[Lane]:
        return [lane for lane in self.lanes[phase] if lane.arm == arm]

    def pairs(self, one: str, other: str) -> list[tuple[Lane, Lane]]:
        """Lanes of two arms on the same problem."""
        by = {lane.problem: lane for lane in self.of(other)}
        return [(lane, by[lane.problem]) for lane in self.of(one)]

    def entries(self, event: str) -> list[dict[str, Any]]:
        """Bodies of the ledger's lines of an event."""
        return [line["body"] for line in self.lines if line["event"] == event]

    def member(self, name: str) -> bytes:
        """A file of the bundle."""
        with zipfile.ZipFile(self.source / "sources.zip") as archive:
            return self.sources.get(name) or archive.read(name)


def read_study(folder: Path) -> Rewrite:
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_bytes().splitlines()]
    return Rewrite(
        folder,
        (folder / "protocol.toml").read_bytes(),
        json.loads((folder / "lock.json").read_bytes()),
        [{name: line[name] for name in ("event", "body", "time")} for line in lines],
        {
            phase: list(_read_lanes(folder / place)) if (folder / place).exists() else []
            for phase, place in PLACES.items()
        },
    )


def write_study(rewrite: Rewrite, folder: Path) -> Path:
    """The whole of it in a new folder, each document after those that it cites."""
    folder.mkdir(parents=True)
    (folder / "protocol.toml").write_bytes(rewrite.protocol)
    lock = _write_document(folder / "lock.json", _mend_lock(rewrite, folder), rewrite)
    phases = {
        phase: _write_records(folder / PLACES[phase], rewrite.lanes[phase], lock, rewrite)
        for phase in PLACES
        if rewrite.lanes[phase]
    }
    digests, entries = {"lock": lock}, list[dict[str, Any]]()
    for line in rewrite.lines:
        body = dict(line["body"])
        match line["event"]:
            case "register":
                body |= {"lock": lock}
            case "probed":
                body |= {"records": len(rewrite.probed), **phases["probe"]}
            case "selection" | "claim" | "seal" | "verdict" as name:
                content = _derive_document(name, rewrite, folder, digests, _head_of(entries), phases)
                digests[name] = _write_document(folder / f"{name}.json", content, rewrite)
                body |= (
                    {name: digests[name]} if name != "verdict" else {"sha256": _file_digest(folder / "verdict.json")}
                )
        own = {name: line[name] for name in ("event", "time")} | {"body": body}
        own = _apply_edit(own, rewrite.later.get(f"ledger.{len(entries)}"))
        entries.append(_chain_entry(len(entries), own, _head_of(entries)["head"]))
    (folder / "ledger.jsonl").write_bytes(b"".join(dump(entry) + b"\n" for entry in entries))
    for change in rewrite.last:
        change(folder)
    return folder


def forge(folder: Path, change: Callable[[str, dict[str, Any]], dict[str, Any]]) -> None:
    """Let `change` edit everything that a finished study says, and mend what cites it.

    change(name, content) returns the content; the name is that of the document, "ledger.jsonl" for the body of a line,
    "records" or "probe" for the body of a record.
    """
    rewrite = read_study(folder)
    rewrite.keeps_judgement = True
    for name in ("lock", "claim", "seal", "verdict"):
        rewrite.later[name] = partial(change, f"{name}.json")

    def edit_body(name: str, line: dict[str, Any]) -> dict[str, Any]:
        return line | {"body": change(name, line["body"])}

    for number in range(len(rewrite.lines)):
        rewrite.later[f"ledger.{number}"] = partial(edit_body, "ledger.jsonl")
    for phase, place in PLACES.items():
        for number in range(len(rewrite.lanes[phase])):
            rewrite.later[f"{place}.{number}"] = partial(edit_body, place)
    forged = write_study(rewrite, folder.with_name("forged"))
    shutil.copytree(forged, folder, dirs_exist_ok=True)
    shutil.rmtree(forged)


def _read_lanes(place: Path) -> Iterable[Lane]:
    sides: dict[str, list[Any]] = {}
    for line in (place / "shard-0.jsonl").read_bytes().splitlines():
        record = json.loads(line)
        side, _, at = (record["body"]["trajectory"] or "").partition("#")
        if side and side not in sides:
            data = gzip.decompress((place / "trajectories" / f"{side}.json.gz").read_bytes())
            sides[side] = json.loads(data)
        held = json.loads(json.dumps(sides[side][int(at)])) if side else None
        yield Lane(record["body"], record["costs"], held, side)


def _mend_lock(rewrite: Rewrite, folder: Path) -> dict[str, Any]:
    """The lock with the digests of what lies beside it."""
    lock, archive = rewrite.lock, _write_bundle(rewrite, folder)
    lock["protocol"]["sha256"] = hashlib.sha256(rewrite.protocol).hexdigest()
    for name, data in rewrite.sources.items():
        lock["sources"].pop(name, None)
        if data is not None:
            lock["sources"][name] = hashlib.sha256(data).hexdigest()
    lock["bundle"] = hashlib.sha256(archive).hexdigest()
    lock["rule"]["sha256"] = lock["sources"][lock["rule"]["source"]]
    return lock


def _write_bundle(rewrite: Rewrite, folder: Path) -> bytes:
    if rewrite.sources:
        with zipfile.ZipFile(rewrite.source / "sources.zip") as archive:
            held = {name: archive.read(name) for name in archive.namelist()} | rewrite.sources
        members = {name: data for name, data in held.items() if data is not None}
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            for name in sorted(members):
                member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
                member.create_system, member.external_attr = 3, 0o644 << 16
                archive.writestr(member, members[name])
        (folder / "sources.zip").write_bytes(buffer.getvalue())
    else:
        shutil.copyfile(rewrite.source / "sources.zip", folder / "sources.zip")
    return (folder / "sources.zip").read_bytes()


def _write_records(place: Path, lanes: list[Lane], lock: str, rewrite: Rewrite) -> dict[str, Any]:
    """Writes a phase; outcome and trajectories, as a seal and the line of a probe have them."""
    (place / "trajectories").mkdir(parents=True)
    file_digests = _write_side_files(place, lanes)
    chain, written, bodies = "0" * 64, [], []
    for number, lane in enumerate(lanes):
        lane.body["registration"] = lock
        own = _apply_edit({"body": lane.body, "costs": lane.costs}, rewrite.later.get(f"{place.name}.{number}"))
        sha256 = digest(own)
        chain = hashlib.sha256((chain + sha256).encode()).hexdigest()
        written.append(dump(own | {"sha256": sha256, "chain": chain}) + b"\n")
        bodies.append((_sort_key(lane.body), own.get("body")))
    (place / "shard-0.jsonl").write_bytes(b"".join(written))
    ordered = [body for _, body in sorted(bodies, key=lambda one: one[0])]
    outcome = hashlib.sha256(b"".join(dump(body) + b"\n" for body in ordered)).hexdigest()
    return {"outcome": outcome, "trajectories": digest(file_digests)}


def _sort_key(body: dict[str, Any]) -> tuple[Any, ...]:
    cell = body["cell"]
    return cell["model"], cell["task"], cell["budget"], cell["arm"], cell["seed"], body["problem"]


def _write_side_files(place: Path, lanes: list[Lane]) -> dict[str, str]:
    """Writes those of each batch, equal trajectories once, and cites them; digests by file name."""
    of: dict[str, list[Any]] = {}
    for lane in lanes:
        if lane.trajectory is not None and lane.trajectory not in of.setdefault(lane.side, []):
            of[lane.side].append(lane.trajectory)
    names, kept = {}, {}
    for side, contents in of.items():
        data = dump(contents)
        names[side] = hashlib.sha256(data).hexdigest()
        path = place / "trajectories" / f"{names[side]}.json.gz"
        path.write_bytes(gzip.compress(data, mtime=0))
        kept[path.name] = _file_digest(path)
    for lane in lanes:
        if lane.trajectory is not None:
            lane.body["trajectory"] = f"{names[lane.side]}#{of[lane.side].index(lane.trajectory)}"
    return kept


def _derive_document(
    name: str,
    rewrite: Rewrite,
    folder: Path,
    digests: dict[str, str],
    head: dict[str, Any],
    phases: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """A document as it follows from what is there."""
    was = json.loads((rewrite.source / f"{name}.json").read_bytes())
    match name:
        case "selection":
            try:
                chosen = json.loads(dumps(select(folder)))
            except RecordError:
                chosen = was["selected"]
            probe = phases["probe"]["outcome"]
            return was | {"lock": digests["lock"], "probe": probe, "selected": chosen, "ledger": head}
        case "claim":
            return was | digests | {"ledger": head}
        case "seal":
            return was | digests | {"ledger": head} | _count_for_seal(rewrite, folder, phases["confirm"])
    return {
        "judged": was["judged"] if rewrite.keeps_judgement else _judge(folder, was["judged"]),
        "lock": digests["lock"],
        "seal": digests["seal"],
        "ledger": head,
    }


def _judge(folder: Path, before: dict[str, Any]) -> dict[str, Any]:
    """What today's analysis says; where it refuses such records, what it had said."""
    try:
        judged: dict[str, Any] = json.loads(dumps(judge(folder)))
    except (RecordError, *SHAPE_ERRORS):
        return before
    return judged


def _count_for_seal(rewrite: Rewrite, folder: Path, outcome: dict[str, Any]) -> dict[str, Any]:
    states = Counter(lane.body["state"] for lane in rewrite.confirmed)
    shard = folder / "records" / "shard-0.jsonl"
    sides = len({lane.side for lane in rewrite.confirmed if lane.trajectory is not None})
    registered = sum(len(rewrite.lock["items"][cell[1]]["confirm"]) for cell in rewrite.lock["grid"])
    return {
        "expected": registered,
        "found": {state: states[state] for state in ("ok", "failed", "excluded")},
        "shards": {
            shard.name: {
                "sha256": _file_digest(shard),
                "bytes": shard.stat().st_size,
                "records": len(rewrite.confirmed),
            }
        },
        "trajectories": {"count": sides, "digest": outcome["trajectories"]},
        "outcome": outcome["outcome"],
    }


def _write_document(path: Path, content: dict[str, Any], rewrite: Rewrite) -> str:
    data = dump(_apply_edit(content, rewrite.later.get(path.stem)))
    path.write_bytes(data + b"\n")
    return hashlib.sha256(data).hexdigest()


def _apply_edit(content: dict[str, Any], edit: Edit | None) -> dict[str, Any]:
    """A copy, edited; what follows from the content is left as it was."""
    if edit is None:
        return content
    content = copy.deepcopy(content)
    replaced = edit(content)
    return replaced if isinstance(replaced, dict) else content


def _chain_entry(index: int, line: dict[str, Any], previous: str) -> dict[str, Any]:
    own = {"index": index, **line, "previous": previous}
    return own | {"sha256": digest(own)}


def _head_of(entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {"count": len(entries), "head": entries[-1]["sha256"] if entries else "0" * 64}


def _file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
