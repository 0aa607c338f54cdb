"""The journal of an instrument: chained lines {body, sha256, chain} in a file, and its attempts in the ledger.

`sha256` digests the canonical body, and `chain` digests the chain of the line before followed by this sha256.
A ledger line begins each attempt with the number of lines that it found, and another one ends it with the
number and the chain of the last line. All attempts precede the claim.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from protocol.evidence import ledger
from protocol.evidence.registration import CLAIM, Registration
from protocol.formats import canonical, fields, files, journal, line_endings, shards
from protocol.formats.fields import DIGEST, Field, Table
from protocol.formats.instruments import Instrument
from protocol.formats.refusals import BadInput, Tampered

CLAIM_EVENT = CLAIM.removesuffix(".json")
# Returns the fault of the body of a line, beginning with the field; the second argument is its index.
FindFault = Callable[[Any, int], str | None]


class Bodies(NamedTuple):
    """The bodies of all complete lines, in order. head: the chain of the last line. torn: bytes after it."""

    bodies: list[dict[str, Any]]
    head: str
    torn: int

    def head_at(self, count: int) -> dict[str, Any]:
        """Return count and head of the first `count` lines."""
        return {"count": count, "head": chain_after(self.bodies[:count])}


class JournalFile(NamedTuple):
    """A file that attempts append to. header: the bodies before the counted ones, which have an attempt."""

    name: str
    bodies: Sequence[Mapping[str, Any]]
    header: Sequence[Mapping[str, Any]] = ()


def make_line_table(description: str) -> Table:
    """Return the table of a line. description: of its body."""
    return Table(
        {
            "body": Field(fields.ANYTHING, description),
            "sha256": Field(DIGEST, "Digest of the canonical body."),
            "chain": Field(DIGEST, "Digest of the previous line's chain followed by this sha256."),
        }
    )


def read_bodies(path: Path, noun: str, find_fault: FindFault) -> Bodies:
    """Read every complete line of a file, which may be missing or packed. noun: what a line is of, in messages.

    Raises Tampered for a line that does not verify.
    """
    path = shards.find_form(path)
    if not files.exists(path):
        return Bodies([], journal.START, 0)
    data = shards.read(path)
    line_endings.refuse_rewritten(path.name, data)
    lines = journal.split_lines(data)
    chain, bodies = journal.START, list[dict[str, Any]]()
    for index, line in enumerate(lines.complete):
        source = f"{path.name}:{index + 1}"
        parsed = canonical.loads(line, source)
        if not isinstance(parsed, dict) or parsed.keys() != {"body", "sha256", "chain"}:
            raise Tampered(f"{source}: not a line of a {noun}")
        if canonical.digest(parsed["body"]) != parsed["sha256"]:
            raise Tampered(f"{source}: its digest does not match its body; the line was edited")
        if wrong := find_fault(parsed["body"], index):
            raise Tampered(f"{source}: {wrong}")
        chain = journal.next_chain(chain, parsed["sha256"])
        if chain != parsed["chain"]:
            raise Tampered(f"{source}: does not continue the line before; lines were removed, added or swapped")
        bodies.append(parsed["body"])
    return Bodies(bodies, chain, lines.torn)


class BodyWriter:
    """A file of bodies, to which only this process appends during a `with` block. count: of its lines."""

    def __init__(self, path: Path, name: str, noun: str, find_fault: FindFault):
        self.path, self._name, self._noun, self._find_fault = path, name, noun, find_fault

    def __enter__(self) -> Self:
        """Raise Tampered for a line that does not verify, AlreadyClaimed while another process appends."""
        shards.refuse_packed(self.path)
        with ExitStack() as stack:
            self._journal = stack.enter_context(journal.open_journal(self.path, wait=False))
            written = read_bodies(self.path, self._noun, self._find_fault)
            self._journal.drop_torn()
            self._chain, self.count = written.head, len(written.bodies)
            self._exit_stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._exit_stack.close()

    def append(self, body: Mapping[str, Any]) -> None:
        """Append one line in one write and one fsync. Raises BadInput, and writes nothing, for an invalid one."""
        self.refuse_fault(body)
        sha256 = canonical.digest(body)
        chain = journal.next_chain(self._chain, sha256)
        self._journal.append([canonical.dumps({"body": body, "sha256": sha256, "chain": chain})])
        self._chain, self.count = chain, self.count + 1

    def refuse_fault(self, body: Mapping[str, Any]) -> None:
        """Raise BadInput for a body that cannot be the next line."""
        if wrong := self._find_fault(body, self.count):
            raise BadInput(f"{self._name}: {wrong}")


def begin_attempt(study: Registration, instrument: Instrument, records: int, **place: str) -> int:
    """Enter an attempt that found so many records; return its number, from 1. place: further fields."""
    number = study.reopen().count_events(instrument.name) + 1
    ledger.append(study.folder, instrument.name, {"number": number, "records": records, **place})
    return number


def end_attempt(study: Registration, instrument: Instrument, records: int, head: str, **place: str) -> None:
    """Enter the end of an attempt with the number of records and the chain of the last line."""
    ledger.append(study.folder, instrument.end_event, {"records": records, "head": head, **place})


def verify_attempts(
    study: Registration, instrument: Instrument, find_file: Callable[[Mapping[str, Any]], JournalFile]
) -> int:
    """Return how many attempts the ledger has. find_file: the file that the body of a ledger line is about.

    Raises Tampered unless the attempts are numbered, begin and end in turn and precede the claim, and the lines
    that each found and left are those of today.
    """
    attempts, open_file, is_claimed = 0, "", False
    for entry in study.entries:
        is_claimed = is_claimed or entry.event == CLAIM_EVENT
        if entry.event not in (instrument.name, instrument.end_event):
            continue
        is_end, file, records = entry.event == instrument.end_event, find_file(entry.body), entry.body["records"]
        if is_claimed:
            raise Tampered(f"{ledger.NAME}: has an attempt to {instrument.verb} after the claim")
        attempts += not is_end
        if not is_end and entry.body["number"] != attempts:
            raise Tampered(f"{ledger.NAME}: attempt {attempts} to {instrument.verb} has the wrong number")
        if is_end and open_file != file.name:
            raise Tampered(f"{ledger.NAME}: an attempt to {instrument.verb} does not end where it began")
        earlier = sum(body["attempt"] < attempts + is_end for body in file.bodies)
        if earlier != records or (is_end and entry.body["head"] != chain_after([*file.header, *file.bodies[:records]])):
            raise Tampered(
                f"attempt {attempts} to {instrument.verb} {'ended with' if is_end else 'found'} {records} "
                f"lines in {file.name}, but of today's lines {earlier} (or others) belong to it"
            )
        open_file = "" if is_end else file.name
    return attempts


def chain_after(bodies: Sequence[Mapping[str, Any]]) -> str:
    """Return the chain after these lines, recomputed."""
    chain = journal.START
    for body in bodies:
        chain = journal.next_chain(chain, canonical.digest(body))
    return chain
