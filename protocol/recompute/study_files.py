"""The checks of a study's own files, before torch is imported and anything large is hashed."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from protocol import grading, tasks
from protocol.evidence import citations, claim, late_randomness, ledger, selection, verdict
from protocol.evidence.audit import amendment, auditor
from protocol.evidence.registration import CLAIM, SEAL, Registration
from protocol.formats.citations import FIELD
from protocol.formats.findings import CannotTell
from protocol.formats.instruments import Instrument
from protocol.formats.refusals import AlreadyClaimed, BadInput
from protocol.recompute import verify_lock
from protocol.tasks import held_out_guard, registry
from protocol.workspace import drift, locked_tree


def check_confirm(
    study: Registration,
    value: Path | None = None,
    block: Callable[[], late_randomness.Block] | None = None,
    identity: Path | None = None,
) -> None:
    """Raise AlreadyClaimed for a study that is closed, or that another process runs; BadInput without a lock,
    while an amendment is unfinished, for a cited study that is not sealed, for a sweep without a selection, for a
    grader that does not work here, and for a late value or a key that is missing or not needed; Drifted when
    protocol.toml was edited; Tampered when the lock was, and as `selection.read` does.
    """
    _ = study.lock  # BadInput without one
    ledger.refuse_closed(study.folder)
    amendment.refuse_unclosed_parent(study)
    drift.refuse_edited(study)
    refuse_other_lock(study)
    if study.has(SEAL):
        return
    citations.refuse_unusable(study, auditor.list_failures)
    if study.has_sweep:
        selection.read(study)
    if not study.has(CLAIM):
        late_randomness.draw_value(study.lock, value, block)
    _refuse_missing_graders(study)
    held_out_guard.refuse_missing_key(tasks.make_tasks(study.protocol["tasks"], study.folder).values(), identity)
    with claim.exclusive_run(study):
        pass


def check_probe(study: Registration) -> None:
    """Raise BadInput for a replication of a sweep, which does not probe, and for a grader that does not work here;
    AlreadyClaimed for a study that is
    closed without a selection, or that another process runs; Drifted when protocol.toml was edited, Tampered
    when the lock was.
    """
    drift.refuse_edited(study)
    refuse_other_lock(study)
    if selection.inherited_digest(study):
        raise BadInput(
            f"{study.folder}: a replication uses its parent's selection and is not probed; run: kv-prereg "
            "replicate <its parent>"
        )
    if not has_selection(study):
        ledger.refuse_closed(study.folder)
    _refuse_missing_graders(study)
    with claim.exclusive_run(study):
        pass


def _refuse_missing_graders(study: Registration) -> None:
    """Make the built-in graders of files, which refuse a machine without what they need."""
    for name in {str(table["grader"]) for table in study.protocol["tasks"] if "grader" in table}:
        if name in grading.GRADERS:
            grading.get_grader(name)


def check_instrument(study: Registration, instrument: Instrument) -> None:
    """Raise BadInput for a study that does not register the instrument, AlreadyClaimed for one that is claimed or
    closed, or that another process runs; Drifted when protocol.toml was edited, Tampered when the lock was.
    """
    drift.refuse_edited(study)
    refuse_other_lock(study)
    if instrument.name not in study.protocol:
        raise BadInput(
            f"{study.folder}: registers no [{instrument.name}]; add this table to a protocol before it is "
            f"locked, {instrument.advice}"
        )
    ledger.refuse_closed(study.folder)
    refuse_claimed(study, instrument)
    with claim.exclusive_run(study):
        pass


def refuse_claimed(study: Registration, instrument: Instrument) -> None:
    """Raise AlreadyClaimed once held-out problems may have been read: no use of an instrument may depend on them."""
    if study.has(CLAIM):
        raise AlreadyClaimed(
            f"{study.folder}: is claimed, but {instrument.activity} only before the claim; run it in your own "
            f"copy of the study: kv-prereg replicate {study.folder}"
        )


def has_selection(study: Registration) -> bool:
    """Whether a sweep has its selection, after which no lane is probed again. Raises Tampered for a selection
    that does not verify, or that only the ledger still has.
    """
    return study.has_sweep and selection.is_written(study)


def check_replicate(parent: Registration, *, is_fresh: bool) -> None:
    """Raise BadInput without a verdict to compare with and for one that is DEVIATED, and where the problems cannot be
    run again, or, for a fresh replication, not be drawn anew; Drifted when protocol.toml was edited, Tampered
    when the lock was.
    """
    drift.refuse_edited(parent)
    refuse_other_lock(parent)
    if not parent.has(verdict.NAME):
        raise BadInput(f"{parent.folder}: has no verdict to compare with; first run: kv-prereg confirm {parent.folder}")
    if verdict.read_word(parent.verdict) == "DEVIATED":
        raise BadInput(
            f"{parent.folder}: DEVIATED from what was registered, so it cannot be replicated; register its "
            "question again instead"
        )
    generated = {
        name: registry.is_generated(task)
        for name, task in registry.make_tasks(parent.protocol["tasks"], parent.folder).items()
    }
    if is_fresh and FIELD in parent.protocol:
        raise BadInput(
            f"{parent.folder}: cites records of its problems ([{FIELD}]), but fresh problems have none; "
            "register its question in your own study that decodes every arm"
        )
    if is_fresh and not all(generated.values()):
        name = next(name for name, is_drawn in generated.items() if not is_drawn)
        raise BadInput(
            f"{parent.folder}: tasks: {name} is not generated, so it has no fresh problems; ask the same "
            "question about other problems in your own study (kv-prereg init)"
        )
    source = parent.protocol.get(late_randomness.FIELD, {}).get("source")
    if not is_fresh and source not in (None, late_randomness.CITED) and any(generated.values()):
        raise BadInput(
            f"{parent.folder}: [{late_randomness.FIELD}] drew its problems for its own lock and draws "
            f"different ones for every other lock; run instead: kv-prereg replicate --fresh {parent.folder}"
        )


def refuse_other_lock(study: Registration) -> None:
    """Raise Tampered for a lock that does not follow from its protocol.toml and its manifests, as far as this
    can be checked without torch; before a claim all of it is derived again.

    In the locked tree, the process that unpacked it has just checked this, with the same code.
    """
    if locked_tree.is_unpacked():
        return
    with suppress(CannotTell):
        verify_lock.check(study)
