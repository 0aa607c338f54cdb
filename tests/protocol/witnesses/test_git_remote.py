import hashlib
import json
import os
import subprocess

import pytest

from protocol.evidence.external.anchors import Unproven
from protocol.formats.refusals import Tampered
from protocol.witnesses import GitRemote

LOCK, CLAIM = (hashlib.sha256(text).hexdigest() for text in (b"a lock", b"a claim"))
BRANCH = "refs/heads/kv-prereg-anchors"


def git(folder, *arguments):
    settings = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(["git", *who, *arguments], cwd=folder, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def remote(tmp_path):
    folder = tmp_path / "remote.git"
    folder.mkdir()
    git(folder, "init", "--quiet", "--bare", ".")
    git(folder, "config", "receive.denyNonFastForwards", "true")
    return folder


@pytest.fixture
def witness(remote):
    return GitRemote(str(remote))


def commit(proof):
    return json.loads(proof)["commit"]


def test_each_digest_is_a_file_of_its_own_commit(remote, witness):
    proof = witness.stamp(LOCK)
    assert json.loads(proof) == {
        "remote": str(remote),
        "branch": "kv-prereg-anchors",
        "commit": git(remote, "rev-parse", BRANCH),
    }
    second = witness.stamp(CLAIM)
    assert git(remote, "rev-list", BRANCH).split() == [commit(second), commit(proof)]
    assert git(remote, "show", f"{BRANCH}:{LOCK}") == LOCK
    assert git(remote, "diff", "--name-only", commit(proof), commit(second)) == CLAIM


def test_the_order_of_stamps_is_the_order_of_commits(witness):
    lock, claim = witness.stamp(LOCK), witness.stamp(CLAIM)
    assert witness.verify(LOCK, lock).order < witness.verify(CLAIM, claim).order
    assert witness.verify(LOCK, lock).time is None


def test_a_digest_that_is_there_keeps_its_first_commit(remote, witness):
    first = witness.stamp(LOCK)
    witness.stamp(CLAIM)
    assert witness.stamp(LOCK) == first
    assert git(remote, "rev-list", "--count", BRANCH) == "2"


def test_stamps_at_the_same_time_both_arrive(remote, witness, monkeypatch):
    """Somebody pushes between fetch and push, once: the push is refused and made anew."""
    fetch, others = GitRemote._fetch, [CLAIM]

    def overtaken(self, repository):
        tip = fetch(self, repository)
        if others:
            GitRemote(str(remote)).stamp(others.pop())
        return tip

    witness.stamp("0" * 64)
    monkeypatch.setattr(GitRemote, "_fetch", overtaken)
    proof = witness.stamp(LOCK)
    assert commit(proof) == git(remote, "rev-parse", BRANCH)
    assert git(remote, "ls-tree", "--name-only", BRANCH).split() == sorted(["0" * 64, LOCK, CLAIM])


def test_a_commit_of_another_digest_fails(witness):
    with pytest.raises(Tampered, match="does not contain the digest"):
        witness.verify(CLAIM, witness.stamp(LOCK))


def test_a_file_of_the_right_name_with_other_content_fails(remote, witness):
    witness.stamp(LOCK)
    work = remote.parent / "work"
    git(remote.parent, "clone", "--quiet", "--branch", "kv-prereg-anchors", str(remote), str(work))
    (work / CLAIM).write_text("later\n")
    git(work, "add", ".")
    git(work, "commit", "--quiet", "-m", "x")
    git(work, "push", "--quiet")
    said = {"branch": "kv-prereg-anchors", "commit": git(work, "rev-parse", "HEAD"), "remote": str(remote)}
    proof = json.dumps(said, separators=(",", ":")).encode() + b"\n"
    with pytest.raises(Tampered, match="does not contain the digest"):
        witness.verify(CLAIM, proof)


def test_a_later_commit_does_not_stand_in_for_the_first(remote, witness):
    """It holds the digest too, and naming it would turn the order round."""
    witness.stamp(CLAIM)
    lock = witness.stamp(LOCK)
    with pytest.raises(Tampered, match="is not the first one with the digest"):
        witness.verify(CLAIM, lock)


def test_a_digest_taken_away_and_brought_again_came_first_before(remote, witness):
    first = json.loads(witness.stamp(CLAIM))
    work = remote.parent / "work"
    git(remote.parent, "clone", "--quiet", "--branch", "kv-prereg-anchors", str(remote), str(work))
    git(work, "rm", "--quiet", CLAIM)
    git(work, "commit", "--quiet", "-m", "x")
    git(work, "push", "--quiet")
    witness.stamp(LOCK)
    git(work, "pull", "--quiet")
    (work / CLAIM).write_text(f"{CLAIM}\n")
    git(work, "add", ".")
    git(work, "commit", "--quiet", "-m", "x")
    git(work, "push", "--quiet")
    again = {**first, "commit": git(work, "rev-parse", "HEAD")}
    with pytest.raises(Tampered, match="is not the first one with the digest"):
        witness.verify(CLAIM, json.dumps(again, separators=(",", ":")).encode() + b"\n")


def test_a_rewritten_branch_is_found(remote, witness):
    proof = witness.stamp(LOCK)
    git(remote, "update-ref", "-d", BRANCH)
    with pytest.raises(Tampered, match="the branch was rewritten"):
        witness.verify(LOCK, proof)
    GitRemote(str(remote)).stamp(CLAIM)
    with pytest.raises(Tampered, match="the branch was rewritten"):
        witness.verify(LOCK, proof)
    git(remote, "update-ref", "refs/heads/kept", commit(proof))  # on the remote, not on the branch
    with pytest.raises(Tampered, match="the branch was rewritten"):
        witness.verify(LOCK, proof)


def test_the_remote_refuses_to_go_back(remote, witness):
    """What makes a remote append-only is its own setting; the witness never asks it to go back."""
    first = commit(witness.stamp(LOCK))
    witness.stamp(CLAIM)
    forced = subprocess.run(
        ["git", "push", "--force", str(remote), f"{first}:{BRANCH}"], cwd=remote, capture_output=True
    )
    assert b"denying non-fast-forward" in forced.stderr


def test_only_a_remote_that_is_named_is_asked(remote, witness):
    proof = witness.stamp(LOCK)
    for other in (GitRemote(), GitRemote(str(remote), "mine"), GitRemote("/nowhere")):
        with pytest.raises(Unproven, match=r"if you trust this remote, name it with --remote and --branch"):
            other.verify(LOCK, proof)


def test_a_remote_that_does_not_answer_is_named(remote, witness):
    proof = witness.stamp(LOCK)
    remote.rename(remote.with_name("moved"))
    with pytest.raises(Unproven, match=r"remote\.git does not answer"):
        witness.verify(LOCK, proof)
    with pytest.raises(Unproven, match=r"remote\.git does not answer"):
        witness.stamp(LOCK)
    with pytest.raises(Unproven, match="--remote URL"):
        GitRemote().stamp(LOCK)


@pytest.mark.parametrize(
    "proof",
    [
        b"",
        b"[]\n",
        b'{"branch":"b","commit":"HEAD","remote":"r"}\n',
        b'{"branch":"b","commit":"--all","remote":"r"}\n',
        b'{"branch":"b","remote":"r"}\n',
        b'{"branch":"b", "commit":"", "remote":"r"}\n',
    ],
)
def test_what_is_not_a_proof_is_refused(proof):
    with pytest.raises(Tampered):
        GitRemote("r", "b").verify(LOCK, proof)


def test_an_address_is_never_an_option_of_git(tmp_path):
    trap = tmp_path / "ran"
    for url in (f"--upload-pack=touch {trap}", f"ext::touch {trap}"):
        with pytest.raises(Unproven, match="does not answer"):
            GitRemote(url).stamp(LOCK)
    assert not trap.exists()


def test_the_repository_and_settings_around_do_not_matter(remote, witness, monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "somebody")
    proof = witness.stamp(LOCK)
    monkeypatch.undo()
    assert witness.verify(LOCK, proof).order == 1
    assert git(remote, "log", "-1", "--format=%an %cn", BRANCH) == "kv-prereg kv-prereg"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["remote.git"]
