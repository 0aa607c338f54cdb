"""The claim: written before the first held-out byte is read, once for ever."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from protocol.evidence.bytes import documents, journal
from protocol.evidence.bytes.documents import Document as Claim
from protocol.evidence.bytes.fields import DIGEST, Field, Table, Text, Whole
from protocol.evidence.lock import lock
from protocol.evidence.lock.lock import Lock
from protocol.evidence.refusals import AlreadyClaimed, BadInput, Tampered
from protocol.evidence.run import late_randomness, ledger, records, selection

__all__ = ["FIELDS", "NAME", "SEAL", "Claim", "read", "running", "take"]

NAME = "claim.json"
SEAL = "seal.json"  # what ends a claim
_DRAWN = Table(
    {
        "source": Field(Text(), "What brought the value."),
        "value": Field(Text(), "The value, in hex."),
        "key": Field(DIGEST, "HMAC-SHA256 of it, keyed with the lock's digest."),
        "signature": Field(Text(), "The auditor's, of a nonce.", without="no nonce"),
        "height": Field(Whole(), "Of the block whose hash it is.", without="no block"),
    }
)
FIELDS = documents.headed(
    "claim",
    {
        "lock": Field(DIGEST, "The lock."),
        "ledger": Field(journal.HEAD, "The ledger before the claim."),
        "selection": Field(DIGEST, "The selection.", without="no sweep"),
        late_randomness.FIELD: Field(_DRAWN, "The late value.", without="seeds and problems as registered"),
    },
)


@contextmanager
def running(folder: Path) -> Iterator[None]:
    """Hold `folder` against every other process that runs it. Raises AlreadyClaimed when one does."""
    lock.read(folder)
    with (folder / lock.NAME).open("r+b") as file:
        journal.hold(file, wait=False, what=f"{folder}")
        yield


def take(
    folder: Path,
    locked: Lock,
    value: Path | None = None,
    block: Callable[[], late_randomness.Block] | None = None,
) -> int:
    """Claim `folder` for confirmation, or resume a claim that has no seal yet. Call it inside `running`.

    The claim names the lock, the head of the ledger and, with a sweep, the selection; with late randomness it
    keeps the value (`value`, `block`: see `late.drawn`), which resuming need not be given again. Each call is
    one attempt: a line of the ledger with its number, which is returned (1 the first time), and the number of
    records that it found.

    Raises AlreadyClaimed once the seal is there, BadInput for a sweep without a selection, a late value that
    is missing, not usable or another than the claim's, Tampered when ledger, selection, claim or records do
    not verify.
    """
    if (folder / SEAL).exists():
        raise AlreadyClaimed(f"{folder} was confirmed, which happens once; replicate it instead")
    ledger.refuse_closed(folder)
    if [entry.body for entry in ledger.read(folder)[:1]] != [{"lock": locked.digest}]:
        raise Tampered(f"{ledger.NAME}: does not begin with the registration of this lock")
    selected = selection.digest(folder, locked)
    found = len(records.read(folder / records.FOLDERS["confirm"]))
    if not (folder / NAME).exists():
        if found or ledger.count(folder, "claim"):
            raise Tampered(f"{NAME}: missing, and the claim was taken before")
        drawn = late_randomness.drawn(locked, value, block)
        content = {
            "kind": "kv-prereg claim",
            "version": 1,
            "lock": locked.digest,
            "ledger": ledger.head(folder),
            **selected,
            **({} if drawn is None else {late_randomness.FIELD: drawn}),
        }
        documents.write(folder / NAME, content, FIELDS)
    claim = read(folder, locked)
    key = late_randomness.key_of(locked, claim)
    if value is not None and (again := late_randomness.drawn(locked, value)) and again["key"] != key:
        raise BadInput(f"--value {value}: {NAME} has another value already; leave it out to resume")
    if claim.content.get("selection") != selected.get("selection"):
        raise Tampered(f"{NAME}: names another selection than {selection.NAME}")
    ledger.ensure(folder, "claim", {"claim": claim.digest})
    attempt = ledger.count(folder, "attempt") + 1
    ledger.append(folder, "attempt", {"number": attempt, "records": found})
    return attempt


def read(folder: Path, locked: Lock) -> Claim:
    """The claim of `folder`. Raises BadInput when there is none, Tampered when it names another lock."""
    if not (folder / NAME).exists():
        raise BadInput(f"{folder} has no claim; run: python -m protocol.confirm {folder}")
    claim = documents.read(folder / NAME, FIELDS)
    if claim.content.get("lock") != locked.digest:
        raise Tampered(f"{NAME}: names another lock than {locked.digest}")
    return claim
