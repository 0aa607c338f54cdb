"""The checks of a study's own files, before torch is imported and anything large is hashed."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from protocol import tasks
from protocol.acts.again import lock_again
from protocol.evidence.audit import amendment
from protocol.evidence.findings import CannotTell
from protocol.evidence.refusals import AlreadyClaimed, BadInput
from protocol.evidence.run import anatomies, claim, costs, late_randomness, ledger, selection, verdict
from protocol.evidence.run.registration import CLAIM, SEAL, Registration
from protocol.locked import drift
from protocol.tasks import door

__all__ = ["anatomy", "confirm", "cost", "probe", "refuse_claimed", "replicate", "selected"]


def confirm(
    study: Registration,
    value: Path | None = None,
    block: Callable[[], late_randomness.Block] | None = None,
    identity: Path | None = None,
) -> None:
    """Raise AlreadyClaimed for a study that is closed, or that another process runs; BadInput without a lock,
    while an amendment is unfinished, for a sweep without a selection and for a late value or a key that is
    missing or not needed; Drifted when protocol.toml was edited; Tampered when the lock was, and as
    `selection.read` does.
    """
    _ = study.lock  # BadInput without one
    ledger.refuse_closed(study.folder)
    amendment.refuse_open(study)
    drift.refuse_edited(study)
    refuse_other_lock(study)
    if study.has(SEAL):
        return
    if study.swept:
        selection.read(study)
    if not study.has(CLAIM):
        late_randomness.drawn(study.lock, value, block)
    door.refuse_unopenable(tasks.made(study.registered["tasks"], study.folder).values(), identity)
    with claim.running(study):
        pass


def probe(study: Registration) -> None:
    """Raise BadInput for a replication of a sweep, which does not probe; AlreadyClaimed for a study that is
    closed without a selection, or that another process runs; Drifted when protocol.toml was edited, Tampered
    when the lock was.
    """
    drift.refuse_edited(study)
    refuse_other_lock(study)
    if selection.inherited(study):
        raise BadInput(
            f"{study.folder}: a replication takes its parent's selection and does not probe; "
            f"run: kv-prereg replicate <its parent>"
        )
    if not selected(study):
        ledger.refuse_closed(study.folder)
    with claim.running(study):
        pass


def cost(study: Registration) -> None:
    """Raise BadInput for a study that registers no [cost], AlreadyClaimed for one that is claimed or closed,
    or that another process runs; Drifted when protocol.toml was edited, Tampered when the lock was.
    """
    drift.refuse_edited(study)
    refuse_other_lock(study)
    if costs.registered(study.lock.content) is None:
        raise BadInput(
            f"{study.folder}: registers no [cost]; write one into a protocol before it is locked, or measure "
            "without evidence: python -m benchmarks.decode"
        )
    ledger.refuse_closed(study.folder)
    refuse_claimed(study)
    with claim.running(study):
        pass


def anatomy(study: Registration) -> None:
    """Check the same for [anatomy]: raises as `check_cost` does."""
    drift.refuse_edited(study)
    refuse_other_lock(study)
    if anatomies.registered(study.lock.content) is None:
        raise BadInput(
            f"{study.folder}: registers no [anatomy]; write one into a protocol before it is locked "
            "(docs/protocol.md has its fields)"
        )
    ledger.refuse_closed(study.folder)
    refuse_claimed(study, "traces are labelled")
    with claim.running(study):
        pass


def refuse_claimed(study: Registration, what: str = "time is measured") -> None:
    """Raise AlreadyClaimed once held-out problems may have been read: whether `activity` happens must not
    depend on their results.
    """
    if study.has(CLAIM):
        raise AlreadyClaimed(
            f"{study.folder}: is claimed, and {what} before that; run it in a study of your own: "
            f"kv-prereg replicate {study.folder}"
        )


def selected(study: Registration) -> bool:
    """Whether a sweep has its selection, after which no lane is probed again. Raises Tampered for a selection
    that does not verify, or that only the ledger still has.
    """
    return study.swept and selection.made(study)


def replicate(parent: Registration) -> None:
    """Raise BadInput without a verdict to compare with and for one that is DEVIATED, Drifted when
    protocol.toml was edited, Tampered when the lock was.
    """
    drift.refuse_edited(parent)
    refuse_other_lock(parent)
    if not parent.has(verdict.NAME):
        raise BadInput(
            f"{parent.folder}: has no verdict to agree with; first: kv-prereg confirm {parent.folder}"
        )
    if verdict.word(parent.verdict) == "DEVIATED":
        raise BadInput(
            f"{parent.folder}: DEVIATED from what was registered; register its question anew instead"
        )


def refuse_other_lock(study: Registration) -> None:
    """Raise Tampered for a lock that does not follow from its protocol.toml and its manifests, as far as this
    can be checked without torch; before a claim all of it is derived again.
    """
    with suppress(CannotTell):
        lock_again.check(study)
