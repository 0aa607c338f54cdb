import json
import shutil
import subprocess
import sys

import authority
import chain_by_hand
import pytest
import studies
from finished_study import lock_content
from studies import BLOCK_TORCH, ROOT

from protocol.formats import document_fields, documents
from protocol.lock import lock


@pytest.fixture
def folder(tmp_path):
    """A registration as far as anchors see it: a lock and a claim."""
    made = tmp_path / "study"
    digest = lock.write(made, lock_content())
    content = {"kind": "kv-prereg claim", "version": 1, "lock": digest}
    head = {"count": 1, "head": "0" * 64}
    documents.write(made / "claim.json", {**content, "ledger": head}, document_fields.CLAIM)
    return made


@pytest.fixture
def remote(tmp_path):
    subprocess.run(["git", "init", "--quiet", "--bare", tmp_path / "remote.git"], check=True)
    return tmp_path / "remote.git"


@pytest.fixture(scope="module")
def tsa(tmp_path_factory):
    server = chain_by_hand.serve(authority.Handler)
    server.folder = authority.made(tmp_path_factory.mktemp("authority") / "one")
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def calendar():
    server = chain_by_hand.serve(chain_by_hand.Calendar)
    yield server
    server.shutdown()
    server.server_close()


def anchor(folder, *arguments):
    return studies.here("anchor", folder, *arguments)


def files(folder):
    return sorted(path.name for path in (folder / "anchors").iterdir())


def test_a_study_without_proofs_is_unanchored(folder):
    done = anchor(folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "UNANCHORED\n", "")


def test_every_document_is_stamped_that_is_there(folder, remote):
    done = anchor(folder, "--witness", "git", "--remote", remote)
    assert files(folder) == ["claim.git.json", "lock.git.json"]
    lines = done.stdout.splitlines()
    assert lines[0].startswith("held         lock by git: commit ")
    assert lines[1].startswith("held         claim by git: commit ")
    assert lines[2].startswith("ANCHORED (lock by git commit ")
    assert done.returncode == 0


def test_what_is_stamped_is_left_and_the_rest_is_added(folder, remote):
    anchor(folder, "lock", "--witness", "git", "--remote", remote)
    before = (folder / "anchors" / "lock.git.json").read_bytes()
    assert files(folder) == ["lock.git.json"]
    assert anchor(folder, "--witness", "git", "--remote", remote).returncode == 0
    assert files(folder) == ["claim.git.json", "lock.git.json"]
    assert (folder / "anchors" / "lock.git.json").read_bytes() == before


def test_two_witnesses_may_vouch_for_one_document(folder, remote, tsa):
    ca = tsa.folder / "ca.pem"
    both = ("--witness", "git", "--witness", "rfc3161", "--remote", remote, "--tsa", tsa.url, "--ca", ca)
    done = anchor(folder, "lock", *both, "--json")
    said = json.loads(done.stdout)
    assert [(one["witness"], one["status"]) for one in said["anchors"]] == [("git", "held"), ("rfc3161", "held")]
    time = said["anchors"][1]["time"]
    assert said["word"].endswith(f"; lock by rfc3161 {time})")


def test_an_auditor_who_trusts_nobody_is_told_so(folder, remote, tsa):
    anchor(folder, "--witness", "git", "--witness", "rfc3161", "--remote", remote, "--tsa", tsa.url)
    shutil.rmtree(remote)  # nobody asks for it
    done = anchor(folder)
    assert done.returncode == 0
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == [
        "cannot tell  lock by git",
        "cannot tell  lock by rfc3161",
        "cannot tell  claim by git",
        "cannot tell  claim by rfc3161",
        "UNANCHORED",
    ]


def test_a_pending_proof_is_upgraded_when_asked(folder, calendar):
    anchor(folder, "--witness", "ots", "--calendar", calendar.url)
    with studies.unchanged(folder):
        calendar.mined = True
        assert "pending" in anchor(folder).stdout
    done = anchor(folder, "--upgrade", "--calendar", calendar.url)
    assert f"names block {chain_by_hand.HEIGHT}" in done.stdout
    assert done.stdout.endswith("UNANCHORED\n")
    (headers := folder / "anchors" / "headers").mkdir()
    for digest in calendar.digests.values():
        header = chain_by_hand.mined(chain_by_hand.merkle_root(digest))
        (headers / f"{chain_by_hand.HEIGHT}.hex").write_text(header)
        break
    done = anchor(folder, "lock")
    assert "took less work than any Bitcoin block" in done.stdout
    assert done.stdout.endswith("UNANCHORED\n")


def test_required_proofs_that_are_missing_give_status_5(folder, remote):
    asked = ("--witness", "git", "--remote", remote, "--require-anchor")
    assert anchor(folder, "lock", *asked).returncode == 0
    done = anchor(folder, "--remote", remote, "--require-anchor")
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.startswith("Unanchored: claim.json: no witness was asked for a time stamp")
    done = anchor(folder, "lock", "--require-anchor")  # and the remote is not named
    assert done.returncode == 5


def test_a_proof_that_fails_gives_status_3(folder, remote):
    anchor(folder, "--witness", "git", "--remote", remote)
    proofs = folder / "anchors"
    (proofs / "lock.git.json").write_bytes((proofs / "claim.git.json").read_bytes())
    done = anchor(folder, "--remote", remote)
    assert done.returncode == 3
    assert "failed       lock by git" in done.stdout
    assert done.stdout.endswith("UNANCHORED\n")
    done = anchor(folder, "--remote", remote, "--require-anchor")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--witness", "ots", "--calendar", "http://127.0.0.1:9"], "no calendar answers"),
        (["--witness", "rfc3161", "--tsa", "http://127.0.0.1:9"], "does not answer"),
        (["--witness", "rfc3161"], "--tsa URL"),
        (["--witness", "git", "--remote", "/nowhere"], "does not answer"),
        (["--witness", "git"], "--remote URL"),
        (["verdict", "--witness", "git"], "no verdict.json yet"),
        (["records", "--witness", "git"], "write one of lock, claim, seal, verdict"),
        (["--ca", "/nowhere.pem"], "--ca /nowhere.pem: no such file"),
        (["--headers", "/nowhere"], "--headers /nowhere: no such folder"),
    ],
)
def test_a_refusal_is_one_line_and_writes_nothing(folder, arguments, why):
    with studies.unchanged(folder):
        done = anchor(folder, *arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert why in done.stderr
    assert not (folder / "anchors").exists()


def test_an_answer_that_is_no_time_stamp_is_not_kept(folder, tsa):
    tsa.instead = b"<html>"
    done = anchor(folder, "--witness", "rfc3161", "--tsa", tsa.url)
    tsa.instead = None
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert not (folder / "anchors").exists()


def test_what_is_not_a_registration_is_refused(tmp_path):
    done = anchor(tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_anchors_are_checked_without_torch_and_without_the_library(folder, remote):
    anchor(folder, "lock", "--witness", "git", "--remote", remote)
    code = BLOCK_TORCH.replace('"transformers"', '"transformers", "opentimestamps", "bitcoin"')
    code += "from protocol import anchor; sys.exit(anchor.main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, folder, "--remote", remote], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.startswith("held         lock by git"), done.stderr
