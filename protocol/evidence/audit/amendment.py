"""How a registration ends without a verdict: it is withdrawn, or another registration amends it.

Either way all its files remain, its ledger is closed, and the results that had been seen are recorded. An
amendment is a separate registration; its lock's `amends` names its direct parent, the reason, everything that
differs between the two locks, and whether held-out problems had been claimed before, by the parent or by one
that the parent amends in turn.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from protocol.evidence import claim, ledger, registration
from protocol.evidence.audit import study_status
from protocol.evidence.audit.study_status import Exposure
from protocol.evidence.registration import Registration
from protocol.formats import canonical, fields
from protocol.formats.fields import FLAG, Field, Integer, OrNull, Table, Text
from protocol.formats.findings import CannotTell, NotRun, Unfinished
from protocol.formats.refusals import AlreadyClaimed, BadInput, Refusal, Tampered
from protocol.lock import lock
from protocol.lock.lock import Lock

# The parts of a lock that can change a number. Everything else follows from them or is about the folder.
_PARTS = ("batch", "sources", "data", "weights", "environment")
_PROBE_COUNTS = Table({name: Field(Integer(), name) for name in ("attempts", "records")})
_EXPOSURE = Table(
    {
        "probe": Field(_PROBE_COUNTS, "How often development problems were probed."),
        "selection": Field(FLAG, "Whether a sweep had selected its winner."),
        "claim": Field(FLAG, "Whether held-out problems had been claimed."),
        "records": Field(Integer(), "Number of records of held-out problems."),
        "verdict": Field(OrNull(Text()), "The verdict, in one word."),
    }
)
"""The fields of `study_status.Exposure` in a lock."""


def clean_reason(text: str) -> str:
    """Return `text` on one line. Raises BadInput when it is empty or has unprintable characters."""
    if not (line := unicodedata.normalize("NFC", " ".join(text.split()))):
        raise BadInput("--reason: is empty; give the reason in a sentence that a reader can judge")
    if not line.isprintable():
        raise BadInput("--reason: contains characters that cannot be printed; write plain text")
    return line


def withdraw(study: Registration, reason: str) -> Exposure:
    """Close the ledger of a study with the reason and the results that had been seen; return the latter.

    Raises AlreadyClaimed when the study has its verdict, is closed already, or is being run.
    """
    with claim.exclusive_run(study):
        exposure = study_status.read_exposure(study)
        if exposure["verdict"]:
            raise AlreadyClaimed(
                f"{study.folder}: was judged {exposure['verdict']}, and a judged study cannot be withdrawn"
            )
        ledger.refuse_closed(study.folder)
        _complete_ledger(study)
        ledger.append(study.folder, "withdraw", {"reason": reason, "seen": exposure})
        return exposure


def describe_amendment(study: Registration, reason: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field `amends` for a lock with `content` that amends the lock of `study`.

    Raises BadInput when the two locks do not differ in anything that could change a number.
    """
    changes = diff_locks(study.lock.content, content)
    if not changes:
        raise BadInput(f"{study.folder}: the amendment changes nothing; edit its protocol.toml first")
    exposure = study_status.read_exposure(study)
    return {
        "name": study.name,
        "lock": study.lock.digest,
        "reason": reason,
        "diff": changes,
        "seen": exposure,
        "after_claim": is_after_claim(study.lock, exposure),
    }


def is_after_claim(locked: Lock, exposure: Exposure) -> bool:
    """Return whether an amendment of `locked` comes after a claim, by `locked` or by a lock before it.

    exposure: the results of `locked` that had been seen.
    """
    return exposure["claim"] or bool((locked.content.get("amends") or {}).get("after_claim"))


def diff_locks(old_content: Mapping[str, Any], new_content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every value that differs between the contents of two locks: {path, was, is}, ordered by path.

    A path names fields of the protocol, indices of lists of equal length, and each file or distribution
    separately; files are compared by digest. A value that only one lock has lacks `was` or `is`.
    """
    return list(_iter_changes(_compared_content(old_content), _compared_content(new_content)))


def find_faults(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield what in a lock's field `amends` cannot come from `describe_amendment`."""
    if not (amends := content.get("amends")):
        return
    if fault := fields.find_fault(_EXPOSURE, amends["seen"], "amends.seen"):
        yield fault
        return
    exposure = amends["seen"]
    if (exposure["records"] or exposure["verdict"]) and not exposure["claim"]:
        yield "amends.seen: lists records or a verdict of held-out problems without a claim"
    if exposure["claim"] and not amends["after_claim"]:
        yield "amends.after_claim: is false, but amends.seen lists a claim"
    if not amends["diff"]:
        yield "amends.diff: is empty, but an amendment must change something"
    values = dict(_iter_values(_compared_content(content)))
    for change in amends["diff"]:
        value = values.get(change["path"])
        if value != (canonical.dumps(change["is"]) if "is" in change else None):
            yield f"amends.diff: {change['path']!a} differs from the value in this lock"


def close_ledger(study: Registration, amending_lock: Lock) -> None:
    """Close the ledger of `study`, which `amending_lock` amends.

    A ledger that is closed already stays as it is. Raises Tampered when more results of `study` were seen
    than `amending_lock` says, since somebody then went on with it.
    """
    amends = amending_lock.content["amends"]
    if study_status.read_exposure(study) != amends["seen"]:
        raise Tampered(
            f"{study.folder}: was continued after {amending_lock.content['name']} was locked as its "
            f"amendment; register {amending_lock.content['name']} again, in another folder"
        )
    _complete_ledger(study)
    if ledger.closing_entry(ledger.read(study.folder)) is None:
        ledger.append(study.folder, "amended", {"lock": amending_lock.digest, "reason": amends["reason"]})


def find_successor(study: Registration) -> Registration | None:
    """Return the sibling registration whose lock amends that of `study`; None where there is none."""
    return next(_list_successors(study), None)


def _list_successors(study: Registration) -> Iterator[Registration]:
    for path in sorted(study.folder.resolve().parent.glob(f"*/{lock.NAME}")):
        sibling = Registration(path.parent)
        try:
            amends = sibling.lock.content.get("amends")
        except Refusal:  # the sibling's audit reports the damage
            continue
        if amends and amends["lock"] == study.lock.digest:
            yield sibling


def is_unfinished(study: Registration, new: Path) -> bool:
    """Return whether `new` has the lock that amends `study` while a crash prevented the remaining steps.

    Raises AlreadyClaimed when the amendment is complete, or when another folder amends `study`: only the
    newest registration can be amended.
    """
    folder = study.folder
    closed = ledger.closing_entry(study.entries)
    latest = find_successor(study)
    if latest is None:
        if closed and closed.event == "amended":
            raise AlreadyClaimed(
                f"{folder}: was amended by the lock {closed.body.get('lock')}, which is in no folder next to "
                "it; restore that folder and amend it instead"
            )
        return False
    if latest.folder == new.resolve():
        if closed and Registration(new).has_entries:
            raise AlreadyClaimed(
                f"{new}: is already an amendment of {folder}; to amend it in turn, name another folder"
            )
        return True
    while following := find_successor(latest):
        latest = following
    raise AlreadyClaimed(
        f"{folder}: was amended before; amend its newest version instead: kv-prereg amend "
        f"{folder.parent / latest.name} {new} --reason ..."
    )


def refuse_unclosed_parent(study: Registration) -> None:
    """Raise BadInput while the ledger of the registration that `study` amends is still open."""
    parent, folder = _find_parent(study), study.folder
    if parent and ledger.closing_entry(parent.entries) is None:
        raise BadInput(
            f"{folder}: amending was interrupted before {parent.name} was closed; run again: kv-prereg amend "
            f"{folder.parent / parent.name} {folder} --reason ..."
        )


def verify(study: Registration) -> str:
    """Audit the amendment `study` and return a summary.

    Raises NotRun when it is no amendment, CannotTell without the sibling folder of its parent and where another one
    amends it too, Unfinished while the parent's ledger is open, Tampered when the two do not match.
    """
    amends = study.lock.content.get("amends")
    if not amends:
        raise NotRun
    name, parent = amends["name"], _find_parent(study)
    if parent is None:
        raise CannotTell(f"no folder next to it has the lock that it amends ({amends['lock']}, of {name})")
    if diff_locks(parent.lock.content, study.lock.content) != amends["diff"]:
        raise Tampered(f"amends.diff: does not match the differences between the lock of {name} and this one")
    if study_status.read_exposure(parent) != amends["seen"]:
        raise Tampered(f"amends.seen: does not match what the files of {name} show as seen")
    if amends["after_claim"] != is_after_claim(parent.lock, amends["seen"]):
        raise Tampered(f"amends.after_claim: contradicts {name} and the locks before it")
    closed = ledger.closing_entry(parent.entries)
    if closed is None:
        if {*study.written_files()} <= {lock.NAME, ledger.NAME}:  # nothing runs before: see `refuse_unclosed_parent`
            raise Unfinished(f"{name}: this lock has not closed its ledger yet; run the same amend again")
        raise Tampered(f"{name}: is amended by this lock, but the lock has not closed its ledger")
    expected_body = {"lock": study.lock.digest, "reason": amends["reason"]}
    if closed.event == "amended" and closed.body != expected_body:
        raise Tampered(f"{name}: its ledger was closed by another amendment, the lock {closed.body.get('lock')}")
    if forks := [other.name for other in _list_successors(parent) if other.lock.digest != study.lock.digest]:
        raise CannotTell(
            f"{forks[0]} amends {name} too, but each version is amended once; one of the two hides another"
        )
    moment = "after a claim" if amends["after_claim"] else "before any claim"
    return f"{name}, {moment}; {len(amends['diff'])} values differ, as listed"


def describe_ending(study: Registration) -> str:
    """Audit the end of a study other than by a verdict and return a summary.

    Raises NotRun for a study that did not end so, Tampered when other results had been seen than its
    withdrawal says or when another lock amends it, CannotTell when no sibling folder has the amending lock.
    """
    closed = ledger.closing_entry(study.entries)
    if closed is None or closed.event == "verdict":
        raise NotRun
    reason = closed.body.get("reason")
    if closed.event == "withdraw":
        exposure = study_status.read_exposure(study)
        if closed.body.get("seen") != exposure:
            raise Tampered(f"{ledger.NAME}: its withdrawal lists other things as seen than the files here")
        return f"withdrawn {'after' if exposure['claim'] else 'before'} its claim: {reason}"
    amending = find_successor(study)
    if amending is None:
        raise CannotTell(f"amended by the lock {closed.body.get('lock')}, which is in no folder next to it")
    if amending.lock.digest != closed.body.get("lock"):
        raise Tampered(f"{ledger.NAME}: was closed by an amendment other than {amending.name}")
    return f"amended by {amending.name}: {reason}"


def _find_parent(study: Registration) -> Registration | None:
    """Return the registration that `study` amends, if a sibling folder has its lock."""
    if not (amends := study.lock.content.get("amends")):
        return None
    sibling = Registration(study.folder.resolve().parent / amends["name"])
    return sibling if sibling.has_lock(amends["lock"]) else None


def _complete_ledger(study: Registration) -> None:
    """Add ledger lines that a crash prevented, so that a closed ledger cites all documents."""
    for name, (event, field) in registration.CITED.items():
        if study.has(name):
            ledger.ensure(study.folder, event, {field: study.digest(name)})


def _compared_content(content: Mapping[str, Any]) -> Any:
    """Return the compared part of a lock's content, in the form that reading a lock gives."""
    parts = {part: content[part] for part in _PARTS if part in content}
    return canonical.loads(canonical.dumps({"protocol": content["protocol"]["content"], **parts}), lock.NAME)


def _iter_values(value: Any, *path: str) -> Iterator[tuple[str, bytes]]:
    """Yield `value` and every value in it as (path as in `diff_locks`, canonical bytes)."""
    yield "/".join(path), canonical.dumps(value)
    if isinstance(value, dict | list):
        children = (
            value.items() if isinstance(value, dict) else ((str(index), child) for index, child in enumerate(value))
        )
        for name, child in children:
            yield from _iter_values(child, *path, name)


def _iter_changes(old: Any, new: Any, *path: str) -> Iterator[dict[str, Any]]:
    if canonical.dumps(old) == canonical.dumps(new):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            if name in old and name in new:
                yield from _iter_changes(old[name], new[name], *path, name)
            else:
                side = {"was": old[name]} if name in old else {"is": new[name]}
                yield {"path": "/".join((*path, name)), **side}
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (old_item, new_item) in enumerate(zip(old, new, strict=True)):
            yield from _iter_changes(old_item, new_item, *path, str(index))
    else:
        yield {"path": "/".join(path), "was": old, "is": new}
