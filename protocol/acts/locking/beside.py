"""Compare what a lock says of other registrations with those in the sibling folders. Needs no torch.

A missing sibling is no contradiction: a folder may have been sent alone.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from protocol.acts.locking import form, opened_before
from protocol.evidence.audit import amendment
from protocol.evidence.findings import CannotTell
from protocol.evidence.outside import history
from protocol.evidence.outside.repository import Repository
from protocol.evidence.refusals import Refusal
from protocol.evidence.run.registration import CLAIM, Registration
from protocol.locked import differences
from protocol.plan import checks, full_use
from protocol.tasks import registry

__all__ = ["contradictions", "gateless", "opened", "parent"]


def contradictions(study: Registration) -> Iterator[str]:
    """Yield one message for each contradiction between a lock and the registration that it replicates or
    amends, or between its own fields about that.
    """
    yield from amendment.faults(study.lock.content)
    yield from _repeats(study)


def opened(study: Registration) -> Iterator[str]:
    """Yield one message for each contradiction in the field `opened`, by the recipes of today's tasks. A
    sibling that the lock lists has to share the listed problems. A sibling whose claim is in the commit that
    the lock names existed at that time and has to be listed; others may be newer. A registration whose file
    of questions is missing is skipped.
    """
    locked, folder = study.lock.content, study.folder
    if "opened" not in locked or not all(map(partial(_here, folder), study.registered["tasks"])):
        return
    listed = {one["lock"]: one["problems"] for one in locked["opened"] if one["lock"]}
    others = (other for other in opened_before.claimed(folder) if _locked(other, study.lock.digest))
    asked = [other for other in others if other.lock.digest in listed or _committed(other, locked.get("git"))]
    if not asked:
        return
    found = opened_before.opened_before(folder, locked["items"], study.registered, locked["parent"])
    now = {one["lock"]: one["problems"] for one in found}
    for other in asked:
        digest = other.lock.digest
        if opened_before.lost(other):  # its held-out problems can no longer be determined
            continue
        due = now.get(digest, {})
        if digest in listed:
            yield from differences.between(listed[digest], due, f"opened.{other.name}")
        elif due:
            yield f"opened: does not list {other.name}, whose claim is in the commit that it was locked on"


def parent(study: Registration) -> Registration | None:
    """Return the registration that a replication repeats: a folder with the name and the lock that it cites,
    in any folder of registrations here. None if there is none, and for a study that is no replication.
    """
    if (named := study.parent) is None or not form.is_name(named["name"]):
        return None
    for shelf in sorted(study.folder.resolve().parent.parent.glob("*/")):
        if _is(beside := Registration(shelf / named["name"]), named["lock"]):
            return beside
    return None


def gateless(study: Registration) -> bool | None:
    """Whether the study that this one replicates or amends predates gates, by the test of registering. None
    if that study is not here.
    """
    if study.parent is not None:
        repeated = parent(study)
        return None if repeated is None else "gate" not in repeated.registered
    if not (about := study.lock.content.get("amends")):
        return False
    beside = Registration(study.folder.resolve().parent / about["name"])
    if not form.is_name(about["name"]) or not _is(beside, about["lock"]):
        return None
    return checks.needs_no_gate(beside.registered, study.registered)


def _repeats(study: Registration) -> Iterator[str]:
    """Check that a replication has its parent's protocol, byte for byte, the parent's measured use of the
    full cache, and its first event, if the parent's lock has one.
    """
    if (repeated := parent(study)) is None:
        return
    own, other = study.lock.content, repeated.lock.content
    yield from differences.between(own["protocol"]["sha256"], other["protocol"]["sha256"], "protocol.sha256")
    yield from differences.between(own.get(full_use.FIELD), other.get(full_use.FIELD), full_use.FIELD)
    if "opened" in own:
        due = other.get("batch", {}).get("first_event", 0)
        yield from differences.between(own.get("batch", {}).get("first_event"), due, "batch.first_event")


def _here(folder: Path, task: Mapping[str, Any]) -> bool:
    """Whether the sources of a task's problems are available here."""
    try:
        registry.one(task, folder).ids()
    except Refusal:
        return False
    return True


def _is(study: Registration, digest: str) -> bool:
    try:
        return study.locked_as(digest)
    except OSError:  # another user's folder, or an impossible folder name
        return False


def _locked(study: Registration, own: str) -> bool:
    """Whether it has a readable lock with another digest: a copy of the study is no earlier study."""
    try:
        return study.lock.digest != own
    except (Refusal, OSError):
        return False


def _committed(study: Registration, git: Mapping[str, Any] | None) -> bool:
    """Whether the commit that a lock names contains the claim of `study`; False if git fails."""
    if git is None or not history.COMMIT.fullmatch(git["commit"]):
        return False
    try:
        repository = Repository(study.folder)
        found = repository.objects([f"{git['commit']}:{repository.prefix}/{CLAIM}"])
    except CannotTell:
        return False
    return found[0] is not None
