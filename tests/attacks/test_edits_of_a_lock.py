"""Every value of a lock follows from something else, or it is listed here with the reason why nothing tells.

The law: whatever is changed in lock.json, its digest and its line in the ledger made anew, confirm refuses it
and an audit names it. The walk asks the functions that compare; for some of the edits the commands are run.
"""

import copy
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import studies
from attacking import Repository, refused, rewrite, rewrite_ledger

from protocol.evidence import ledger
from protocol.evidence.registration import Registration
from protocol.formats import documents, fields
from protocol.formats.findings import CannotTell
from protocol.formats.refusals import Refusal, Tampered
from protocol.lock import bundle, closure, frozen_problems, lock, previously_opened
from protocol.models import sources
from protocol.preflight import verify_before_claim
from protocol.recompute import verify_lock
from protocol.workspace.study import Study, open_study, refuse_drift

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
        opened = open_study(Registration(folder), sources.cache_home())
        verify_before_claim.refuse_edited_lock(opened)
        yield opened


@pytest.fixture
def read_once(study, monkeypatch):
    """What no edit changes is not read again for each of hundreds."""
    members = bundle.read(study.registration.bundle, study.lock.content["sources"])
    items = frozen_problems.freeze_items(study.planned)
    monkeypatch.setattr(bundle, "read", lambda archive, names: {name: members[name] for name in names})
    monkeypatch.setattr(frozen_problems, "freeze_items", lambda protocol: copy.deepcopy(items))
    monkeypatch.setattr(previously_opened, "claimed_registrations", lambda folder: [])


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
    if wrong := fields.find_fault(lock.FIELDS, changed, "lock"):
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


def walk(content, check, known, among, one_of=()) -> tuple[list[str], set[str]]:
    """The edits that `check` does not tell and that are not listed; the listed ones that it does not tell.

    one_of: arms whose policies are left out, since another's are like them.
    """
    untold, used = [], set()
    for path, put in edits(content):
        if path[0] not in among or (path[0] == "policies" and len(path) > 2 and path[1] in one_of):
            continue
        if told(check, content, path, put) is None:
            if listed(path, known):
                used |= {name for name in known if listed(path, [name])}
            else:
                untold.append(f"{dotted(path)} = {put!r}"[:100])
    return untold, used


def test_confirm_tells_every_edit_that_anything_can_tell(study, read_once):
    def confirming(changed):
        opened = Study(Registration.with_lock(study.folder, lock.Lock(changed, "0" * 64)), study.planned)
        verify_lock.check(opened.registration)
        verify_before_claim.refuse_edited_lock(opened)

    among = study.lock.content.keys() - {"sources", "weights", "environment"}
    untold, used = walk(study.lock.content, confirming, MOMENT, among, {"full", "random", "streaming"})
    assert untold == []
    assert used <= MOMENT.keys()


def relock(folder: Path, change) -> None:
    """Edit the lock and make its line in the ledger anew, as somebody would who knows how."""
    rewrite(folder / "lock.json", change)
    digest = lock.read(folder).digest
    rewrite_ledger(folder, lambda lines: lines.__setitem__(0, ("register", {"lock": digest})))


def claim_by_hand(folder: Path) -> None:
    """What only confirm may write: claim, line and attempt, of the edited lock."""
    content = {
        "kind": "kv-prereg claim",
        "version": 1,
        "lock": lock.read(folder).digest,
        "ledger": ledger.read_head(folder),
    }
    digest = documents.write(folder / "claim.json", content)
    ledger.append(folder, "claim", {"claim": digest})
    ledger.append(folder, "attempt", {"number": 1, "records": 0})
    ledger.append(folder, "held-out", {"task": "needle-256", "purpose": "confirm"})


def dropped(lock) -> None:
    lock["items"]["needle-256"]["confirm"].pop(0)


def moved(lock) -> None:
    item = lock["items"]["needle-256"]
    item["dev"].append(item["confirm"].pop(0))


def fewer_cells(lock) -> None:
    lock["grid"] = [cell for cell in lock["grid"] if cell[3] != "streaming"]


def softer(lock) -> None:
    lock["protocol"]["content"]["decision"]["alpha"] = "0.2"


def longer(lock) -> None:
    lock["protocol"]["content"]["tasks"][0]["max_new_tokens"] = 48


def larger(lock) -> None:
    lock["policies"]["crystal"]["protect.sinks"] = "400"


def no_rule(lock) -> None:
    lock["checks"]["rule"]["gates"].popitem()


def fewer_errors(lock) -> None:
    lock["checks"]["decision_errors"]["confirmed"]["high"] = "0.000100"


def another_rule(lock) -> None:
    lock["rule"]["source"] = "analysis/rules/equivalent.py"
    lock["rule"]["sha256"] = lock["sources"]["analysis/rules/equivalent.py"]


def at_once(lock) -> None:
    lock["batch"]["first_event"] = 0


def never_asked(lock) -> None:
    del lock["opened"]


def of_before(lock) -> None:
    for name in ("policies", "amends", "git", "signer", "ledger", "opened"):
        del lock[name]


def a_child(lock) -> None:
    lock["parent"] = {"name": "nowhere", "lock": "0" * 64}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dropped, "items.needle-256.confirm: 11 entries, there have to be 12"),
        (moved, "items.needle-256.confirm"),
        (fewer_cells, "lock.json: grid: 6 entries, there have to be 8"),
        (softer, "protocol.content.decision.alpha: '0.2', it has to be '0.05'"),
        (longer, "protocol.content.tasks[0].max_new_tokens: 48, it has to be 24"),
        (larger, "policies.crystal.protect.sinks: '400', it has to be"),
        (no_rule, "checks.rule.gates."),
        (fewer_errors, "checks.decision_errors.confirmed"),
        (another_rule, "rule.source: 'analysis/rules/equivalent.py', it has to be"),
        (at_once, "batch.first_event: 0, it has to be 1"),
        (never_asked, "opened: missing"),
        (of_before, "policies: missing"),
    ],
)
def test_an_edited_lock_is_not_confirmed_though_its_ledger_fits(registered, tmp_path, change, words):
    folder = shutil.copytree(registered, tmp_path / "registrations" / "study")
    relock(folder, change)
    refused(3, words, "confirm", folder)


@pytest.mark.parametrize("change", [dropped, larger])
def test_a_claim_by_hand_of_an_edited_lock_is_not_resumed(registered, tmp_path, change):
    folder = shutil.copytree(registered, tmp_path / "registrations" / "study")
    relock(folder, change)
    claim_by_hand(folder)
    refused(3, "lock.json: ", "confirm", folder)


def test_a_lock_that_calls_itself_a_replication_of_nothing_is_not_confirmed(registered, tmp_path):
    folder = shutil.copytree(registered, tmp_path / "registrations" / "study")
    relock(folder, a_child)
    refused(2, "replicates nowhere, of which no folder beside has the lock", "confirm", folder)


def test_an_edited_lock_is_not_probed_and_its_study_not_replicated(registered, confirmed, tmp_path):
    folder = shutil.copytree(registered, tmp_path / "registrations" / "study")
    relock(folder, larger)
    refused(3, "policies.crystal.protect.sinks", "probe", folder)
    done = shutil.copytree(confirmed, tmp_path / "registrations" / "done")
    rewrite(done / "lock.json", fewer_cells)
    refused(3, "lock.json: grid: 6 entries", "replicate", done)


def test_a_protocol_that_is_something_else_is_named(registered, tmp_path):
    """With its digest in the lock, which is all that was compared once."""
    folder = shutil.copytree(registered, tmp_path / "registrations" / "study")
    for text, words in {
        "hello\n": "protocol.toml: is no TOML",
        'title = "hello"\n': "protocol.content",
        "[[": "protocol.toml: is no TOML",
    }.items():
        (folder / "protocol.toml").write_text(text)
        digest = closure.sha256_hex(text.encode())
        relock(folder, lambda lock, digest=digest: lock["protocol"].update(sha256=digest))
        with pytest.raises(Tampered, match=re.escape(words)):
            verify_lock.check(Registration(folder))


def test_an_earlier_claim_that_the_repository_shows_cannot_be_left_out(registered, confirmed, tmp_path):
    """The study was registered on a commit that has another one's claim, of the same problems."""
    shelf = tmp_path / "registrations"
    earlier = shutil.copytree(confirmed, shelf / "earlier")
    folder = shutil.copytree(registered, shelf / "study")
    repository = Repository(tmp_path)
    repository.git("init", "--quiet", "--initial-branch=main")
    repository.commit("the earlier one")
    commit = repository.git("rev-parse", "HEAD").strip()
    sources = sorted(lock.read(folder).content["sources"])  # no source is committed here
    relock(folder, lambda lock: lock.update(git={"commit": commit, "differs": sources}))
    refused(3, "opened: does not list earlier, whose claim is in the commit", "confirm", folder)
    with pytest.raises(Tampered, match="opened: does not list earlier"):
        verify_lock.check(Registration(folder))
    shared = {task: item["confirm"] for task, item in lock.read(folder).content["items"].items()}
    listed = [{"name": "earlier", "lock": lock.read(earlier).digest, "problems": shared}]
    shared["needle-256"] = shared["needle-256"][1:]
    relock(folder, lambda lock: lock.update(opened=listed))
    refused(3, "opened.earlier.needle-256: 11 entries, there have to be 12", "confirm", folder)
    with pytest.raises(Tampered, match="needle-256: 11 entries"):
        verify_lock.check(Registration(folder))


def test_a_policy_of_other_settings_is_named_by_the_audit(study):
    assert "settings of 4 arms" in verify_lock.check_policies(study.registration)
    held = study.lock.content["policies"]
    assert len(held) == 4
    for path, put in edits({"policies": {"crystal": held["crystal"]}}):
        if len(path) == 1:  # without any it is a lock of before, as its other fields have to be
            continue
        changed = edited(study.lock.content, path, put)
        with pytest.raises(Tampered, match="policies"):
            verify_lock.check_policies(Registration.with_lock(study.folder, lock.Lock(changed, "0" * 64)))


@pytest.mark.parametrize("field", ["sources", "weights", "environment"])
def test_what_drift_compares_is_told_by_drift(study, field, monkeypatch):
    from protocol.lock import closure

    now = closure.sources(studies.ROOT)
    monkeypatch.setattr(closure, "sources", lambda root: now)

    def drifting(changed):
        opened = Study(Registration.with_lock(study.folder, lock.Lock(changed, "0" * 64)), study.planned)
        refuse_drift(opened, with_weights=field == "weights")

    content = study.lock.content
    some = dict(list(content["sources"].items())[:3])
    kept = content if field != "sources" else {"sources": some}
    for path, put in edits({field: kept[field]}):
        changed = edited(content, path, put)
        wrong = fields.find_fault(lock.FIELDS, changed, "lock")
        if not wrong:
            with pytest.raises(Refusal, match="since the lock"):
                drifting(changed)
        if field == "environment" and len(path) > 2:
            break


def test_an_audit_tells_every_edit_that_it_can(study, read_once):
    def auditing(changed):
        verify_lock.check(Registration.with_lock(study.folder, lock.Lock(changed, "0" * 64)))

    among = study.lock.content.keys() - {"sources", "environment", "policies"}
    untold, used = walk(study.lock.content, auditing, AUDIT, among)
    assert used <= AUDIT.keys()
    assert untold == []
