"""The claim: written once, before the first held-out byte is read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from protocol.evidence import citations, late_randomness, ledger, registration, selection
from protocol.evidence.registration import Registration
from protocol.formats import document_fields, documents, journal
from protocol.formats.refusals import AlreadyClaimed, BadInput, Tampered
from protocol.lock import lock

NAME = registration.CLAIM


@contextmanager
def exclusive_run(study: Registration) -> Iterator[None]:
    """Keep other processes from running the study. Raises AlreadyClaimed while another one does."""
    lock.read(study.folder)  # raises BadInput without a lock
    with (study.folder / lock.NAME).open("r+b") as file:
        journal.lock_file(file, wait=False, name=f"{study.folder}")
        yield


def take(
    study: Registration, value: Path | None = None, block: Callable[[], late_randomness.Block] | None = None
) -> int:
    """Claim a study for confirmation, or resume a claim that has no seal yet. Call it in `exclusive_run`.

    The claim names the lock, the head of the ledger and, with a sweep, the selection. With late randomness it
    has the value (`value`, `block`: see `late_randomness.draw_value`), which is optional when resuming. It cites
    the proofs of the lock that are there, which shows that they came first. Each
    call is one attempt: it adds a ledger line with the number of the attempt, which is returned (from 1), and
    the number of existing records.

    Raises AlreadyClaimed once there is a seal, BadInput for a sweep without a selection and for a late value that is
    missing, not usable or not the claim's, Tampered when ledger, selection, claim or records do not verify.
    """
    current, folder = study.reopen(), study.folder
    if current.has(registration.SEAL):
        raise AlreadyClaimed(f"{folder} was confirmed already, which can happen only once; replicate it instead")
    ledger.refuse_closed(folder)
    if [entry.body for entry in current.entries[:1]] != [{"lock": current.lock.digest}]:
        raise Tampered(f"{ledger.NAME}: does not begin with the registration of this lock")
    selected = selection.claim_fields(current)
    count = len(current.own_records)
    if not current.has(NAME):
        if count or current.count_events("claim"):
            raise Tampered(f"{NAME}: missing, although the claim was taken before; restore it")
        cited = citations.claim_fields(current)
        late_value = late_randomness.draw_value(current.lock, value, block)
        content = {
            "kind": "kv-prereg claim",
            "version": 1,
            "lock": current.lock.digest,
            "ledger": ledger.read_head(folder),
            **selected,
            **cited,
            **({} if late_value is None else {late_randomness.FIELD: late_value}),
            **({registration.WITNESS: proofs} if (proofs := study.lock_proofs()) else {}),
        }
        documents.write(folder / NAME, content, document_fields.CLAIM)
    key = late_randomness.claim_key(current.lock, current.claim)
    if value is not None and (redrawn := late_randomness.draw_value(current.lock, value)) and redrawn["key"] != key:
        raise BadInput(f"--value {value}: {NAME} already has a different value; leave --value out to resume")
    if current.claim.content.get("selection") != selected.get("selection"):
        raise Tampered(f"{NAME}: names a selection other than {selection.NAME}")
    ledger.ensure(folder, "claim", {"claim": current.claim.digest})
    attempt = ledger.count_events(folder, "attempt") + 1
    ledger.append(folder, "attempt", {"number": attempt, "records": count})
    return attempt
