"""Before a claim and a probe: the lock has to be what registering writes, derived again and compared whole.

Runs in the locked tree, in the locked environment, so that nothing may differ: an edited lock is not run,
whoever remade its ledger. What the lock says of the moment of locking follows from nothing that is here
later; it is held to what can be seen of it now.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from protocol.acts.locking import derived, fitting, frozen, opened_before, rule_checks
from protocol.evidence.audit import amendment
from protocol.evidence.bytes import canonical, files
from protocol.evidence.findings import CannotTell, NotRun
from protocol.evidence.lock import lock, signing
from protocol.evidence.outside import history
from protocol.evidence.outside.repository import Repository
from protocol.evidence.refusals import BadInput, Refusal
from protocol.evidence.run import ledger, selection
from protocol.evidence.run.registration import CLAIM, PROTOCOL, Registration
from protocol.locked import differences
from protocol.locked.study import Study
from protocol.plan import checks

__all__ = ["derived_again", "moment", "refuse_edited"]

ELSEWHERE = {"kind", "version", "name", "sources", "weights", "environment"}
"""Compared by whoever reads documents, and by `refuse_drift`. A folder may have been renamed."""
MOMENT = ("amends", "opened", "git", "signer")
"""What `moment` looks at, as far as it can: every lock says all of it."""


def refuse_edited(study: Study, *, simulated: bool = True) -> None:
    """Raises Tampered with what differs by its path; BadInput where registering would refuse the protocol,
    and for a replication whose parent is not beside it.

    simulated: also what the rule can see at the planned size and which arms keep the same slots, which takes
    seconds.
    """
    left = ELSEWHERE if simulated else ELSEWHERE | {"checks"}
    locked = {name: value for name, value in study.lock.content.items() if name not in left}
    due = canonical.loads(canonical.dumps(derived_again(study, simulated=simulated)), lock.NAME)
    wrong = [*differences.between(locked, due), *moment(study)]
    differences.refuse(wrong, "; it was edited after it was locked, so restore it")


def derived_again(study: Study, *, simulated: bool = True) -> dict[str, Any]:
    """What the lock has to say, but for `ELSEWHERE` and for `moment`. Raises as `refuse_edited` does."""
    planned, registration, locked = study.planned, study.registration, study.lock.content
    parent = _parent(registration)
    if not _gateless(registration, parent):
        checks.require_gate(study.protocol, study.folder / PROTOCOL)
        checks.require_memory(study.protocol, study.folder / PROTOCOL)
    items = frozen.items(study.protocol)
    first = None if parent is None else int(parent.lock.content.get("batch", {}).get("first_event", 0))
    data = files.read(study.folder / PROTOCOL)
    due = derived.follows(planned, data, items, locked["sources"], first)
    due["batch"]["lanes"] = study.lanes()
    if simulated:
        seen = rule_checks.checks(study.protocol, items, again=parent is not None)
        due["checks"] = derived.checks(planned, items, seen)
    due["parent"] = None
    if parent is not None:
        due["parent"] = {"name": parent.name, "lock": parent.lock.digest, **selection.digest(parent)}
    due["ledger"] = ledger.at([])
    due["bundle"] = files.sha256(registration.bundle)
    return due | {name: locked.get(name, f"what {name} was") for name in MOMENT}


def moment(study: Study) -> Iterator[str]:
    """One line for each thing that the lock says of when it was made and that is contradicted here. Raises
    Tampered as the checks of amendment, commit and signature do.
    """
    with suppress(CannotTell, NotRun):
        amendment.verify(study.registration)
    with suppress(CannotTell, NotRun):
        history.check_commit(study.registration)
    with suppress(CannotTell, NotRun):
        signing.check(study.folder)
    yield from _repeats(study.registration)
    yield from _lanes(study)
    yield from _opened(study)


def _repeats(study: Registration) -> Iterator[str]:
    """A replication has its parent's protocol, byte for byte."""
    if (parent := _parent(study)) is not None:
        own, of_parent = (one.lock.content["protocol"]["sha256"] for one in (study, parent))
        yield from differences.between(own, of_parent, "protocol.sha256")


def _lanes(study: Study) -> Iterator[str]:
    """Lanes that nobody registered were chosen by the memory that was free."""
    generation, lanes = study.protocol.generation, study.lanes()
    if lanes.keys() != set(study.protocol.models):
        yield f"batch.lanes: is about {differences.shown(sorted(lanes))}, and not about the models"
    most = fitting.most_lanes(study.protocol)
    for model, count in lanes.items():
        if generation.lanes_per_batch is not None and count != generation.lanes_per_batch:
            yield f"batch.lanes.{model}: {count}, it has to be {generation.lanes_per_batch}, as registered"
        elif generation.lanes_per_batch is None and not 1 <= count <= most:
            yield f"batch.lanes.{model}: {count}, it has to be from 1 to the {most} that there are"


def _opened(study: Study) -> Iterator[str]:
    """An earlier registration that is here shares the problems that the lock says. One whose claim is in the
    commit that the lock names was here then, and is listed; others may have come since.
    """
    locked, folder = study.lock.content, study.folder
    claimed = [other for other in opened_before.claimed(folder) if _locked(other)]
    content, parent = study.registration.registered, locked.get("parent")
    now = {one["lock"]: one for one in opened_before.opened_before(folder, locked["items"], content, parent)}
    listed = {one["lock"]: one["problems"] for one in locked.get("opened", ()) if one["lock"]}
    for other in claimed:
        digest = other.lock.digest
        due = now[digest]["problems"] if digest in now else {}
        if digest in listed:
            yield from differences.between(listed[digest], due, f"opened.{other.name}")
        elif due and _committed(other, locked.get("git")):
            yield f"opened: does not list {other.name}, whose claim is in the commit that it was locked on"


def _locked(study: Registration) -> bool:
    try:
        return bool(study.lock.digest)
    except Refusal:
        return False


def _committed(study: Registration, git: Mapping[str, Any] | None) -> bool:
    """Whether the commit that a lock names has the claim of `study`; False where git cannot tell."""
    try:
        repository = Repository(study.folder)
        found = repository.objects([f"{git['commit']}:{repository.prefix}/{CLAIM}"]) if git else [None]
    except CannotTell:
        return False
    return found[0] is not None


def _parent(study: Registration) -> Registration | None:
    """What a replication repeats: a folder of this name beside the folders of registrations. Raises BadInput
    where none has the lock that it names, since what was relaxed for it could be anything.
    """
    named = study.lock.content.get("parent")
    if named is None:
        return None
    for shelf in sorted(study.folder.resolve().parent.parent.glob("*/")):
        if (beside := Registration(shelf / named["name"])).locked_as(named["lock"]):
            return beside
    raise BadInput(
        f"{study.folder}: replicates {named['name']}, of which no folder beside has the lock "
        f"{named['lock'][:12]}; bring it back"
    )


def _gateless(study: Registration, parent: Registration | None) -> bool:
    """As registering had it: whether what a study replicates or amends is of before there were gates."""
    if parent is not None:
        return "gate" not in parent.registered
    if not (about := study.lock.content.get("amends")):
        return False
    beside = Registration(study.folder.resolve().parent / about["name"])
    return beside.locked_as(about["lock"]) and checks.needs_no_gate(beside.registered, study.registered)
