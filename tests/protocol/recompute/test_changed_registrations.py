"""Which registrations changed files belong to, what fails a pull request, and what its summary says."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import studies

from protocol import audit_changed
from protocol.audit import AuditResult
from protocol.audit_changed import AuditedFolder
from protocol.formats.findings import Finding
from protocol.formats.refusals import Tampered
from protocol.lock import bundle
from protocol.recompute import changed_registrations

QUICKSTART = studies.ROOT / "registrations" / "quickstart"
GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]


def git(place: Path, *arguments: str) -> str:
    done = subprocess.run([*GIT, *arguments], cwd=place, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(place: Path) -> str:
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--allow-empty", "--message", "x")
    return git(place, "rev-parse", "HEAD")


@pytest.fixture
def locked(tmp_path) -> Path:
    """A clone with one study as it was when it was locked."""
    folder = tmp_path / "registrations" / "quickstart"
    folder.mkdir(parents=True)
    for name in ("protocol.toml", "lock.json"):
        shutil.copy(QUICKSTART / name, folder / name)
    shutil.copy(QUICKSTART.parent / bundle.SHARED, folder.parent / bundle.SHARED)
    first = (QUICKSTART / "ledger.jsonl").read_bytes().splitlines(keepends=True)[0]
    (folder / "ledger.jsonl").write_bytes(first)
    (tmp_path / "README.md").write_text("mine\n")
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    commit(tmp_path)
    return folder


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    status = audit_changed.main([*map(str, arguments)])
    return status, *capsys.readouterr()


def test_a_file_belongs_to_every_registration_that_it_lies_below(locked, tmp_path):
    hidden = locked / "records" / "more"
    shutil.copytree(locked, hidden)
    draft = tmp_path / "registrations" / "draft"
    draft.mkdir()
    (draft / "protocol.toml").write_text("")
    names = [hidden / "lock.json", hidden / "ledger.jsonl", draft / "protocol.toml", tmp_path / "README.md"]
    assert changed_registrations.find_registrations(names) == ([locked, hidden], [draft], [])


def test_a_folder_of_records_alone_is_anybodys(tmp_path):
    (tmp_path / "records").mkdir()
    assert changed_registrations.find_registrations([tmp_path / "records" / "song.ogg"]).registered == []


def test_a_study_under_way_passes_and_one_flipped_byte_does_not(locked, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = locked / "ledger.jsonl"
    status, out, err = run(capsys, ledger.relative_to(tmp_path), "README.md")
    assert (status, err) == (0, "auditing registrations/quickstart\n")
    assert out.splitlines()[-1] in ("1 held", "1 unfinished")
    ledger.write_bytes(ledger.read_bytes().replace(b'"register"', b'"withdraw"'))
    status, out, _ = run(capsys, ledger, "--summary", tmp_path / "summary.md")
    assert status == 3
    assert out.splitlines()[-1] == "1 failed"
    assert "AUDIT FAILED" in out
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("### Audit of changed registrations: 1 failed\n\n```text\n")
    assert "AUDIT FAILED" in summary


def test_what_head_changed_since_it_left_a_commit_is_asked_of_git(locked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    start = commit(tmp_path)
    git(tmp_path, "checkout", "--quiet", "-b", "own")
    (locked / "protocol.toml").write_text("other")
    commit(tmp_path)
    git(tmp_path, "checkout", "--quiet", "main")
    other = tmp_path / "registrations" / "other"
    shutil.copytree(locked, other)
    main = commit(tmp_path)  # what others did meanwhile is no change of this branch
    git(tmp_path, "checkout", "--quiet", "own")
    for since in (start, main):
        assert changed_registrations.changed_since(since) == ([Path("registrations/quickstart")], [], [])
    monkeypatch.chdir(locked)
    assert changed_registrations.changed_since(start).registered == [Path()]


@pytest.mark.parametrize("is_kept", [True, False])
def test_all_studies_that_share_an_archive_change_with_it(locked, tmp_path, monkeypatch, is_kept):
    other = shutil.copytree(locked, locked.with_name("other"))
    (other / "sources.zip").write_bytes(b"its own")
    base = commit(tmp_path)
    archive = locked.parent / bundle.SHARED
    archive.write_bytes(archive.read_bytes()[:-1]) if is_kept else archive.unlink()
    commit(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert changed_registrations.changed_since(base).registered == [Path("registrations/quickstart")]


@pytest.mark.parametrize("left", [(), ("protocol.toml",)], ids=["whole", "in part"])
def test_a_locked_study_that_is_taken_away_fails(locked, tmp_path, monkeypatch, capsys, left):
    base = commit(tmp_path)
    for path in locked.iterdir():
        if path.name not in left:
            path.unlink()
    commit(tmp_path)
    monkeypatch.chdir(tmp_path)
    status, out, _ = run(capsys, "--since", base)
    assert status == 3
    assert "registrations/quickstart: was locked and is gone" in out


def test_a_study_that_is_moved_is_not_gone(locked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = commit(tmp_path)
    locked.rename(tmp_path / "registrations" / "002-renamed")
    commit(tmp_path)
    found = changed_registrations.changed_since(base)
    assert [path.name for path in found.registered] == ["002-renamed"]
    assert found.removed == []


def test_a_study_that_is_moved_keeps_every_line_of_its_ledger(locked, tmp_path, monkeypatch):
    ledger = locked / "ledger.jsonl"
    registered = ledger.read_bytes()
    ledger.write_bytes(registered + b"{}\n")  # a run began
    base = commit(tmp_path)
    moved = locked.rename(tmp_path / "registrations" / "002-renamed")
    (moved / "ledger.jsonl").write_bytes(registered)
    commit(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert changed_registrations.changed_since(base).removed == ["registrations/quickstart"]


def test_a_lock_that_is_kept_as_another_file_is_gone(locked, tmp_path, monkeypatch):
    base = commit(tmp_path)
    locked.joinpath("lock.json").rename(tmp_path / "old.txt")
    shutil.rmtree(locked)
    commit(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert changed_registrations.changed_since(base) == ([], [], ["registrations/quickstart"])


def test_a_registration_that_is_a_link_fails(locked, monkeypatch, capsys):
    """What it leads to may lie outside of the repository, and is no part of the change."""
    monkeypatch.setattr(audit_changed.audit, "audit", None)
    linked = locked.with_name("linked")
    linked.symlink_to(locked)
    status, out, _ = run(capsys, linked)
    assert status == 3
    assert "linked: is a link" in out


def test_a_lock_of_another_program_may_go(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    git(tmp_path, "init", "--quiet")
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "lock.json").write_text("{}")
    base = commit(tmp_path)
    (tmp_path / "web" / "lock.json").unlink()
    commit(tmp_path)
    assert changed_registrations.changed_since(base) == ([], [], [])


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["nowhere.json"], "nowhere.json: no such file"),
        (["--since", "nowhere"], "--since nowhere: git diff: "),
        (["--since", ""], "--since: does not name a commit"),
        (["--since", "--output=stolen"], "--since --output=stolen: git diff: "),
        (["README.md", "--since", "HEAD"], "give either the files or the commit"),
    ],
    ids=["no file", "no commit", "empty", "an option", "both"],
)
def test_what_cannot_be_asked_is_refused_in_one_line(locked, tmp_path, monkeypatch, capsys, typed, said):
    monkeypatch.chdir(tmp_path)
    typed = [f"--since={typed[1]}"] if typed[0] == "--since" else typed
    status, out, err = run(capsys, *typed)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert not (tmp_path / "stolen").exists()


AUDITED = {
    0: Finding("files", "held", ""),
    6: Finding("claim", "unfinished", "running"),
    7: Finding("history", "cannot tell", "shallow"),
    3: Finding("seal", "failed", "another"),
}


@pytest.mark.parametrize(("status", "fails"), [(0, 0), (6, 0), (7, 7), (3, 3)])
def test_only_what_an_audit_tells_passes(locked, monkeypatch, capsys, status, fails):
    finding = AUDITED[status]
    item = "grades" if status == 7 else finding.item  # an item of the folder itself
    audited = AuditResult([finding._replace(item=item)], [], None, "")
    monkeypatch.setattr(audit_changed.audit, "audit", lambda *_: audited)
    assert run(capsys, locked / "lock.json")[0] == fails


def test_what_an_audit_refuses_has_failed_and_the_others_are_audited(locked, monkeypatch, capsys):
    def refuse(*_):
        raise Tampered("a link")

    second = shutil.copytree(locked, locked.parent / "second")
    monkeypatch.setattr(audit_changed.audit, "audit", refuse)
    status, out, _ = run(capsys, locked / "lock.json", second / "lock.json", "--json")
    told = json.loads(out)["registrations"]
    assert status == 3
    assert [one["stands"] for one in told] == ["failed", "failed"]
    assert told[1]["said"].endswith("second: Tampered: a link")


def test_nothing_of_a_study_stands_outside_of_a_fence():
    hostile = "x\n```\n<img src=//evil>\n````` \x1b[2J\u2028::error::y"
    page = audit_changed.format_markdown([AuditedFolder("failed", hostile, [hostile])])
    assert page == (
        "### Audit of changed registrations: 1 failed\n\n``````text\n"
        + 2 * "x ``` <img src=//evil> ````` \\u001b[2J ::error::y\n"  # a line of a study stays one
        + "``````\n\n"
    )


def test_nothing_changed_is_said(tmp_path, capsys):
    (tmp_path / "README.md").write_text("")
    assert run(capsys, tmp_path / "README.md")[:2] == (0, "no registration was changed\n")
