"""Every value of a lock follows from something else, or it is listed here with the reason why nothing tells.

The law: whatever is changed in lock.json, its digest and its line in the ledger made anew, confirm refuses it
and an audit names it. The walk asks the functions that compare; for some of the edits the commands are run.
"""

import copy
import shutil
from collections.abc import Iterator

import pytest
import studies

from protocol.acts import lock_again
from protocol.acts.locking import frozen, opened_before, unedited
from protocol.evidence.bytes import fields
from protocol.evidence.findings import CannotTell
from protocol.evidence.lock import bundle, lock
from protocol.evidence.refusals import Refusal
from protocol.evidence.run.registration import Registration
from protocol.locked.study import Study, open_study, refuse_drift
from protocol.models import sources

MOMENT = {
    "name": "a folder may be renamed or copied after it was locked",
    "batch.lanes": "chosen by the memory that was free; no answer depends on it but by rounding",
    "git.commit": "the repository is not here, as in a folder that was sent; with it the audit compares",
    "git.differs": "as above",
    "git": "null is what registering writes outside a repository",
}
"""What confirm cannot tell, and why."""
AUDIT = MOMENT | {
    "sources": "compared with sources.zip by the item of this name, and with today's by that of judgements",
    "bundle": "as above",
    "weights": "of a model that is not embedded an auditor has no bytes",
    "environment": "of the machine that locked",
    "policies": "derived with torch, by the item of this name",
    "checks.problems": "simulated: confirm derives it",
    "checks.decision_errors": "simulated: confirm derives it",
    "checks.rule": "the judge is run on made-up studies: confirm derives it",
    "checks.same_kept": "models are run: confirm derives it",
    "version": "read with the document",
    "kind": "read with the document",
}
"""What an audit cannot tell without torch, seconds or the author's machine."""


@pytest.fixture(scope="module")
def study(registered, tmp_path_factory, same_environment) -> Iterator[Study]:
    """The registered study, with what is simulated known."""
    folder = shutil.copytree(registered, tmp_path_factory.mktemp("registrations") / "study")
    with studies.remembering("confirm"):
        opened = open_study(Registration(folder), sources.home())
        unedited.refuse_edited(opened)
        members = bundle.read(opened.registration.bundle, opened.lock.content["sources"])
        items = frozen.items(opened.protocol)
        with pytest.MonkeyPatch.context() as patch:  # what no edit changes is read once
            patch.setattr(bundle, "read", lambda archive, names: {name: members[name] for name in names})
            patch.setattr(frozen, "items", lambda protocol: copy.deepcopy(items))
            patch.setattr(opened_before, "claimed", lambda folder: [])
            yield opened


def edits(value, at=()) -> Iterator[tuple[tuple[object, ...], object]]:
    """(path, value to put there; ... takes it away) for every leaf, entry and list below `value`."""
    if isinstance(value, dict):
        for name in value:
            yield (*at, name), ...
            yield from edits(value[name], (*at, name))
    elif isinstance(value, list):
        if value:
            yield (*at, 0), ...
            yield (*at, len(value) - 1), ...
            yield at, [*value, value[-1]]
        for place in {0, len(value) // 2, len(value) - 1} if value else ():
            yield from edits(value[place], (*at, place))
    elif isinstance(value, bool) or value is None:
        yield at, "other" if value is None else not value
    elif isinstance(value, int):
        yield from ((at, value + 1), (at, bool(value)))
    else:
        yield at, value[:-1] + ("1" if value[-1:] == "0" else "0")


def edited(content, path, put):
    changed = copy.deepcopy(content)
    place = changed
    for name in path[:-1]:
        place = place[name]
    if put is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = put
    return changed


def told(check, content, path, put) -> str | None:
    """What `check` says of the edit; None where it says nothing."""
    changed = edited(content, path, put)
    if wrong := fields.fault(lock.FIELDS, changed, "lock"):
        return wrong
    try:
        check(changed)
    except Refusal as refusal:
        return str(refusal)
    except CannotTell:
        return None
    return None


def dotted(path) -> str:
    return ".".join(map(str, path))


def listed(path, known) -> bool:
    return any(dotted(path) == name or dotted(path).startswith(f"{name}.") for name in known)


def walk(content, check, known, among=None) -> tuple[list[str], set[str]]:
    """The edits that `check` does not tell and that are not listed; the listed ones that it does not tell."""
    untold, used = [], set()
    for path, put in edits(content):
        if among is not None and path[0] not in among:
            continue
        if told(check, content, path, put) is None:
            if listed(path, known):
                used |= {name for name in known if listed(path, [name])}
            else:
                untold.append(f"{dotted(path)} = {put!r}"[:100])
    return untold, used


def test_confirm_tells_every_edit_that_anything_can_tell(study):
    def confirming(changed):
        opened = Study(Registration.of(study.folder, lock.Lock(changed, "0" * 64)), study.planned)
        lock_again.check(opened.registration)
        unedited.refuse_edited(opened)

    among = study.lock.content.keys() - {"sources", "weights", "environment"}
    untold, used = walk(study.lock.content, confirming, MOMENT, among)
    assert untold == []
    assert used <= MOMENT.keys()


@pytest.mark.parametrize("field", ["sources", "weights", "environment"])
def test_what_drift_compares_is_told_by_drift(study, field, monkeypatch):
    from protocol.evidence.lock import closure

    now = closure.sources(studies.ROOT)
    monkeypatch.setattr(closure, "sources", lambda root: now)

    def drifting(changed):
        opened = Study(Registration.of(study.folder, lock.Lock(changed, "0" * 64)), study.planned)
        refuse_drift(opened, with_weights=field == "weights")

    content = study.lock.content
    some = dict(list(content["sources"].items())[:3])
    kept = content if field != "sources" else {"sources": some}
    for path, put in edits({field: kept[field]}):
        changed = edited(content, path, put)
        wrong = fields.fault(lock.FIELDS, changed, "lock")
        if not wrong:
            with pytest.raises(Refusal, match="since the lock"):
                drifting(changed)
        if field == "environment" and len(path) > 2:
            break


def test_an_audit_tells_every_edit_that_it_can(study):
    def auditing(changed):
        lock_again.check(Registration.of(study.folder, lock.Lock(changed, "0" * 64)))

    among = study.lock.content.keys() - {"sources", "environment", "policies"}
    untold, used = walk(study.lock.content, auditing, AUDIT, among)
    assert used <= AUDIT.keys()
    assert untold == []
