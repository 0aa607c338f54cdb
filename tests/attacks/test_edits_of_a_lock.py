"""Every value of a lock follows from something else, or it is listed here with the reason why nothing tells.

The law: whatever is changed in lock.json, its digest and its line in the ledger made anew, confirm refuses it
and an audit names it. The walk asks the functions that compare; for some of the edits the commands are run.
"""

import copy
import re
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import studies
import tamperings
from attacking import Repository, assert_refused, rewrite, rewrite_ledger

from protocol import audit
from protocol.evidence import ledger
from protocol.evidence.registration import Registration
from protocol.formats import documents, fields, files
from protocol.formats.findings import CannotTell
from protocol.formats.refusals import Refusal, Tampered
from protocol.lock import bundle, closure, lock
from protocol.preflight import frozen_problems, previously_opened, verify_before_claim
from protocol.recompute import verify_lock
from protocol.workspace.study import Study, open_study, refuse_drift

MOMENT = {
    "name": "a folder may be renamed or copied after it was locked",
    "batch.lanes": "chosen by the memory that was free; no answer depends on it but by rounding",
    "git.commit": "the repository is not here, as in a folder that was sent; with it the audit compares",
    "git.differs": "as above",
    "git": "null is what registering writes outside a repository",
    "release": "names the code that locked, which runs as it was locked",
}
"""What confirm cannot tell, and why."""
AUDIT = MOMENT | {
    "sources": "compared with sources.zip by the item of this name, and with today's by that of judgements",
    "bundle": "as above",
    "weights": "of a model that is not embedded an auditor has no bytes",
    "environment": "of the machine that locked",
    "policies": "derived with torch, by the item of this name",
    **{
        f"checks.problems.{size}.{field}": "simulated where no table has it: audit --simulate derives it"
        for size in (12, 14)
        for field in ("type_one_over_nominal", "type_one_setting")
    },
    "checks.problems 12 and 14 swapped": "as above: nothing else of them differs",
    "checks.decision_errors": "as above",
    "checks.rule": "the judge is run on simulated studies: audit --simulate derives it",
    "checks.same_kept": "models are run, and no word depends on it: confirm derives it",
    "version": "read with the document",
    "kind": "read with the document",
    "release": "a later one cannot be told, which is a gap; one that never was fails",
}
"""What an audit cannot tell without torch, seconds or the author's machine."""

PART = 7  # no divisor of the number of values that most fields have
in_parts = pytest.mark.parametrize("start", [0, *(pytest.param(i, marks=pytest.mark.soak) for i in range(1, PART))])


@pytest.fixture(scope="module")
def study(registered, tmp_path_factory, same_environment) -> Iterator[Study]:
    """The registered study, with what is simulated known."""
    folder = shutil.copytree(registered, tmp_path_factory.mktemp("registrations") / "study")
    with studies.remembering("confirm"):
        opened = open_study(Registration(folder), files.cache_home())
        verify_before_claim.refuse_edited_lock(opened)
        yield opened


@pytest.fixture
def read_once(study, monkeypatch):
    """What no edit changes is not read again for each of hundreds."""
    members = study.registration.source_files
    items = frozen_problems.freeze_items(study.planned)
    monkeypatch.setattr(bundle, "read", lambda archive, sources: members)
    monkeypatch.setattr(frozen_problems, "freeze_items", lambda protocol: copy.deepcopy(items))
    monkeypatch.setattr(previously_opened, "claimed_registrations", lambda folder: [])


def refusal(check, changed) -> str | None:
    """Return what `check` says of an edited lock; None where it says nothing."""
    if wrong := fields.find_fault(lock.FIELDS, changed, "lock"):
        return wrong
    try:
        check(changed)
    except Refusal as refused:
        return str(refused)
    except CannotTell:
        return None
    return None


def exempt(tampering, exemptions) -> set[str]:
    """Return the entries of `exemptions` that are the path of a tampering, or above it, or the tampering itself."""
    return {name for name in exemptions if f"{tampering} ".startswith((f"{name}.", f"{name} "))}


def walk(content, check, exemptions, fields, start, skipped_arms=()) -> tuple[list[str], set[str]]:
    """Return the tamperings that `check` lets pass and that no exemption lists, and the exemptions that are used.

    start: every PART-th tampering is tried, from this one on.
    skipped_arms: arms whose policies are left out, since another's are like them.
    """
    unnoticed, used = [], set()
    for tampering in islice(tamperings.generate(lock.FIELDS, content), start, None, PART):
        path = tampering.path
        if path[0] not in fields or (path[0] == "policies" and len(path) > 2 and path[1] in skipped_arms):
            continue
        if refusal(check, tampering.applied(content)) is None:
            used |= exempt(tampering, exemptions)
            if not exempt(tampering, exemptions):
                unnoticed.append(f"{tampering} = {tampering.value!r}"[:100])
    return unnoticed, used


@in_parts
def test_confirm_tells_every_edit_that_anything_can_tell(start, study, read_once):
    def confirming(changed):
        opened = Study(Registration.with_lock(study.folder, lock.Lock(changed, "0" * 64)), study.planned)
        verify_lock.check(opened.registration)
        verify_before_claim.refuse_edited_lock(opened)

    among = {*study.lock.content, tamperings.ADDED} - {"sources", "weights", "environment"}
    unnoticed, used = walk(study.lock.content, confirming, MOMENT, among, start, {"full", "random", "streaming"})
    assert unnoticed == []
    assert used <= MOMENT.keys()


def relock(folder: Path, change) -> None:
    """Edit the lock and make its line in the ledger anew, as somebody would who knows how."""
    rewrite(folder / "lock.json", change)
    digest = documents.read_unchecked(folder / "lock.json").digest
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


def moved(lock) -> None:
    item = lock["items"]["needle-256"]
    item["dev"].append(item["confirm"].pop(0))


def fewer_cells(lock) -> None:
    lock["grid"] = [cell for cell in lock["grid"] if cell[3] != "streaming"]


def another_rule(lock) -> None:
    lock["rule"]["source"] = "analysis/rules/equivalent.py"
    lock["rule"]["sha256"] = lock["sources"]["analysis/rules/equivalent.py"]


def of_version_1(lock) -> None:
    """As locks once were: without what later ones have to have."""
    lock["version"] = 1
    for name in ("release", "promises", "policies", "amends", "git", "signer", "ledger", "opened"):
        del lock[name]


def never_evicting(lock) -> None:
    lock["promises"]["crystal"]["fires"] = "never"


def generated(name: str):
    """Return the edit of the generated tampering of this name."""

    def edit(lock_content) -> None:
        tampering = next(one for one in tamperings.generate(lock.FIELDS, lock_content) if str(one) == name)
        tampering.apply(lock_content)

    return edit


larger = generated("policies.crystal.protect.sinks changed")


def a_child(lock) -> None:
    lock["parent"] = {"name": "nowhere", "lock": "0" * 64}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (moved, "items.needle-256.confirm"),
        (fewer_cells, "lock.json: grid: 6 entries, but there must be 8"),
        (another_rule, "rule.source: 'analysis/rules/equivalent.py', but must be"),
        (of_version_1, "has version 1, which only the studies that ship with kv-prereg may have"),
        (never_evicting, "grid[1][2]: '0.8', but must be 'full'"),
        (generated("promises.crystal.leaves_at_most changed"), "leaves_at_most: False, but must be True"),
        (generated("items.needle-256.confirm.0 removed"), "items.needle-256.confirm: 11 entries, but there must be 12"),
        (generated("protocol.content.decision.alpha changed"), "decision.alpha: '1.16', but must be '0.05'"),
        (generated("checks.rule.gates.one lane is not run removed"), "checks.rule.gates."),
        (generated("checks.decision_errors.confirmed.high changed"), "checks.decision_errors.confirmed"),
        (larger, "policies.crystal.protect.sinks: '"),
        (generated("batch.first_event changed"), "batch.first_event: 2, but must be 1"),
        (generated("opened removed"), r"the fields ['opened'] are missing"),
    ],
)
def test_an_edited_lock_is_not_confirmed_though_its_ledger_fits(registered, tmp_path, change, words):
    folder = shutil.copytree(registered, tmp_path / "registrations" / "study")
    relock(folder, change)
    assert_refused(3, words, "confirm", folder)


@pytest.mark.parametrize("change", [moved, larger])
def test_a_claim_by_hand_of_an_edited_lock_is_not_resumed(registered, tmp_path, change):
    folder = shutil.copytree(registered, tmp_path / "registrations" / "study")
    relock(folder, change)
    claim_by_hand(folder)
    assert_refused(3, "lock.json: ", "confirm", folder)


def test_a_lock_that_calls_itself_a_replication_of_nothing_is_not_confirmed(registered, tmp_path):
    folder = shutil.copytree(registered, tmp_path / "registrations" / "study")
    relock(folder, a_child)
    assert_refused(2, "replicates nowhere, whose lock 000000000000 is in no folder next to it", "confirm", folder)


def test_an_edited_lock_is_not_probed_and_its_study_not_replicated(registered, confirmed, tmp_path):
    folder = shutil.copytree(registered, tmp_path / "registrations" / "study")
    relock(folder, larger)
    assert_refused(3, "policies.crystal.protect.sinks", "probe", folder)
    done = shutil.copytree(confirmed, tmp_path / "registrations" / "done")
    rewrite(done / "lock.json", fewer_cells)
    assert_refused(3, "lock.json: grid: 6 entries", "replicate", done)


def test_a_protocol_that_is_something_else_is_named(registered, tmp_path):
    """With its digest in the lock, which is all that was compared once."""
    folder = shutil.copytree(registered, tmp_path / "registrations" / "study")
    for text, words in {
        "hello\n": "protocol.toml: invalid TOML",
        'title = "hello"\n': "protocol.content",
        "[[": "protocol.toml: invalid TOML",
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
    assert_refused(3, "opened: does not list earlier, whose claim is in the commit", "confirm", folder)
    with pytest.raises(Tampered, match="opened: does not list earlier"):
        verify_lock.check(Registration(folder))
    shared = {task: item["confirm"] for task, item in lock.read(folder).content["items"].items()}
    listed = [{"name": "earlier", "lock": lock.read(earlier).digest, "problems": shared}]
    shared["needle-256"] = shared["needle-256"][1:]
    relock(folder, lambda lock: lock.update(opened=listed))
    assert_refused(3, "opened.earlier.needle-256: 11 entries, but there must be 12", "confirm", folder)
    with pytest.raises(Tampered, match="needle-256: 11 entries"):
        verify_lock.check(Registration(folder))


def test_a_policy_of_other_settings_is_named_by_the_audit(study):
    assert "settings of 4 arms" in verify_lock.check_policies(study.registration)
    for field in ("policies", "promises"):
        held = study.lock.content[field]
        assert len(held) == 4
        for tampering in tamperings.generate(lock.FIELDS.fields[field].kind, held, (field,)):
            changed = tampering.applied(study.lock.content)
            if set(tampering.path) & {"full", "random", "streaming"} or fields.find_fault(lock.FIELDS, changed, "lock"):
                continue
            with pytest.raises(Tampered, match=field):
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
    some = dict(list(content[field].items())[:3])
    for tampering in tamperings.generate(lock.FIELDS.fields[field].kind, some, (field,)):
        changed = tampering.applied(content)
        if len(tampering.path) > 1 and not fields.find_fault(lock.FIELDS, changed, "lock"):
            with pytest.raises(Refusal, match="since the lock"):
                drifting(changed)
        if field == "environment" and len(tampering.path) > 2:
            break


def test_an_audit_that_simulates_tells_every_edit_of_what_was_simulated(study, read_once):
    """With the results of registering, which simulated this protocol; what it refuses, another test has."""
    content = study.lock.content
    with studies.remembering("confirm"):
        findings = audit.audit(study.registration, (), audit.AuditOptions(simulate=True)).findings
        (finding,) = (one for one in findings if one.item == "simulations")
        assert (finding.status, "the self-test of the rule give the same results" in finding.detail) == ("held", True)
        for field in verify_lock.SIMULATED:
            kind = lock.FIELDS.fields["checks"].kind.fields[field].kind
            for tampering in tamperings.generate(kind, content["checks"][field], ("checks", field)):
                changed = tampering.applied(content)
                if not fields.find_fault(lock.FIELDS, changed, "lock"):
                    edited = Registration.with_lock(study.folder, lock.Lock(changed, "0" * 64))
                    with pytest.raises(Tampered, match=rf"checks\.{field}"):
                        verify_lock.check_simulated(edited)


def test_other_libraries_may_simulate_otherwise_and_accuse_nobody(study, read_once):
    """A difference that another numpy or scipy may have made cannot be told; without one nothing is said."""
    other = copy.deepcopy(study.lock.content)
    other["environment"]["distributions"]["numpy"]["version"] = "1.0"
    verify_lock.check(Registration.with_lock(study.folder, lock.Lock(other, "0" * 64)))
    other["checks"]["problems"]["12"]["minimal_detectable_effect"]["0.2"] = "0.001"
    other["checks"]["decision_errors"]["studies"] += 1
    edited = Registration.with_lock(study.folder, lock.Lock(other, "0" * 64))
    with pytest.raises(CannotTell, match="minimal_detectable_effect"):
        verify_lock.check(edited)
    with studies.remembering("confirm"), pytest.raises(CannotTell, match="decision_errors"):
        verify_lock.check_simulated(edited)


@in_parts
def test_an_audit_tells_every_edit_that_it_can(start, study, read_once):
    def auditing(changed):
        verify_lock.check(Registration.with_lock(study.folder, lock.Lock(changed, "0" * 64)))

    among = {*study.lock.content, tamperings.ADDED} - {"sources", "environment", "policies"}
    unnoticed, used = walk(study.lock.content, auditing, AUDIT, among, start)
    assert used <= AUDIT.keys()
    assert unnoticed == []
