"""Traces with occlusion labels: the expected traces, their file, the choice, the verdict, the ledger lines.

A line of anatomy/traces.jsonl is the canonical {body, sha256, chain}, chained like records; its values by
token are in anatomy/values/<SHA-256>. All traces of the choosing half come first; then anatomy/chosen.json is
written, once, which each testing trace cites. anatomy/verdict.json is last. docs/records.md has the fields.
"""

import hashlib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from protocol.evidence import ledger, measurement_journal
from protocol.evidence.measurement_journal import Bodies, BodyWriter, JournalFile
from protocol.evidence.registration import Registration
from protocol.formats import canonical, documents, files, shards
from protocol.formats.documents import Document
from protocol.formats.instruments import get_instrument
from protocol.formats.refusals import BadInput, Tampered
from protocol.instruments.anatomy import fields
from protocol.instruments.anatomy.fields import HALVES

INSTRUMENT = get_instrument("anatomy")
ANATOMY = INSTRUMENT.name
TRACES, VALUES = "traces.jsonl", "values"
CHOSEN, VERDICT = "chosen.json", "verdict.json"
CHOOSE, TEST = HALVES
MAX_VALUES_BYTES = 1 << 30  # for one trace
EVENTS = tuple(fields.EVENTS)
CHOSEN_EVENT, VERDICT_EVENT = EVENTS[2:]
TABLES = {CHOSEN: fields.CHOSEN, VERDICT: fields.VERDICT}
CITED = {CHOSEN_EVENT: CHOSEN, VERDICT_EVENT: VERDICT}  # by ledger event; its field has the document's name


class ExpectedTrace(NamedTuple):
    """One expected line of a complete anatomy."""

    half: str
    model: str
    task: str
    problem: str


def assign_half(problem: str, item: Mapping[str, Any]) -> str:
    """Return the half of a problem, from the MD5 of its cluster's name or, without clusters, of its id.

    The half is independent of the split, which uses modulo 5; a cluster is never divided. item: the task in the lock.
    """
    return half_of(item.get("clusters", {}).get(problem, problem))


def half_of(name: str) -> str:
    """Return the half from the MD5 of the name of a cluster or a problem, modulo 2."""
    return HALVES[int(hashlib.md5(name.encode(), usedforsecurity=False).hexdigest(), 16) % len(HALVES)]


def expected_traces(content: Mapping[str, Any]) -> list[ExpectedTrace]:
    """Return every line of a complete anatomy, in order, from a lock's content that has [anatomy].

    These are the first development problems of each task; the choosing half of all models and tasks precedes
    the testing half.
    """
    protocol, limit = content["protocol"]["content"], content["protocol"]["content"]["anatomy"].get("traces")
    return [
        ExpectedTrace(half, model, task["name"], problem)
        for half in HALVES
        for model in protocol["models"]
        for task in protocol["tasks"]
        for problem in content["items"][task["name"]]["dev"][:limit]
        if assign_half(problem, content["items"][task["name"]]) == half
    ]


def read_traces(study: Registration) -> Bodies:
    """Read every complete line. Raises Tampered for one that does not verify."""
    return measurement_journal.read_bodies(study.folder / ANATOMY / TRACES, "trace", fields.find_fault)


def read_values(study: Registration, body: Mapping[str, Any]) -> bytes:
    """Return the values that a line cites: float32 [signals and kept, tokens]. Raises as `unpack_values` does."""
    cited = body["values"]
    size = 4 * (len(cited["signals"]) + cited["kept"]) * body["tokens"]
    return unpack_values(study.folder / ANATOMY / VALUES / cited["sha256"], size)


def unpack_values(path: Path, size: int) -> bytes:
    """Return the `size` bytes of a side file. Raises Tampered if it is missing, or has other bytes or another size."""
    try:
        compressed = files.read(path, MAX_VALUES_BYTES)
    except FileNotFoundError:
        raise Tampered(f"{VALUES}/{path.name}: missing, although a line cites it") from None
    if hashlib.sha256(compressed).hexdigest() != path.name:
        raise Tampered(f"{VALUES}/{path.name}: has a digest that differs from its name")
    try:
        decompressor = zlib.decompressobj()
        data = decompressor.decompress(compressed, min(size, MAX_VALUES_BYTES) + 1)
    except zlib.error:
        raise Tampered(f"{VALUES}/{path.name}: cannot be unpacked") from None
    if len(data) != size or not decompressor.eof or decompressor.unused_data:
        raise Tampered(f"{VALUES}/{path.name}: does not have the {size} bytes that its line gives")
    return data


def uncited_files(study: Registration, traces: Bodies) -> list[Path]:
    """Return side files that no line cites: their traces were killed before the line was written."""
    cited = {body["values"]["sha256"] for body in traces.bodies if "values" in body}
    return [path for path in files.list_folder(study.folder / ANATOMY / VALUES) if path.name not in cited]


class TraceWriter(BodyWriter):
    """The file of traces, to which only this process appends during a `with` block."""

    def __init__(self, study: Registration):
        super().__init__(study.folder / ANATOMY / TRACES, "anatomy", "trace", fields.find_fault)

    def append(self, body: Mapping[str, Any], side_file: bytes = b"") -> None:
        """Write the side file of a trace, then append its line.

        Raises BadInput, and writes nothing, for an invalid trace and for a side file that it does not cite.
        """
        self.refuse_fault(body)
        digest = hashlib.sha256(side_file).hexdigest() if side_file else None
        if digest != body.get("values", {}).get("sha256"):
            raise BadInput("anatomy: body.values.sha256: differs from the digest of its values")
        if digest is not None and not files.exists(path := self.path.parent / VALUES / digest):
            files.create(path, side_file)
        super().append(body)


def begin_attempt(study: Registration) -> int:
    """Enter an attempt to label traces; return its number, from 1."""
    return measurement_journal.begin_attempt(study, INSTRUMENT, len(read_traces(study).bodies))


def end_attempt(study: Registration) -> None:
    """Enter the end of the attempt with the number of traces and the chain."""
    traces = read_traces(study)
    measurement_journal.end_attempt(study, INSTRUMENT, len(traces.bodies), traces.head)


def read_document(study: Registration, name: str) -> Document:
    """Read anatomy/chosen.json or verdict.json. Raises Tampered where it is missing or damaged."""
    return documents.read(study.folder / ANATOMY / name, TABLES[name])


def _count_traces(study: Registration) -> dict[str, int]:
    """Return how many traces precede each document."""
    expected = expected_traces(study.lock.content)
    return {CHOSEN: sum(trace.half == CHOOSE for trace in expected), VERDICT: len(expected)}


def write_document(study: Registration, name: str, result: Mapping[str, Any]) -> str:
    """Write the choice on the choosing half, or the verdict on the other, once, and enter it; return its digest.

    A repeated call with the same result completes what a crash interrupted; another result raises Tampered.
    Raises BadInput while a trace that it rests on has no line.
    """
    current, traces = study.reopen(), read_traces(study)
    count, (field, _) = _count_traces(current)[name], name.split(".")
    if missing := max(0, count - len(traces.bodies)):
        raise BadInput(f"{current.folder}: {missing} traces {'of one half ' if name == CHOSEN else ''}are missing")
    header = {"kind": f"kv-prereg anatomy, {field}", "version": 1}
    if name == VERDICT:
        header["chosen"] = read_document(current, CHOSEN).digest
        for path in uncited_files(current, traces):
            path.unlink()
    _write_once(current, name, header, traces.head_at(count), result)
    digest = read_document(current, name).digest
    event = next(event for event, document in CITED.items() if document == name)
    ledger.ensure(current.folder, event, {field: digest})
    return digest


def verify(study: Registration, traces: Bodies) -> int:
    """Return how many attempts the ledger has.

    Raises Tampered unless each ledger line about the anatomy matches the files, the choice precedes the first
    testing trace and everything precedes the claim.
    """
    attempts = measurement_journal.verify_attempts(study, INSTRUMENT, lambda _: JournalFile(TRACES, traces.bodies))
    begun, last, entered_after = 0, "", dict[str, int]()
    for event, entry_body in ((entry.event, entry.body) for entry in study.entries if entry.event in EVENTS):
        if VERDICT_EVENT in entered_after:
            raise Tampered(f"{ledger.NAME}: the anatomy continues after its verdict")
        begun += event == INSTRUMENT.name
        if event in CITED:
            if event in entered_after or last != INSTRUMENT.end_event:
                raise Tampered(f"{ledger.NAME}: {event} occurs twice, or does not follow an attempt that ended")
            name = CITED[event]
            if entry_body[name.removesuffix(".json")] != read_document(study, name).digest:
                raise Tampered(f"{ledger.NAME}: its {event} line cites a different {ANATOMY}/{name}")
            entered_after[event] = begun
        last = event
    _check_order(study, traces, attempts, entered_after)
    return attempts


def _check_order(study: Registration, traces: Bodies, attempts: int, entered_after: Mapping[str, int]) -> None:
    """Raise Tampered unless traces and documents are in order. entered_after: attempt by ledger event."""
    for name, count in _count_traces(study).items():
        if not files.exists(study.folder / ANATOMY / name):
            continue
        content = read_document(study, name).content
        if content["lock"] != study.lock.digest:
            raise Tampered(f"{ANATOMY}/{name}: names a different lock")
        if content["traces"] != traces.head_at(count):
            raise Tampered(f"{ANATOMY}/{name}: was computed from traces other than those in this folder")
        head = content["ledger"]
        if head["count"] > len(study.entries) or head != ledger.head_of(study.entries[: head["count"]]):
            raise Tampered(f"{ANATOMY}/{name}: names a ledger head that never was in this ledger")
        if name == VERDICT and content["chosen"] != read_document(study, CHOSEN).digest:
            raise Tampered(f"{ANATOMY}/{name}: names a different choice")
    for body in traces.bodies:
        if body["attempt"] > attempts:
            raise Tampered(f"{TRACES}: attempt {body['attempt']} is not one of the ledger's")
        is_late = body["attempt"] > entered_after.get(CHOSEN_EVENT, attempts)
        if is_late != (body["half"] == TEST):
            message = (
                "belongs to the choosing half, but was labelled after the choice"
                if is_late
                else "belongs to the testing half, but nothing had been chosen"
            )
            raise Tampered(f"{TRACES}: {body['problem']} {message}")
        if body["half"] == TEST and body["chosen"] != read_document(study, CHOSEN).digest:
            raise Tampered(f"{TRACES}: {body['problem']} was labelled under a different choice")


def _write_once(
    study: Registration, name: str, header: Mapping[str, Any], traces: Mapping[str, Any], result: Mapping[str, Any]
) -> None:
    path, result = study.folder / ANATOMY / name, canonical.loads(canonical.dumps(result), name)
    if shared := {"lock", "traces", "ledger", *header} & result.keys():
        raise BadInput(f"{name}: {min(shared)} is reserved for the document itself")
    if files.exists(path):
        content = read_document(study, name).content
        if {key: content.get(key) for key in result} != result:
            raise Tampered(f"{ANATOMY}/{name}: has different content for the same traces")
        return
    ledger.refuse_closed(study.folder)
    head = {"lock": study.lock.digest, "traces": traces, "ledger": ledger.read_head(study.folder)}
    documents.write(path, {**header, **head, **result}, TABLES[name])


def format_progress(study: Registration) -> str:
    """Return the count of labelled traces; "" once they are judged."""
    if study.count_events(VERDICT_EVENT):
        return ""
    path = shards.find_form(study.folder / ANATOMY / TRACES)
    count = shards.count_lines(path) if files.exists(path) else 0
    return f"{count} of {len(expected_traces(study.lock.content))} traces"
