"""A signed lock: what ssh-keygen says of it by itself is what the check says."""

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import finished_study
import pytest
import studies
from sampled import sampled
from studies import ROOT

from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.refusals import AlreadyClaimed, BadInput, Tampered
from protocol.lock import lock, signing

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")


def key(place: Path, name: str, passphrase: str = "", kind: str = "ed25519") -> Path:
    path = place / name
    make = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", f"{name}@somewhere", "-f", path]
    subprocess.run(make, check=True, capture_output=True)
    return path


def fingerprint(key: Path) -> str:
    line = subprocess.run(["ssh-keygen", "-lf", key], check=True, capture_output=True, text=True).stdout
    return line.split()[1]


def locked(folder: Path, **more: str) -> Path:
    folder.mkdir()
    lock.write(folder, finished_study.lock_content(folder.name, **more))
    return folder


def allowed(place: Path, **keys: Path) -> Path:
    path = place / "allowed"
    lines = [f"{name}@lab.example {Path(f'{key}.pub').read_text()}" for name, key in keys.items()]
    path.write_text("".join(lines))
    return path


@pytest.fixture
def ann(tmp_path: Path) -> Path:
    return key(tmp_path, "ann")


@pytest.mark.parametrize("kind", sampled(["ed25519", "ecdsa", "rsa"], of=2))
def test_a_signed_lock_holds_and_ssh_keygen_agrees(tmp_path: Path, kind: str) -> None:
    mine = key(tmp_path, "mine", kind=kind)
    study = locked(tmp_path / "study", signer=signing.usable_public_key(mine))
    written = signing.sign(study, mine)
    assert written == study / "lock.json.sig"
    verify = ["ssh-keygen", "-Y", "check-novalidate", "-n", "kv-prereg", "-s", written]
    lock_bytes = (study / "lock.json").read_bytes()
    assert subprocess.run(verify, input=lock_bytes, capture_output=True).returncode == 0
    said = signing.check(study)
    assert fingerprint(mine) in said
    assert "the key that the lock names" in said
    assert "nothing here shows whose key this is" in said
    assert "which belongs to mine@lab.example" in signing.check(study, allowed(tmp_path, mine=mine))


def test_the_public_half_is_that_of_ssh_keygen_without_its_comment(tmp_path: Path, ann: Path) -> None:
    expected = " ".join(Path(f"{ann}.pub").read_text().split()[:2])
    assert signing.usable_public_key(ann) == expected
    Path(f"{ann}.pub").unlink()
    assert signing.usable_public_key(ann) == expected


def test_a_lock_is_signed_once(tmp_path: Path, ann: Path) -> None:
    study = locked(tmp_path / "study")
    first = signing.sign(study, ann).read_bytes()
    with pytest.raises(AlreadyClaimed, match="signed already"):
        signing.sign(study, key(tmp_path, "bob"))
    assert (study / "lock.json.sig").read_bytes() == first


def test_a_lock_without_a_signature_was_not_signed(tmp_path: Path) -> None:
    with pytest.raises(NotRun, match="the lock is not signed"):
        signing.check(locked(tmp_path / "study"))


def test_a_signature_that_the_lock_promises_cannot_be_removed(tmp_path: Path, ann: Path) -> None:
    study = locked(tmp_path / "study", signer=signing.usable_public_key(ann))
    signing.sign(study, ann).unlink()
    with pytest.raises(Tampered, match="missing, although the lock names its signer") as found:
        signing.check(study)
    assert fingerprint(ann) in str(found.value)


def test_a_signature_by_another_than_the_lock_names_is_refused(tmp_path: Path, ann: Path) -> None:
    bob = key(tmp_path, "bob")
    study = locked(tmp_path / "study", signer=signing.usable_public_key(ann))
    with pytest.raises(BadInput, match=r"bob: is not the key that lock\.json names"):
        signing.sign(study, bob)
    assert not (study / "lock.json.sig").exists()
    by_hand = ["ssh-keygen", "-q", "-Y", "sign", "-n", "kv-prereg", "-f", bob, study / "lock.json"]
    subprocess.run(by_hand, check=True, capture_output=True)
    with pytest.raises(Tampered, match="the lock names") as found:
        signing.check(study, allowed(tmp_path, bob=bob))
    assert fingerprint(bob) in str(found.value)
    assert fingerprint(ann) in str(found.value)


def test_a_signature_of_another_lock_is_refused(tmp_path: Path, ann: Path) -> None:
    first, second = locked(tmp_path / "first"), locked(tmp_path / "second")
    signing.sign(first, ann)
    shutil.copy(first / "lock.json.sig", second)
    for signers in (None, allowed(tmp_path, ann=ann)):
        with pytest.raises(Tampered, match=r"is not a signature of this lock\.json"):
            signing.check(second, signers)


def test_one_changed_byte_of_the_lock_is_seen(tmp_path: Path, ann: Path) -> None:
    study = locked(tmp_path / "study")
    signing.sign(study, ann)
    studies.edit(study / "lock.json", b"study", b"Study")
    with pytest.raises(Tampered, match="is not a signature of this"):
        signing.check(study)


def test_a_signature_for_another_purpose_is_refused(tmp_path: Path, ann: Path) -> None:
    study = locked(tmp_path / "study")
    by_hand = ["ssh-keygen", "-q", "-Y", "sign", "-n", "git", "-f", ann, study / "lock.json"]
    subprocess.run(by_hand, check=True, capture_output=True)
    with pytest.raises(Tampered, match="is not a signature of this"):
        signing.check(study)


@pytest.mark.parametrize("junk", [b"", b"\xff\xfe", b"-----BEGIN SSH SIGNATURE-----\nAAAA\n"])
def test_a_file_that_is_no_signature_is_refused_in_one_line(tmp_path: Path, junk: bytes) -> None:
    study = locked(tmp_path / "study")
    (study / "lock.json.sig").write_bytes(junk)
    with pytest.raises(Tampered) as found:
        signing.check(study)
    assert "\n" not in str(found.value)


def test_a_signer_whom_the_list_does_not_allow_is_refused(tmp_path: Path, ann: Path) -> None:
    study = locked(tmp_path / "study")
    signing.sign(study, key(tmp_path, "bob"))
    with pytest.raises(Tampered, match="by none of the signers that allowed allows"):
        signing.check(study, allowed(tmp_path, ann=ann))


def test_a_list_that_allows_the_key_for_something_else_is_refused(tmp_path: Path, ann: Path) -> None:
    study = locked(tmp_path / "study")
    signing.sign(study, ann)
    signers = tmp_path / "allowed"
    signers.write_text(f'ann@lab.example namespaces="git" {signing.usable_public_key(ann)}\n')
    with pytest.raises(Tampered, match="by none of the signers that allowed allows"):
        signing.check(study, signers)


def test_a_list_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        signing.check(locked(tmp_path / "study"), tmp_path / "nobody")


def test_a_missing_key_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    study = locked(tmp_path / "study")
    with pytest.raises(BadInput, match="absent: no such key"):
        signing.sign(study, tmp_path / "absent")
    assert [path.name for path in study.iterdir()] == ["lock.json"]


def program(place: Path, lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script of the name ssh-keygen, found before the real one."""
    path = place / "bin" / "ssh-keygen"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o700)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")


def test_a_key_with_a_passphrase_is_refused_without_a_question_even_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child of its own with a terminal and a window to ask in, neither of which ssh-keygen gets to see."""
    study = locked(tmp_path / "study")
    secret = key(tmp_path, "secret", "a long passphrase")
    code = (
        "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        "from pathlib import Path\n"
        "from protocol.formats import refusals; from protocol.lock import signing\n"
        "try: signing.sign(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "except refusals.BadInput as problem: print('refused:', problem); sys.exit(2)"
    )
    real, seen = shutil.which("ssh-keygen"), tmp_path / "seen"
    looks = f'(: < /dev/tty) && echo terminal >> {seen}; [ -z "$SSH_ASKPASS" ] || echo window >> {seen}'
    program(tmp_path, f'{looks}; exec {real} "$@"', monkeypatch)
    settings = {**os.environ, "SSH_ASKPASS": "/bin/sh"}
    settings.pop("SSH_AUTH_SOCK", None)
    terminal, end = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", code, study, secret],
        cwd=ROOT,
        env=settings,
        stdin=end,
        stdout=end,
        stderr=end,
        start_new_session=True,
    )
    os.close(end)
    said = b""
    try:
        while piece := os.read(terminal, 4096):
            said += piece
    except OSError:  # how Linux says that the other end of a terminal is closed
        pass
    os.close(terminal)
    assert child.wait() == 2
    assert b"refused:" in said
    assert b"ssh-add" in said
    assert b"Enter passphrase" not in said
    assert not seen.exists()
    assert [path.name for path in study.iterdir()] == ["lock.json"]


def test_a_key_that_cannot_sign_here_is_not_named_in_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(BadInput, match=r"secret: cannot sign: .*; if it has a passphrase, run: ssh-add"):
        signing.usable_public_key(key(tmp_path, "secret", "a long passphrase"))


def test_a_key_with_a_passphrase_signs_through_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = key(tmp_path, "secret", "open sesame")
    answer = tmp_path / "answer"
    answer.write_text("#!/bin/sh\necho open sesame\n")
    answer.chmod(0o700)
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", tmp_path / "agent"], stdout=subprocess.PIPE)
    try:
        agent.stdout.readline()  # it listens from then on
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        asks = {**os.environ, "SSH_ASKPASS": str(answer), "SSH_ASKPASS_REQUIRE": "force"}
        subprocess.run(["ssh-add", secret], check=True, capture_output=True, env=asks)
        study = locked(tmp_path / "study", signer=signing.usable_public_key(Path(f"{secret}.pub")))
        signing.sign(study, secret)
    finally:
        agent.terminate()
        agent.communicate()
    assert fingerprint(secret) in signing.check(study)


def test_a_public_half_that_is_not_that_of_the_key_signs_nothing(tmp_path: Path, ann: Path) -> None:
    shutil.copy(f"{key(tmp_path, 'bob')}.pub", f"{ann}.pub")
    study = locked(tmp_path / "study")
    with pytest.raises(BadInput, match="cannot sign"):
        signing.sign(study, ann)
    assert not (study / "lock.json.sig").exists()


def test_a_signature_that_another_key_gave_is_not_kept(
    tmp_path: Path, ann: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, real = locked(tmp_path / "study"), shutil.which("ssh-keygen")
    bob = key(tmp_path, "bob")
    as_bob = f'if [ "$2" = sign ]; then exec {real} -Y sign -n kv-prereg -f {bob}; fi; exec {real} "$@"'
    program(tmp_path, as_bob, monkeypatch)
    with pytest.raises(BadInput, match="which differs from the public key next to it") as found:
        signing.sign(study, ann)
    assert fingerprint(bob) in str(found.value)
    assert not (study / "lock.json.sig").exists()


def test_without_ssh_keygen_signing_is_refused_and_checking_cannot_tell(
    tmp_path: Path, ann: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed, plain = locked(tmp_path / "signed"), locked(tmp_path / "plain")
    signing.sign(signed, ann)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(CannotTell, match="ssh-keygen is not installed"):
        signing.check(signed)
    with pytest.raises(BadInput, match="ssh-keygen is not installed"):
        signing.sign(plain, ann)


def test_an_ssh_keygen_too_old_to_sign_cannot_tell(tmp_path: Path, ann: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = locked(tmp_path / "study")
    signing.sign(study, ann)
    program(tmp_path, "echo 'unknown option -- Y' >&2; exit 1", monkeypatch)
    with pytest.raises(CannotTell, match=r"OpenSSH 8\.2"):
        signing.check(study)


def test_a_signer_that_is_no_public_key_is_refused(tmp_path: Path, ann: Path) -> None:
    with pytest.raises(BadInput, match="signer: "):
        locked(tmp_path / "study", signer="ann")
