"""Git as a witness of history: attacks on a committed registration, and what honest work leaves."""

import os
import shutil
import subprocess
from pathlib import Path

import finished_study
import pytest
import studies
from sampled import shipped
from studies import ROOT

from protocol.evidence import ledger
from protocol.evidence.external import git_history, missing_registrations
from protocol.evidence.external.git_repository import Repository
from protocol.evidence.registration import Registration
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.refusals import Tampered
from protocol.lock import bundle, closure, lock
from protocol.lock.lock import Lock

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

ME = ("-c", "user.name=Ann", "-c", "user.email=ann@lab.example", "-c", "protocol.file.allow=always")


def locked(folder, content):
    """A registration whose lock has this content."""
    return Registration.with_lock(folder, Lock(content, ""))


def git(place: Path, *arguments: object, date: str = "2026-01-01T00:00:00Z", ok: bool = True) -> str:
    """What git prints, run by somebody without settings; `date` is that of a commit."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    command = ["git", *ME, "-C", place, *map(str, arguments)]
    done = subprocess.run(command, env=plain | settings, capture_output=True, text=True)
    assert done.returncode == 0 or not ok, done.stderr
    return done.stdout.strip()


def commit(place: Path, **more: str) -> str:
    git(place, "add", "--all", "--force", ".")
    git(place, "commit", "--quiet", "--allow-empty", "-m", "a step", **more)
    return git(place, "rev-parse", "HEAD")


def repository(place: Path, *options: str) -> Path:
    place.mkdir(parents=True)
    git(place, "init", "--quiet", "--initial-branch=main", *options)
    (place / "registrations").mkdir()
    return place


def stepwise(root: Path) -> Path:
    """A study whose every step was committed: locked; claimed with a third of the records; finished."""
    study = root / "registrations" / "toy"
    held = finished_study.locked(study)
    commit(root)
    finished_study.confirm(study, stop_after=2)
    commit(root)
    finished_study.confirm(study)
    finished_study.verdict.write(Registration.with_lock(study, held), finished_study.JUDGED)
    commit(root)
    return study


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "work")


@pytest.fixture
def study(root: Path) -> Path:
    return stepwise(root)


def checked(study: Path) -> str:
    return git_history.check(Registration(study))


def is_found(study: Path, words: str, how: type[Exception] = Tampered) -> None:
    with pytest.raises(how, match=words):
        checked(study)


def cut(path: Path, lines: int) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-lines]))


def locked_anew(study: Path) -> None:
    """The study removed and registered again in the same place, with another question."""
    shutil.rmtree(study)
    study.mkdir()
    (study / "protocol.toml").write_bytes(b'title = "easier"\n')
    digest = lock.write(study, finished_study.lock_content("toy"))
    ledger.append(study, "register", {"lock": digest})


@pytest.mark.parametrize("objects", ["sha1", "sha256"])
def test_a_study_committed_step_by_step_holds(tmp_path: Path, objects: str) -> None:
    study = stepwise(repository(tmp_path / "work", f"--object-format={objects}"))
    # lock, protocol, sources, ledger, claim, seal, verdict, one shard
    assert checked(study) == ("8 of 8 files are committed unchanged; lock.json was committed before claim.json")


def test_a_study_committed_at_once_holds_and_shows_no_order(root: Path) -> None:
    commit(root)
    study = root / "registrations" / "toy"
    finished_study.finished(study)
    commit(root)
    assert "were committed together, which shows no order" in checked(study)


@pytest.mark.parametrize("rest", [b"100644 zz", b"x\0" + b"y" * 20, b"100644 zz\0short"])
def test_a_broken_tree_on_another_branch_changes_nothing(root: Path, rest: bytes) -> None:
    study = root / "registrations" / "toy"
    finished_study.locked(study)
    commit(root)
    before, tree = checked(study), b""
    for data in (rest, b"40000 toy\0%b", b"40000 registrations\0%b"):  # git refuses to write the first, and reads it
        write = ["git", "-C", root, "hash-object", "-t", "tree", "--literally", "-w", "--stdin"]
        written = subprocess.run(write, input=data % tree if tree else data, check=True, capture_output=True)
        tree = bytes.fromhex(written.stdout.decode())
    git(root, "update-ref", "refs/heads/broken", git(root, "commit-tree", "-m", "broken", tree.hex()))
    assert Repository(root).trees(["broken:registrations/toy"]) != [None]
    assert checked(study) == before


def test_work_that_is_not_committed_yet_is_counted(root: Path) -> None:
    study = root / "registrations" / "toy"
    finished_study.locked(study)
    commit(root)
    assert checked(study).startswith("4 of 4 files are committed unchanged")
    finished_study.confirm(study, stop_after=1)
    # the ledger has grown; claim and shard are new
    assert checked(study).startswith("3 of 6 files are committed unchanged")


def test_nothing_committed_cannot_be_told_and_nothing_locked_was_not_run(root: Path) -> None:
    study = root / "registrations" / "toy"
    study.mkdir()
    (study / "protocol.toml").write_bytes(b"")
    with pytest.raises(NotRun, match="nothing is locked"):
        checked(study)
    shutil.rmtree(study)
    finished_study.locked(study)
    is_found(study, "none of 4 files is committed; add and commit toy", CannotTell)


def test_a_ledger_whose_tail_was_cut_after_a_commit_is_found(root: Path, study: Path) -> None:
    last = git(root, "rev-parse", "--short=7", "HEAD")
    lines = len((study / "ledger.jsonl").read_bytes().splitlines())
    cut(study / "ledger.jsonl", 2)
    expected = f"commit {last} has {lines} lines of ledger.jsonl that are not the beginning of today's {lines - 2}"
    is_found(study, expected)
    commit(root)
    is_found(study, expected)


def test_a_ledger_written_anew_with_a_chain_that_holds_is_found(root: Path, study: Path) -> None:
    (study / "ledger.jsonl").unlink()
    for number in range(20):
        bodies = {"register": {"lock": "0" * 64}, "attempt": {"number": number, "records": 0}}
        event = "attempt" if number else "register"
        ledger.append(study, event, bodies[event])
    ledger.read(study)
    is_found(study, r"lines of ledger\.jsonl that are not the beginning of today's")


def test_records_cut_back_to_run_them_again_are_found(root: Path, study: Path) -> None:
    cut(study / "records" / "shard-0.jsonl", 1)
    is_found(study, r"has 6 lines of records/shard-0\.jsonl .* today's 5")


def test_a_study_locked_anew_in_its_old_place_is_found(root: Path, study: Path) -> None:
    first = git(root, "rev-list", "--max-parents=0", "--abbrev-commit", "--abbrev=7", "HEAD")
    locked_anew(study)
    commit(root)
    expected = rf"commit {first} has another lock\.json: the study was locked before"
    is_found(study, expected)
    git(root, "rm", "-r", "--quiet", "--cached", study)  # removed for a while, as if it had never been
    git(root, "commit", "--quiet", "-m", "gone")
    commit(root)
    is_found(study, expected)


@pytest.mark.parametrize("name", ["claim.json", "seal.json", "verdict.json", "sources.zip", "protocol.toml"])
def test_a_document_that_was_replaced_or_taken_away_is_found(root: Path, study: Path, name: str) -> None:
    (study / name).write_bytes(b"{}\n")
    is_found(study, f"has another {name}: it was replaced")
    (study / name).unlink()
    is_found(study, f"has {name}, which is missing here")


def test_a_document_that_was_changed_for_one_commit_only_is_found(root: Path, study: Path) -> None:
    kept = (study / "verdict.json").read_bytes()
    (study / "verdict.json").write_bytes(b"{}\n")
    changed = commit(root)
    (study / "verdict.json").write_bytes(kept)
    commit(root)
    is_found(study, rf"commit {changed[:7]} has another verdict\.json")


def test_a_version_that_only_a_merge_has_is_found(root: Path, study: Path) -> None:
    """A merge that changes what both of its parents agree on is what many ways to list history skip."""
    git(root, "checkout", "--quiet", "-b", "side", "HEAD~1")
    git(root, "commit", "--quiet", "--allow-empty", "-m", "beside")
    git(root, "checkout", "--quiet", "main")
    git(root, "merge", "--quiet", "--no-commit", "--no-ff", "side")
    kept = (study / "verdict.json").read_bytes()
    (study / "verdict.json").write_bytes(b"{}\n")
    merge = commit(root)
    assert git(root, "rev-list", "--parents", "-1", merge).count(" ") == 2
    (study / "verdict.json").write_bytes(kept)
    commit(root)
    is_found(study, f"commit {merge[:7]} has another")


def test_a_protocol_may_change_until_it_is_locked(root: Path) -> None:
    study = root / "registrations" / "toy"
    study.mkdir()
    (study / "protocol.toml").write_bytes(b'title = "first thoughts"\n')
    (study / "sources.zip").write_bytes(b"of a registration that was refused")
    commit(root)
    shutil.rmtree(study)
    finished_study.locked(study)
    commit(root)
    assert "4 of 4 files" in checked(study)
    (study / "protocol.toml").write_bytes(b'title = "second thoughts"\n')
    commit(root)
    (study / "protocol.toml").write_bytes(finished_study.PROTOCOL)
    is_found(study, r"has another protocol\.toml")


def test_a_torn_line_that_was_committed_may_have_been_cut_since(root: Path) -> None:
    study = root / "registrations" / "toy"
    finished_study.locked(study)
    finished_study.confirm(study, stop_after=2)
    with (study / "records" / "shard-0.jsonl").open("ab") as file:
        file.write(b'{"body":{"arm":')
    commit(root)
    finished_study.confirm(study)
    commit(root)
    assert "7 of 7 files" in checked(study)  # no verdict


def test_dates_play_no_part(root: Path) -> None:
    """Each commit is dated before its parent; order and contradictions are as they were."""
    study = root / "registrations" / "toy"
    held = finished_study.locked(study)
    commit(root, date="2026-05-05T00:00:00Z")
    finished_study.confirm(study)
    commit(root, date="2024-04-04T00:00:00Z")
    finished_study.verdict.write(Registration.with_lock(study, held), finished_study.JUDGED)
    commit(root, date="1999-03-03T00:00:00Z")
    assert checked(study).endswith("lock.json was committed before claim.json")
    locked_anew(study)
    commit(root, date="1980-01-01T00:00:00Z")
    is_found(study, "the study was locked before")


@pytest.mark.parametrize(
    ("first", "presupposed"),
    [
        ("claim.json", "lock.json"),
        ("records/shard-0.jsonl", "claim.json"),
        ("seal.json", "claim.json"),
        ("verdict.json", "seal.json"),
    ],
)
def test_a_step_committed_before_the_one_that_it_presupposes_is_found(root: Path, first: str, presupposed: str) -> None:
    study = root / "registrations" / "toy"
    finished_study.finished(study)
    git(root, "add", study / first)
    # its date says that the rest came before
    git(root, "commit", "--quiet", "-m", "one file", date="2026-02-02T00:00:00Z")
    early = git(root, "rev-parse", "HEAD")
    commit(root, date="2020-01-01T00:00:00Z")
    is_found(study, f"commit {early[:7]} has {first}, but neither it nor any commit before it has {presupposed}")


def test_a_file_removed_by_mistake_and_restored_holds(root: Path, study: Path) -> None:
    kept = studies.snapshot(study)
    for name in ("lock.json", "claim.json", "ledger.jsonl"):
        (study / name).unlink()
    commit(root)
    for name, data in kept.items():
        (study / name).write_bytes(data)
    commit(root)
    assert "8 of 8 files" in checked(study)


def test_another_lock_on_another_branch_is_found(root: Path, study: Path) -> None:
    git(root, "checkout", "--quiet", "--orphan", "other")
    locked_anew(study)
    other = commit(root)
    git(root, "checkout", "--quiet", "--force", "main")
    is_found(study, rf"commit {other[:7]} has another lock\.json")


def test_an_older_checkout_of_an_honest_study_cannot_tell(root: Path, study: Path) -> None:
    last = git(root, "rev-parse", "--short=7", "HEAD")
    git(root, "checkout", "--quiet", "HEAD~1")
    assert not (study / "verdict.json").exists()
    is_found(study, f"commit {last}, on another branch, is ahead of this folder", CannotTell)
    git(root, "branch", "--quiet", "--delete", "--force", "main")
    assert "6 of 6 files" in checked(study)


def test_a_shallow_clone_cannot_tell_and_still_finds_a_contradiction(root: Path, study: Path) -> None:
    clone = root.parent / "clone"
    git(root.parent, "clone", "--quiet", "--depth=1", f"file://{root}", clone)
    copy = clone / "registrations" / "toy"
    is_found(copy, "shallow; run: git fetch --unshallow", CannotTell)
    cut(copy / "ledger.jsonl", 1)
    is_found(copy, "lines were removed")
    git(clone, "checkout", "--quiet", "--", ".")
    git(clone, "fetch", "--quiet", "--unshallow")
    assert "8 of 8 files" in checked(copy)


def test_a_clone_without_old_objects_fetches_nothing_and_cannot_tell(root: Path, study: Path) -> None:
    git(root, "config", "uploadpack.allowFilter", "true")
    clone = root.parent / "clone"
    git(root.parent, "clone", "--quiet", "--filter=blob:none", f"file://{root}", clone)
    lacking = git(clone, "rev-list", "--objects", "--all", "--missing=print").count("?")
    assert lacking
    is_found(clone / "registrations" / "toy", "git cat-file: fatal: could not fetch", CannotTell)
    assert git(clone, "rev-list", "--objects", "--all", "--missing=print").count("?") == lacking


def test_replacement_refs_hide_nothing(root: Path, study: Path) -> None:
    first = git(root, "rev-list", "--max-parents=0", "HEAD")
    locked_anew(study)
    relocked = commit(root)
    tree = git(root, "rev-parse", f"{relocked}^{{tree}}")
    git(root, "replace", relocked, git(root, "commit-tree", "-m", "the only step", tree))
    assert git(root, "rev-list", "HEAD") == relocked  # the history that git shows
    is_found(study, rf"commit {first[:7]} has another lock\.json")


def test_grafts_hide_nothing(root: Path, study: Path) -> None:
    locked_anew(study)
    relocked = commit(root)
    (root / ".git" / "info" / "grafts").write_text(f"{relocked}\n")
    assert git(root, "rev-list", "HEAD") == relocked
    is_found(study, "the study was locked before")


def test_a_forged_cache_of_the_graph_of_commits_hides_nothing(root: Path, study: Path) -> None:
    locked_anew(study)
    relocked = commit(root)
    git(root, "commit-graph", "write", "--reachable")
    path = root / ".git" / "objects" / "info" / "commit-graph"
    graph = bytearray(path.read_bytes())
    # its data chunk has, by sorted id: the tree (20 bytes), two parents (4 bytes each) and 8 bytes more
    table = range(8, 8 + 12 * graph[6], 12)
    start = next(int.from_bytes(graph[at + 4 : at + 12]) for at in table if graph[at : at + 4] == b"CDAT")
    at = start + 36 * sorted(git(root, "rev-list", "--all").split()).index(relocked) + 20
    graph[at : at + 4] = (0x70000000).to_bytes(4)  # no parent
    path.chmod(0o600)
    path.write_bytes(graph)
    assert git(root, "rev-list", "HEAD") == relocked
    is_found(study, "the study was locked before")


def test_variables_of_the_caller_point_nowhere_else(root: Path, study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = repository(root.parent / "other")
    commit(other)
    cut(study / "ledger.jsonl", 1)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(other / ".git" / "objects"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(root.parent))
    is_found(study, "lines were removed")
    assert git_history.describe_commit(root, {})["commit"] == git(root, "rev-parse", "HEAD")


def test_settings_of_the_repository_and_of_its_user_play_no_part(
    root: Path, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root.parent / ".gitconfig").write_text("not a file of settings")
    monkeypatch.setenv("HOME", str(root.parent))
    git(root, "config", "core.worktree", root.parent)
    git(root, "config", "core.autocrlf", "true")
    git(root, "config", "core.useReplaceRefs", "true")
    assert "8 of 8 files" in checked(study)


def test_a_linked_work_tree_and_a_submodule_hold(root: Path, study: Path) -> None:
    linked = root.parent / "linked"
    git(root, "worktree", "add", "--quiet", linked, "HEAD")
    assert "8 of 8 files" in checked(linked / "registrations" / "toy")
    outer = repository(root.parent / "outer")
    git(outer, "submodule", "--quiet", "add", root, "sub")
    commit(outer)
    inside = outer / "sub" / "registrations" / "toy"
    assert "8 of 8 files" in checked(inside)
    cut(inside / "ledger.jsonl", 1)
    is_found(inside, "lines were removed")


def test_history_rewritten_before_anybody_had_it_cannot_be_seen(root: Path) -> None:
    """A limit that is documented: only a copy elsewhere or an outside witness shows it."""
    study = root / "registrations" / "toy"
    finished_study.locked(study)
    commit(root)
    git(root, "clone", "--quiet", root, root.parent / "copy")
    locked_anew(study)
    git(root, "add", "--all", ".")
    git(root, "commit", "--quiet", "--amend", "-m", "the first step")
    assert "files are committed unchanged" in checked(study)
    git(root, "fetch", "--quiet", root.parent / "copy", "main:as-it-was")
    is_found(study, r"another lock\.json")


def test_a_folder_that_was_moved_is_followed_at_its_present_path_only(root: Path, study: Path) -> None:
    git(root, "mv", study, study.with_name("renamed"))
    commit(root)
    assert git_history.check(Registration(study.with_name("renamed"))).startswith("8 of 8")
    assert missing_registrations.find_missing(study.parent).names == []


def test_no_repository_and_no_git_cannot_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plain").mkdir()
    study = tmp_path / "plain" / "toy"
    held = finished_study.finished(study)
    is_found(study, "not in a git repository", CannotTell)
    assert missing_registrations.find_missing(study.parent) == ([], False)
    assert git_history.describe_commit(study.parent / "tree", held.content["sources"]) is None
    git(tmp_path / "plain", "init", "--quiet")
    assert git_history.describe_commit(tmp_path / "plain", {}) is None  # nothing is committed
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    is_found(study, "git is not installed", CannotTell)
    assert missing_registrations.find_missing(study.parent) == ([], False)
    assert git_history.describe_commit(tmp_path / "plain", {}) is None


def test_a_repository_that_git_does_not_take_for_one_cannot_tell(tmp_path: Path) -> None:
    study = tmp_path / "toy"
    finished_study.finished(study)
    (tmp_path / ".git").mkdir()
    is_found(study, r"git rev-parse: .*not a git repository", CannotTell)


@pytest.mark.parametrize("folder", shipped(sorted(path.parent for path in ROOT.glob("registrations/*/lock.json"))))
def test_what_is_shipped_holds(folder: Path) -> None:
    try:
        assert "files are committed unchanged" in git_history.check(Registration(folder))
    except CannotTell as gap:
        pytest.skip(str(gap))


# The commit that a lock names


@pytest.fixture
def tree(root: Path) -> Path:
    """A source tree at the top of a repository, committed."""
    finished_study.tree(root)
    commit(root)
    return root


def test_a_lock_names_the_commit_that_its_sources_stand_on(tree: Path) -> None:
    head = git(tree, "rev-parse", "HEAD")
    assert git_history.describe_commit(tree, closure.sources(tree)) == {"commit": head, "differs": []}


def test_sources_that_a_commit_does_not_hold_as_they_are_get_listed(tree: Path) -> None:
    """Changed; changed and hidden from `git status`; staged, never added, ignored; converted line ends."""
    (tree / "analysis" / "crlf.py").write_bytes(b"a = 1\r\n")
    git(tree, "config", "core.autocrlf", "true")
    head = commit(tree)
    (tree / "policies" / "keep.py").write_text("SLOTS = 5\n")
    git(tree, "update-index", "--assume-unchanged", "analysis/judge.py")
    (tree / "analysis" / "judge.py").write_text("print('CONFIRMED')\n")
    (tree / "analysis" / "staged.py").write_text("")
    git(tree, "add", "analysis/staged.py")
    (tree / "analysis" / "untracked.py").write_text("")
    (tree / ".gitignore").write_text("ignored.py\n")
    (tree / "analysis" / "ignored.py").write_text("")
    assert "judge.py" not in git(tree, "status", "--short")
    assert git_history.describe_commit(tree, closure.sources(tree)) == {
        "commit": head,
        "differs": [
            "analysis/crlf.py",
            "analysis/ignored.py",
            "analysis/judge.py",
            "analysis/staged.py",
            "analysis/untracked.py",
            "policies/keep.py",
        ],
    }


def test_a_tree_that_is_only_a_part_of_a_repository_names_no_commit(root: Path) -> None:
    finished_study.tree(root / "installed")
    commit(root)
    assert git_history.describe_commit(root / "installed", closure.sources(root / "installed")) is None


def test_replacement_refs_do_not_change_what_a_commit_holds(tree: Path) -> None:
    head, study = git(tree, "rev-parse", "HEAD"), tree / "registrations"
    content = {"git": {"commit": head, "differs": []}, "sources": closure.sources(tree)}
    (tree / "policies" / "keep.py").write_text("SLOTS = 5\n")
    false = {"git": {"commit": head, "differs": []}, "sources": closure.sources(tree)}
    git(tree, "replace", head, commit(tree))
    assert git_history.describe_commit(tree, closure.sources(tree))["differs"] == []
    assert git_history.check_commit(locked(study, content)).endswith(f"match commit {head[:7]}")
    with pytest.raises(Tampered, match=r"policies/keep\.py: differs from commit"):
        git_history.check_commit(locked(study, false))


def test_the_commit_of_a_lock_holds_after_later_commits(tree: Path) -> None:
    (tree / "analysis" / "late.py").write_text("")
    content = {"sources": closure.sources(tree)}
    content["git"] = git_history.describe_commit(tree, content["sources"])
    commit(tree)
    (tree / "policies" / "keep.py").unlink()
    commit(tree)
    said = git_history.check_commit(locked(tree / "registrations", content))
    assert said.endswith("except 1 that were not committed: analysis/late.py")


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([], "policies/keep.py: differs from"),
        (["analysis/judge.py", "policies/keep.py"], "analysis/judge.py: is the same"),
    ],
)
def test_a_list_that_the_commit_contradicts_is_found(tree: Path, listed: list[str], expected: str) -> None:
    (tree / "policies" / "keep.py").write_text("SLOTS = 5\n")
    head = git(tree, "rev-parse", "HEAD")
    content = {"git": {"commit": head, "differs": listed}, "sources": closure.sources(tree)}
    with pytest.raises(Tampered, match=f"{expected} .*commit {head[:7]}"):
        git_history.check_commit(locked(tree / "registrations", content))


def test_a_commit_that_is_not_in_this_clone_cannot_be_told(tree: Path) -> None:
    content = {"git": {"commit": "a" * 40, "differs": []}, "sources": {}}
    with pytest.raises(CannotTell, match="aaaaaaa, the commit at locking, is not in this clone"):
        git_history.check_commit(locked(tree / "registrations", content))
    content["git"]["commit"] = git(tree, "rev-parse", "HEAD")
    commit(tree)
    clone = tree.parent / "clone"
    git(tree.parent, "clone", "--quiet", "--depth=1", f"file://{tree}", clone)
    with pytest.raises(CannotTell, match="git fetch --unshallow"):
        git_history.check_commit(locked(clone, content))


def test_a_lock_without_a_commit_was_not_run(tree: Path) -> None:
    for content in ({"sources": {}}, {"sources": {}, "git": None}):
        with pytest.raises(NotRun, match="names no commit"):
            git_history.check_commit(locked(tree, content))


def test_only_the_full_id_of_a_commit_names_one(tree: Path) -> None:
    for name in ("HEAD", "main", git(tree, "rev-parse", "HEAD")[:12], git(tree, "rev-parse", "HEAD^{tree}")):
        with pytest.raises(Tampered, match=r"git\.commit"):
            git_history.check_commit(locked(tree, {"git": {"commit": name, "differs": []}, "sources": {}}))


# Registrations that are gone


def test_a_registration_that_was_committed_and_removed_is_named(root: Path, study: Path) -> None:
    kept = study.with_name("kept")
    finished_study.locked(kept)
    draft = study.with_name("draft")  # never locked
    draft.mkdir()
    (draft / "protocol.toml").write_bytes(b"")
    commit(root)
    shutil.rmtree(draft)
    assert missing_registrations.find_missing(root / "registrations") == ([], True)
    shutil.rmtree(study)
    commit(root)
    assert missing_registrations.find_missing(root / "registrations") == (["toy"], True)


def test_a_registration_of_another_branch_and_one_locked_anew_are_named(root: Path, study: Path) -> None:
    git(root, "checkout", "--quiet", "-b", "side")
    (study.with_name("hidden")).mkdir()
    lock.write(study.with_name("hidden"), finished_study.lock_content("hidden"))
    commit(root)
    git(root, "checkout", "--quiet", "main")
    assert missing_registrations.find_missing(root / "registrations") == (["hidden"], True)
    locked_anew(study)
    assert missing_registrations.find_missing(root / "registrations") == (["hidden", "toy"], True)


def test_what_is_gone_cannot_be_told_in_a_shallow_clone(root: Path, study: Path) -> None:
    clone = root.parent / "clone"
    git(root.parent, "clone", "--quiet", "--depth=1", f"file://{root}", clone)
    assert missing_registrations.find_missing(clone / "registrations") == ([], False)


def test_sources_that_were_moved_into_the_shared_archive_are_not_missing(root):
    study = stepwise(root)
    before = git_history.check(Registration(study))
    shared = bundle.share(study, Registration(study).lock.content["sources"])
    assert "committed unchanged" in git_history.check(Registration(study))
    commit(root)
    assert git_history.check(Registration(study)).partition(" of ")[2][:1] == str(
        int(before.partition(" of ")[2][:1]) - 1
    )
    shared.unlink()
    with pytest.raises(Tampered, match=r"has sources\.zip, which is missing here"):
        git_history.check(Registration(study))
