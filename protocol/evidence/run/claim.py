"""The claim: written once, before the first held-out byte is read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from protocol.evidence.bytes import documents, journal
from protocol.evidence.lock import lock
from protocol.evidence.refusals import AlreadyClaimed, BadInput, Tampered
from protocol.evidence.run import document_fields, late_randomness, ledger, registration, selection
from protocol.evidence.run.registration import Registration

__all__ = ["NAME", "running", "take"]

NAME = registration.CLAIM


@contextmanager
def running(study: Registration) -> Iterator[None]:
    """Keep other processes from running the study. Raises AlreadyClaimed while another one does."""
    lock.read(study.folder)  # raises BadInput without a lock
    with (study.folder / lock.NAME).open("r+b") as file:
        journal.hold(file, wait=False, what=f"{study.folder}")
        yield


def take(
    study: Registration,
    value: Path | None = None,
    block: Callable[[], late_randomness.Block] | None = None,
) -> int:
    """Claim a study for confirmation, or resume a claim that has no seal yet. Call it in `exclusive_run`.

    The claim names the lock, the head of the ledger and, with a sweep, the selection. With late randomness it
    has the value (`value`, `block`: see `late_randomness.draw_value`), which is optional when resuming. Each
    call is one attempt: it adds a ledger line with the number of the attempt, which is returned (from 1), and
    the number of existing records.

    Raises AlreadyClaimed once there is a seal, BadInput for a sweep without a selection and for a late value
    that is missing, not usable or not the claim's, Tampered when ledger, selection, claim or records do not
    verify.
    """
    now, folder = study.anew(), study.folder
    if now.has(registration.SEAL):
        raise AlreadyClaimed(f"{folder} was confirmed, which happens once; replicate it instead")
    ledger.refuse_closed(folder)
    if [entry.body for entry in now.entries[:1]] != [{"lock": now.lock.digest}]:
        raise Tampered(f"{ledger.NAME}: does not begin with the registration of this lock")
    selected = selection.digest(now)
    count = len(now.confirmed)
    if not now.has(NAME):
        if count or now.count("claim"):
            raise Tampered(f"{NAME}: missing, and the claim was taken before")
        drawn = late_randomness.drawn(now.lock, value, block)
        content = {
            "kind": "kv-prereg claim",
            "version": 1,
            "lock": now.lock.digest,
            "ledger": ledger.head(folder),
            **selected,
            **({} if drawn is None else {late_randomness.FIELD: drawn}),
        }
        documents.write(folder / NAME, content, document_fields.CLAIM)
    key = late_randomness.key_of(now.lock, now.claim)
    if value is not None and (again := late_randomness.drawn(now.lock, value)) and again["key"] != key:
        raise BadInput(f"--value {value}: {NAME} has another value already; leave it out to resume")
    if now.claim.content.get("selection") != selected.get("selection"):
        raise Tampered(f"{NAME}: names another selection than {selection.NAME}")
    ledger.ensure(folder, "claim", {"claim": now.claim.digest})
    attempt = ledger.count(folder, "attempt") + 1
    ledger.append(folder, "attempt", {"number": attempt, "records": count})
    return attempt
