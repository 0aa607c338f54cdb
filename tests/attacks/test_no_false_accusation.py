"""An honest study on a machine that lacks something, or in a copy that git made otherwise: no accusation."""

import errno
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import commands
import pytest
import studies
from attacking import Repository, findings
from commands import READING
from looped import looped
from sampled import sampled

from protocol.evidence.audit import auditor, study_status
from protocol.evidence.external import git_history
from protocol.evidence.registration import Registration
from protocol.formats import files
from protocol.formats.findings import CannotTell, NotRun, Unfinished
from protocol.formats.refusals import BadInput, Tampered
from protocol.lock import git_attributes

AUDIT, STATUS = READING[0], next(one for one in READING if one.module == "protocol.status")


def accused(study: Path) -> list[str]:
    return [f"{item}: {one['detail']}" for item, one in findings(study).items() if one["status"] == "failed"]


def raising(problem: Exception):
    def check() -> str:
        raise problem

    return check


# --- what an exception comes to


@looped(
    "problem",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded", "/tmp/x"),
        OSError(errno.EMFILE, "Too many open files"),
        OSError(errno.EROFS, "Read-only file system"),
        OSError(errno.EIO, "Input/output error"),
        PermissionError(errno.EACCES, "Permission denied", "lock.json"),
        BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
        FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"),
        MemoryError(),
        subprocess.TimeoutExpired("git", 60),
        ModuleNotFoundError("No module named 'scipy'"),
    ],
    ids=repr,
)
def test_what_this_machine_lacks_cannot_be_told_and_the_remedy_is_said(problem):
    found = auditor.run_check("seal", raising(problem))
    assert found.status == "cannot tell"
    assert any(word in found.detail for word in ("run", "again", "install", "raise"))


@looped(
    "problem",
    [
        KeyError("verdict"),
        TypeError("'int' object is not\nsubscriptable"),
        ValueError("x"),
        RecursionError(),
        FileNotFoundError(errno.ENOENT, "No such file or directory", "seal.json"),
        NotADirectoryError(errno.ENOTDIR, "Not a directory", "records/x"),
        IsADirectoryError(errno.EISDIR, "Is a directory", "seal.json"),
        Tampered("seal.json: missing"),
        BadInput("no claim"),
    ],
    ids=repr,
)
def test_what_a_damaged_file_provokes_fails_in_one_line(problem):
    found = auditor.run_check("seal", raising(problem))
    assert found.status == "failed"
    assert "\n" not in found.detail


def test_the_other_outcomes_stay_what_they_are():
    raised = {NotRun(): "not run", CannotTell("x"): "cannot tell", Unfinished("x"): "unfinished"}
    assert {auditor.run_check("a", raising(one)).status: wanted for one, wanted in raised.items()} == {
        wanted: wanted for wanted in raised.values()
    }
    assert auditor.run_check("a", lambda: "one\nheld  forged: line") == ("a", "held", "one held forged: line")


# --- a machine that lacks something


def test_a_full_folder_for_temporary_files_accuses_nobody(study, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    assert accused(study) == []


def test_a_tool_that_is_missing_accuses_nobody(study, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert accused(study) == []
    assert findings(study)["history"]["status"] == "cannot tell"


@pytest.mark.skipif(os.geteuid() != 0, reason="takes rights away from itself, and back")
@pytest.mark.parametrize(
    "name", sampled(["seal.json", "ledger.jsonl", "sources.zip", "records/shard-0.jsonl", "records"], of=2)
)
def test_a_file_that_may_not_be_read_accuses_nobody(study, name):
    findings(study)  # imports what it needs
    with tempfile.TemporaryDirectory() as own:  # that of pytest is closed to others
        Path(own).chmod(0o755)
        there = Path(shutil.copytree(study, Path(own) / "registrations" / "study"))
        (there / name).chmod(0)
        os.seteuid(65534)
        try:
            found = accused(there)
            stands = study_status.read_status(Registration(there))
            status = commands.run(AUDIT, there).status
        finally:
            os.seteuid(0)
            (there / name).chmod(0o755)
    assert found == []
    assert status == 7
    assert stands.state != "INVALID"


# --- copies that git makes


def cloned(study: Path, to: Path, *options: str) -> Path:
    """A clone of the repository of `study`, without its attributes, as somebody's git is set up."""
    root = study.parent.parent
    Repository(to.parent).git(*options[:2], "clone", "--quiet", *options[2:], f"file://{root}", str(to))
    return to / "registrations" / "study"


@pytest.fixture
def bare_of_attributes(study) -> Path:
    """As a study that was registered before `register` wrote .gitattributes."""
    (study / git_attributes.NAME).unlink()
    Repository(study.parent.parent).commit("no attributes")
    return study


def test_register_writes_what_keeps_git_from_rewriting_line_endings(study, tmp_path):
    assert (study / git_attributes.NAME).read_bytes() == git_attributes.CONTENT
    there = cloned(study, tmp_path / "clone", "-c", "core.autocrlf=true")
    for name in ("protocol.toml", "lock.json", "ledger.jsonl", "records/shard-0.jsonl"):
        assert (there / name).read_bytes() == (study / name).read_bytes()


def test_attributes_that_somebody_wrote_are_left_alone(tmp_path):
    (tmp_path / git_attributes.NAME).write_text("* binary\n")
    git_attributes.write(tmp_path)
    assert (tmp_path / git_attributes.NAME).read_text() == "* binary\n"


def test_a_clone_with_other_line_endings_accuses_nobody(bare_of_attributes, tmp_path):
    there = cloned(bare_of_attributes, tmp_path / "clone", "-c", "core.autocrlf=true")
    assert b"\r\n" in (there / "protocol.toml").read_bytes()
    assert accused(there) == []
    told = findings(there)
    assert "core.autocrlf=false" in told["lock"]["detail"]
    assert "held" not in {told[item]["status"] for item in ("lock", "ledger", "records", "seal", "verdict")}
    assert commands.run(AUDIT, there).status == 7
    said = commands.run(STATUS, there)
    assert (said.status, "INVALID" in said.out) == (7, False), said


@pytest.mark.parametrize("name", ["protocol.toml", "seal.json", "ledger.jsonl", "records/shard-0.jsonl"])
def test_one_file_with_other_line_endings_accuses_nobody(study, name):
    studies.edit(study / name, b"\n", b"\r\n")
    assert accused(study) == []


@pytest.mark.parametrize("name", ["protocol.toml", "seal.json"])
def test_an_edit_with_other_line_endings_is_not_held(study, name):
    data = (study / name).read_bytes().replace(b"e", b"a", 1)
    (study / name).write_bytes(data.replace(b"\n", b"\r\n"))
    assert commands.run(AUDIT, study).status in (3, 7)


def test_a_protocol_that_was_edited_is_no_matter_of_line_endings(study):
    data = (study / "protocol.toml").read_bytes().replace(b"alpha = 0.05", b"alpha = 0.5")
    (study / "protocol.toml").write_bytes(data.replace(b"\n", b"\r\n"))
    assert findings(study)["protocol"]["status"] == "failed"


@pytest.mark.parametrize(
    "options",
    sampled(
        [
            ("-c", "a.b=c", "--depth=1"),
            ("-c", "uploadpack.allowFilter=true", "--filter=blob:none"),
            ("-c", "uploadpack.allowFilter=true", "--filter=tree:0"),
            ("-c", "a.b=c", "--single-branch"),
        ],
        of=2,
    ),
    ids=lambda options: options[-1],
)
def test_a_clone_that_is_not_whole_accuses_nobody(study, tmp_path, options):
    Repository(study.parent.parent).git("config", "uploadpack.allowFilter", "true")
    there = cloned(study, tmp_path / "clone", *options)
    assert accused(there) == []
    if options[-1] != "--single-branch":
        assert findings(there)["history"]["status"] == "cannot tell"


def test_a_work_tree_a_submodule_and_a_sparse_one_accuse_nobody(study, tmp_path):
    repository = Repository(study.parent.parent)
    repository.git("worktree", "add", "--quiet", str(tmp_path / "linked"), "HEAD")
    assert accused(tmp_path / "linked" / "registrations" / "study") == []
    outer = Repository(tmp_path)
    outer.git("init", "--quiet", "outer")
    inner = Repository(tmp_path / "outer")
    inner.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(repository.root), "inner")
    assert accused(tmp_path / "outer" / "inner" / "registrations" / "study") == []
    repository.git("config", "core.sparseCheckout", "true")
    shutil.rmtree(study / "probe")  # as it was never checked out
    with pytest.raises(CannotTell, match="sparse-checkout disable"):
        git_history.check(Registration(study))


def test_a_repository_of_another_owner_accuses_nobody(study):
    for path in (study.parent.parent, *(study.parent.parent / ".git").rglob("*")):
        os.chown(path, 65534, 65534)
    assert accused(study) == []


def test_a_folder_whose_name_is_not_utf8_accuses_nobody(study):
    root = study.parent.parent
    other = root.rename(root.with_name(os.fsdecode(b"caf\xe9")))
    Repository(other).git("mv", "registrations/study", os.fsdecode(b"registrations/\xe9tude"))
    Repository(other).commit("moved")
    assert accused(other / os.fsdecode(b"registrations/\xe9tude")) == []


def test_a_signature_that_is_asked_for_is_not_optional(study, tmp_path):
    (tmp_path / "signers").write_text("author ssh-ed25519 AAAA\n")
    found = findings(study, "--signers", tmp_path / "signers")["signature"]
    assert (found["status"], "you require" in found["detail"]) == ("failed", True)
    assert findings(study)["signature"]["status"] == "not run"


# --- a study on its way


@pytest.mark.parametrize("stage", ["register", "probe"])
def test_a_study_on_its_way_is_not_tampered_with(history, tmp_path, stage):
    there = shutil.copytree(history[stage], tmp_path / "repository") / "registrations" / "study"
    assert accused(there) == []
    assert commands.run(AUDIT, there).status in (0, 6)


def test_a_study_that_is_sealed_and_not_judged_is_unfinished(confirmed, tmp_path):
    there = shutil.copytree(confirmed, tmp_path / "study")
    lines = (there / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (there / "ledger.jsonl").write_bytes(b"".join(lines[:-1]))
    (there / "verdict.json").unlink()
    assert accused(there) == []


def test_reading_again_what_was_read_is_all_the_same(study):
    """The guards change no byte: the honest study of these tests holds, in the folder it was made in."""
    assert files.read(study / "lock.json") == (study / "lock.json").read_bytes()
    assert accused(study) == []
    assert studies.snapshot(study)
