"""Traces with occlusion labels: the expected traces, their file, the choice, the verdict, the ledger lines.

A line of anatomy/traces.jsonl is the canonical {body, sha256, chain}, chained like records; its values by
token are in anatomy/values/<SHA-256>. All traces of the choosing half come first; then anatomy/chosen.json is
written, once, which each testing trace cites. anatomy/verdict.json is last. docs/records.md has the fields.
"""

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from protocol.evidence.bytes import canonical, documents, files, journal, line_endings
from protocol.evidence.bytes.documents import Document
from protocol.evidence.bytes.fields import Table
from protocol.evidence.refusals import BadInput, Tampered
from protocol.evidence.run import anatomy_fields, ledger
from protocol.evidence.run.anatomy_fields import HALVES
from protocol.evidence.run.registration import ANATOMY, CLAIM, Registration

__all__ = [
    "CHOSEN",
    "EVENTS",
    "TRACES",
    "VALUES",
    "VERDICT",
    "Due",
    "Traces",
    "Writer",
    "begin",
    "chosen",
    "due",
    "end",
    "half_of",
    "judged",
    "orphans",
    "read",
    "registered",
    "values",
    "verify",
    "write_chosen",
    "write_verdict",
]

TRACES, VALUES = "traces.jsonl", "values"
CHOSEN, VERDICT = "chosen.json", "verdict.json"
CHOOSE, TEST = HALVES
MOST = 1 << 30  # for one trace
EVENTS = ("anatomy", "occluded", "anatomy-chosen", "anatomy-judged")
CITED_CLAIM = CLAIM.removesuffix(".json")


class Due(NamedTuple):
    """One expected line of a complete anatomy."""

    half: str
    model: str
    task: str
    problem: str


class Traces(NamedTuple):
    """The traces of a study. bodies: in the order of the lines. head: the chain of the last line."""

    bodies: list[dict[str, Any]]
    head: str
    torn: int

    def at(self, lines: int) -> dict[str, Any]:
        """Return count and head of the first `count` lines."""
        return {"count": lines, "head": _head(self.bodies[:lines])}


def registered(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return [anatomy] of a lock's content; None if it is not registered."""
    found: Mapping[str, Any] | None = content["protocol"]["content"].get("anatomy")
    return found


def half_of(problem: str, item: Mapping[str, Any]) -> str:
    """Return the half of a problem, from the MD5 of its cluster's name or, without clusters, of its id.

    The half is independent of the split, which uses modulo 5; a cluster is never divided. item: the task in
    the lock.
    """
    name = item.get("clusters", {}).get(problem, problem)
    return HALVES[int(hashlib.md5(name.encode(), usedforsecurity=False).hexdigest(), 16) % len(HALVES)]


def due(content: Mapping[str, Any]) -> list[Due]:
    """Return every line of a complete anatomy, in order, from a lock's content that has [anatomy].

    These are the first development problems of each task; the choosing half of all models and tasks precedes
    the testing half.
    """
    protocol, most = content["protocol"]["content"], content["protocol"]["content"]["anatomy"].get("traces")
    return [
        Due(half, model, task["name"], problem)
        for half in HALVES
        for model in protocol["models"]
        for task in protocol["tasks"]
        for problem in content["items"][task["name"]]["dev"][:most]
        if half_of(problem, content["items"][task["name"]]) == half
    ]


def read(study: Registration) -> Traces:
    """Read every complete line. Raises Tampered for one that does not verify."""
    path = study.folder / ANATOMY / TRACES
    return _read(path) if files.there(path) else Traces([], journal.START, 0)


def values(study: Registration, body: Mapping[str, Any]) -> bytes:
    """Return the values that a line cites: little-endian float32, [signals and kept, tokens].

    Raises Tampered for a file that is missing, is not the cited one or has another size.
    """
    cited = body["values"]
    path = study.folder / ANATOMY / VALUES / cited["sha256"]
    try:
        packed = files.read(path, MOST)
    except FileNotFoundError:
        raise Tampered(f"{VALUES}/{path.name}: missing, and a line cites it") from None
    if hashlib.sha256(packed).hexdigest() != path.name:
        raise Tampered(f"{VALUES}/{path.name}: is not the file that its name digests")
    size = 4 * (len(cited["signals"]) + cited["kept"]) * body["tokens"]
    try:
        inflating = zlib.decompressobj()
        data = inflating.decompress(packed, min(size, MOST) + 1)
    except zlib.error:
        raise Tampered(f"{VALUES}/{path.name}: does not unpack") from None
    if len(data) != size or not inflating.eof or inflating.unused_data:
        raise Tampered(f"{VALUES}/{path.name}: does not hold the {size} bytes that its line says")
    return data


def orphans(study: Registration, found: Traces) -> list[Path]:
    """Return side files that no line cites: their traces were killed before the line was written."""
    cited = {body["values"]["sha256"] for body in found.bodies if "values" in body}
    return [path for path in files.listed(study.folder / ANATOMY / VALUES) if path.name not in cited]


class Writer:
    """The file of traces, to which only this process appends during a `with` block."""

    def __init__(self, study: Registration):
        self.study = study
        self.place = study.folder / ANATOMY
        self._held = ExitStack()

    def __enter__(self) -> Self:
        """Raise Tampered for a line that does not verify, AlreadyClaimed while another process appends."""
        self._lines = self._held.enter_context(journal.opened(self.place / TRACES, wait=False))
        try:
            found = _read(self.place / TRACES)
            self._lines.drop_torn()
            self._chain = found.head
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    def append(self, body: Mapping[str, Any], held: bytes = b"") -> None:
        """Write the side file of a trace, then append its line in one write and one fsync.

        Raises BadInput, and writes nothing, for an invalid trace and for a side file that it does not cite.
        """
        if wrong := anatomy_fields.fault(body):
            raise BadInput(f"anatomy: {wrong}")
        digest = hashlib.sha256(held).hexdigest() if held else None
        if digest != body.get("values", {}).get("sha256"):
            raise BadInput("anatomy: body.values.sha256: is not that of the values beside it")
        if digest is not None and not files.there(path := self.place / VALUES / digest):
            files.create(path, held)
        sha256 = canonical.digest(body)
        chain = _next(self._chain, sha256)
        self._lines.append([canonical.dumps({"body": body, "sha256": sha256, "chain": chain})])
        self._chain = chain


def begin(study: Registration) -> int:
    """Enter an attempt to label traces; return its number, from 1."""
    now = study.anew()
    number = now.count("anatomy") + 1
    ledger.append(now.folder, "anatomy", {"number": number, "records": len(read(now).bodies)})
    return number


def end(study: Registration) -> None:
    """Enter the end of the attempt with the number of traces and the chain."""
    found = read(study)
    ledger.append(study.folder, "occluded", {"records": len(found.bodies), "head": found.head})


def chosen(study: Registration) -> Document:
    """Read anatomy/chosen.json. Raises Tampered where it is missing or damaged."""
    return documents.read(study.folder / ANATOMY / CHOSEN, anatomy_fields.CHOSEN)


def judged(study: Registration) -> Document:
    """Read anatomy/verdict.json. Raises Tampered where it is missing or damaged."""
    return documents.read(study.folder / ANATOMY / VERDICT, anatomy_fields.VERDICT)


def write_chosen(study: Registration, found: Mapping[str, Any]) -> str:
    """Write the choice on the choosing half, once, and enter it; return its digest.

    A repeated call with the same choice completes what a crash interrupted; another choice raises Tampered.
    Raises BadInput while a trace of that half has no line.
    """
    now, traces = study.anew(), read(study)
    rests_on = sum(one.half == CHOOSE for one in due(now.lock.content))
    if len(traces.bodies) < rests_on:
        raise BadInput(f"{now.folder}: {rests_on - len(traces.bodies)} traces of one half are missing")
    own = {"kind": "kv-prereg anatomy, chosen", "version": 1}
    _once(now, CHOSEN, anatomy_fields.CHOSEN, own, traces.at(rests_on), found)
    digest = chosen(now).digest
    ledger.ensure(now.folder, "anatomy-chosen", {"chosen": digest})
    return digest


def write_verdict(study: Registration, found: Mapping[str, Any]) -> None:
    """Write the result on the testing half, once, and enter it. Raises as `write_chosen` does."""
    now, traces = study.anew(), read(study)
    rests_on = len(due(now.lock.content))
    if len(traces.bodies) < rests_on:
        raise BadInput(f"{now.folder}: {rests_on - len(traces.bodies)} traces are missing")
    for path in orphans(now, traces):
        path.unlink()
    own = {"kind": "kv-prereg anatomy, verdict", "version": 1, "chosen": chosen(now).digest}
    _once(now, VERDICT, anatomy_fields.VERDICT, own, traces.at(rests_on), found)
    ledger.ensure(now.folder, "anatomy-judged", {"verdict": judged(now).digest})


def verify(study: Registration, traces: Traces) -> int:
    """Return how many attempts the ledger has.

    Raises Tampered unless each ledger line about the anatomy matches the files, the choice precedes the first
    testing trace and everything precedes the claim.
    """
    attempts, last, when = 0, "", dict[str, int]()
    claimed = False
    for entry in study.entries:
        claimed = claimed or entry.event == CITED_CLAIM
        if entry.event not in EVENTS:
            continue
        if claimed:
            raise Tampered(f"{ledger.NAME}: traces were labelled after the claim")
        if "anatomy-judged" in when:
            raise Tampered(f"{ledger.NAME}: the anatomy goes on after its verdict")
        if entry.event in ("anatomy", "occluded"):
            attempts += entry.event == "anatomy"
            if entry.event == "anatomy" and entry.body["number"] != attempts:
                raise Tampered(f"{ledger.NAME}: attempt {attempts} to label traces is not numbered so")
            if entry.event == "occluded" and last != "anatomy":
                raise Tampered(f"{ledger.NAME}: an attempt to label traces does not end where it began")
            limit = attempts + (entry.event == "occluded")
            before = sum(body["attempt"] < limit for body in traces.bodies)
            other = entry.event == "occluded" and entry.body["head"] != _head(traces.bodies[:before])
            if entry.body["records"] != before or other:
                raise Tampered(
                    f"{TRACES}: attempt {attempts} {'ended with' if last else 'found'} "
                    f"{entry.body['records']} lines; of today's, {before} or others go back to it"
                )
        else:
            if entry.event in when or last != "occluded":
                raise Tampered(f"{ledger.NAME}: {entry.event} stands twice, or follows no attempt that ended")
            name, read_again, field = {
                "anatomy-chosen": (CHOSEN, chosen, "chosen"),
                "anatomy-judged": (VERDICT, judged, "verdict"),
            }[entry.event]
            if entry.body[field] != read_again(study).digest:
                raise Tampered(f"{ledger.NAME}: its {entry.event} line cites another {ANATOMY}/{name}")
            when[entry.event] = attempts
        last = entry.event
    _in_turn(study, traces, attempts, when)
    return attempts


def _in_turn(study: Registration, traces: Traces, attempts: int, when: Mapping[str, int]) -> None:
    """Raise Tampered unless traces and documents are in order. entered_after: attempt by ledger event."""
    due_here = due(study.lock.content)
    rests_on = {CHOSEN: sum(one.half == CHOOSE for one in due_here), VERDICT: len(due_here)}
    for name, document in ((CHOSEN, chosen), (VERDICT, judged)):
        if not files.there(study.folder / ANATOMY / name):
            continue
        content = document(study).content
        if content["lock"] != study.lock.digest:
            raise Tampered(f"{ANATOMY}/{name}: names another lock")
        if content["traces"] != traces.at(rests_on[name]):
            raise Tampered(f"{ANATOMY}/{name}: rests on other traces than those that are here")
        kept = content["ledger"]
        if kept["count"] > len(study.entries) or kept != ledger.at(study.entries[: kept["count"]]):
            raise Tampered(f"{ANATOMY}/{name}: names a ledger head that this ledger never had")
        if name == VERDICT and content["chosen"] != chosen(study).digest:
            raise Tampered(f"{ANATOMY}/{name}: names another choice")
    for body in traces.bodies:
        if body["attempt"] > attempts:
            raise Tampered(f"{TRACES}: attempt {body['attempt']} is not one of the ledger's")
        late = body["attempt"] > when.get("anatomy-chosen", attempts)
        if late != (body["half"] == TEST):
            said = "chooses, and was labelled after the choice" if late else "tests, and nothing was chosen"
            raise Tampered(f"{TRACES}: {body['problem']} {said}")
        if body["half"] == TEST and body["chosen"] != chosen(study).digest:
            raise Tampered(f"{TRACES}: {body['problem']} was labelled under another choice")


def _once(
    study: Registration,
    name: str,
    declared: Table,
    own: Mapping[str, Any],
    traces: Mapping[str, Any],
    found: Mapping[str, Any],
) -> None:
    path, found = study.folder / ANATOMY / name, canonical.loads(canonical.dumps(found), name)
    if shared := {"lock", "traces", "ledger", *own} & found.keys():
        raise BadInput(f"{name}: {min(shared)} is the document's own")
    if files.there(path):
        content = documents.read(path, declared).content
        if {key: content.get(key) for key in found} != found:
            raise Tampered(f"{ANATOMY}/{name}: holds something else of the same traces")
        return
    ledger.refuse_closed(study.folder)
    head = {"lock": study.lock.digest, "traces": traces, "ledger": ledger.head(study.folder)}
    documents.write(path, {**own, **head, **found}, declared)


def _read(path: Path) -> Traces:
    data = files.read(path)
    line_endings.refuse_rewritten(path.name, data)
    lines = journal.split(data)
    chain, bodies = journal.START, list[dict[str, Any]]()
    for number, line in enumerate(lines.whole, start=1):
        where = f"{path.name}:{number}"
        parsed = canonical.loads(line, where)
        if not isinstance(parsed, dict) or parsed.keys() != set(anatomy_fields.LINE.fields):
            raise Tampered(f"{where}: not a line of a trace")
        if canonical.digest(parsed["body"]) != parsed["sha256"]:
            raise Tampered(f"{where}: its digest is not that of its body; the line was edited")
        if wrong := anatomy_fields.fault(parsed["body"]):
            raise Tampered(f"{where}: {wrong}")
        chain = _next(chain, parsed["sha256"])
        if chain != parsed["chain"]:
            raise Tampered(f"{where}: does not follow the line before; lines were removed, added or swapped")
        bodies.append(parsed["body"])
    return Traces(bodies, chain, lines.torn)


def _head(bodies: Sequence[Mapping[str, Any]]) -> str:
    """Return the chain after these lines, recomputed."""
    chain = journal.START
    for body in bodies:
        chain = _next(chain, canonical.digest(body))
    return chain


def _next(chain: str, sha256: str) -> str:
    return hashlib.sha256((chain + sha256).encode("ascii")).hexdigest()
