"""What is drawn late follows from the lock and a value that nobody had before it; keys, openssl are real."""

import shutil
import subprocess

import finished_study
import pytest
import studies

from protocol.evidence import claim, late_randomness, ledger
from protocol.evidence.registration import Registration
from protocol.formats import documents
from protocol.formats.findings import CannotTell
from protocol.formats.refusals import BadInput, Tampered
from protocol.lock import lock

NONCE = "c0ffee" * 12
ROUND = {"source": "beacon", "name": "drand quicknet", "round": 1234}


def keypair(place, name):
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(place / name)]
    subprocess.run(make, check=True)
    return place / name, " ".join((place / f"{name}.pub").read_text().split()[:2])


@pytest.fixture(scope="module")
def auditor(tmp_path_factory):
    """A private key and its public line."""
    return keypair(tmp_path_factory.mktemp("keys"), "auditor")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return keypair(tmp_path_factory.mktemp("keys"), "stranger")


@pytest.fixture
def study(tmp_path):
    """Locks a folder whose protocol registers `randomness`."""

    def make(randomness, name="study"):
        folder = tmp_path / name
        folder.mkdir()
        written = {"randomness": randomness} if randomness else {}
        digest = lock.write(folder, finished_study.lock_content(name, written))
        ledger.append(folder, "register", {"lock": digest})
        return folder

    return make


@pytest.fixture
def audited(study, auditor):
    return study({"source": "nonce", "auditor": auditor[1]})


def line(folder, nonce=NONCE):
    return f"{lock.read(folder).digest} {nonce}\n"


def signed(path, text, key, namespace="kv-prereg-nonce"):
    path.write_text(text)
    path.with_name(f"{path.name}.sig").unlink(missing_ok=True)
    sign = ["ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", str(key), str(path)]
    subprocess.run(sign, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return path


def take(folder, *given):
    with claim.exclusive_run(Registration(folder)):
        return claim.take(Registration(folder), *given)


def verify(folder, block=None):
    held = lock.read(folder)
    return late_randomness.verify(held, Registration.with_lock(folder, held).claim, block)


class Block:
    height, hash = 123, "9f" * 32


def hkdf(digest, value, name, mode):
    options = {"digest": "SHA256", "hexkey": value, "hexsalt": digest, "mode": mode}
    if name:
        options["info"] = name
    given = [part for option in options.items() for part in ("-kdfopt", ":".join(option))]
    done = subprocess.run(["openssl", "kdf", "-keylen", "32", *given, "HKDF"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().replace(":", "").lower()


@pytest.mark.parametrize("value", ["00" * 32, "c0ffee" * 12, "ab" * 200])
def test_key_and_numbers_are_those_of_openssls_hkdf(value):
    digest = "0123456789abcdef" * 4
    key = late_randomness.derive_key(digest, value)
    assert key == hkdf(digest, value, None, "EXTRACT_ONLY")
    for name in ("problems", "seed 0", "seed 41"):
        assert late_randomness.draw_number(key, name) == int(hkdf(digest, value, name, "EXTRACT_AND_EXPAND")[:16], 16)
    assert late_randomness.draw_seed(key, 41) == late_randomness.draw_number(key, "seed 41")


def test_the_key_is_that_of_rfc_5869s_first_example():
    key = late_randomness.derive_key("000102030405060708090a0b0c", "0b" * 22)
    assert key == "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5"


def test_without_a_key_a_label_is_its_seed():
    assert [late_randomness.draw_seed(None, label) for label in (0, 7)] == [0, 7]


def test_a_claim_keeps_the_nonce_with_its_signature_and_anybody_can_verify_it(audited, auditor, tmp_path):
    file = signed(tmp_path / "nonce", line(audited), auditor[0])
    assert take(audited, file) == 1
    kept = documents.read(audited / claim.NAME).content["randomness"]
    assert kept == {
        "source": "nonce",
        "value": NONCE,
        "key": late_randomness.derive_key(lock.read(audited).digest, NONCE),
        "signature": (tmp_path / "nonce.sig").read_text(),
    }
    assert verify(audited) == "seeds and problems drawn with a nonce that the registered auditor signed for this lock"


def test_without_its_value_a_study_is_not_claimed_and_the_refusal_says_how_to_get_it(audited):
    with studies.unchanged(audited):
        with pytest.raises(BadInput) as refusal:
            take(audited)
        said = f"ask the auditor to write '{lock.read(audited).digest} HEX' to FILE and sign it"
        assert said in str(refusal.value)
        assert "ssh-keygen -Y sign -n kv-prereg-nonce" in str(refusal.value)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda given: given | {"key": "stranger"}, "is not the registered auditor's signature"),
        (lambda given: given | {"namespace": "file"}, "is not the registered auditor's signature"),
        (lambda given: given | {"after": "d0" + NONCE[2:]}, "is not the registered auditor's signature"),
        (lambda given: given | {"nonce": "ab" * 31}, "at least 64 lower-case hex digits"),
        (lambda given: given | {"nonce": NONCE.upper()}, "at least 64 lower-case hex digits"),
        (lambda given: given | {"nonce": f"{NONCE}\n{NONCE}"}, "write one line"),
        (lambda given: given | {"nonce": f" {NONCE}"}, "write one line"),
        (lambda given: given | {"lock": "e" * 64}, f"was made for {'e' * 64}; this study needs"),
    ],
    ids=["another key", "another purpose", "another nonce", "short", "capitals", "two", "spaces", "another lock"],
)
def test_a_nonce_that_the_auditor_did_not_sign_for_this_lock_claims_nothing(
    audited, auditor, stranger, tmp_path, damage, said
):
    given = damage({"key": "auditor", "namespace": "kv-prereg-nonce", "nonce": NONCE, "lock": None})
    text = f"{given['lock'] or lock.read(audited).digest} {given['nonce']}\n"
    key = {"auditor": auditor, "stranger": stranger}[given["key"]][0]
    file = signed(tmp_path / "nonce", text, key, given["namespace"])
    if "after" in given:
        file.write_text(line(audited, given["after"]))
    with studies.unchanged(audited):
        with pytest.raises(BadInput) as refusal:
            take(audited, file)
        assert said in str(refusal.value)
        assert "\n" not in str(refusal.value)


def test_a_nonce_without_its_signature_file_or_without_ssh_claims_nothing(audited, auditor, tmp_path, monkeypatch):
    file = signed(tmp_path / "nonce", line(audited), auditor[0])
    with studies.unchanged(audited):
        signature = shutil.move(tmp_path / "nonce.sig", tmp_path / "kept")
        with pytest.raises(BadInput, match=r"nonce\.sig: could not be read"):
            take(audited, file)
        with pytest.raises(BadInput, match="nowhere: could not be read"):
            take(audited, tmp_path / "nowhere")
        shutil.move(signature, tmp_path / "nonce.sig")
        with monkeypatch.context() as without:
            without.setenv("PATH", str(tmp_path / "nothing"))
            with pytest.raises(BadInput, match="install OpenSSH"):
                take(audited, file)
    take(audited, file)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(CannotTell, match="install OpenSSH"):
        verify(audited)


def test_a_claim_is_resumed_with_its_own_value_and_no_other(audited, auditor, tmp_path):
    first = signed(tmp_path / "first", line(audited), auditor[0])
    second = signed(tmp_path / "second", line(audited, "beef" * 16), auditor[0])
    take(audited, first)
    before = studies.snapshot(audited)
    with pytest.raises(BadInput, match=r"claim\.json already has a different value; leave --value out"):
        take(audited, second)
    assert studies.snapshot(audited) == before
    assert take(audited) == 2
    assert take(audited, first) == 3
    assert (audited / claim.NAME).read_bytes() == before[claim.NAME]


def test_a_value_that_nothing_registers_is_refused_at_the_claim_and_after_it(study, tmp_path):
    folder = study(None)
    (tmp_path / "nonce").write_text(line(folder))
    with pytest.raises(BadInput, match=r"the protocol has no \[randomness\]"):
        take(folder, tmp_path / "nonce")
    assert not (folder / claim.NAME).exists()
    take(folder)
    assert verify(folder) == "the author chose the seeds: the protocol registers no late value"
    with pytest.raises(BadInput, match=r"the protocol has no \[randomness\]"):
        take(folder, tmp_path / "nonce")


def rewrite(folder, change):
    """The claim as somebody would rewrite it, canonical and all."""
    content = dict(documents.read(folder / claim.NAME).content)
    change(content)
    (folder / claim.NAME).unlink()
    documents.write(folder / claim.NAME, content)


def another_nonce(content):
    digest = content["lock"]
    content["randomness"] |= {"value": "ab" * 32, "key": late_randomness.derive_key(digest, "ab" * 32)}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (another_nonce, "signature: is not the registered auditor's signature for this lock"),
        (lambda content: content["randomness"].update(signature="none"), "signature: is not the registered"),
        (lambda content: content["randomness"].pop("signature"), "signature: is not the registered"),
        (lambda content: content["randomness"].update(value="ab" * 32), "key: does not follow"),
        (lambda content: content["randomness"].update(key="ab" * 32), "key: does not follow"),
        (lambda content: content["randomness"].update(value=5), "randomness.value: is 5; it must be text"),
        (lambda content: content["randomness"].update(source="anchor"), "has a source other than"),
        (lambda content: content.pop("randomness"), "has a source other than"),
        (lambda content: content.update(randomness="none"), "randomness: must be an object with fields"),
    ],
)
def test_a_claim_with_another_value_than_the_auditors_is_tampered(audited, auditor, tmp_path, change, said):
    take(audited, signed(tmp_path / "nonce", line(audited), auditor[0]))
    rewrite(audited, change)
    with pytest.raises(Tampered, match=said):
        verify(audited)


def test_a_claim_with_a_value_that_nothing_registers_is_tampered(study):
    folder = study(None)
    take(folder)
    rewrite(folder, lambda content: content.update(randomness={"source": "nonce", "value": NONCE, "key": 64 * "0"}))
    with pytest.raises(Tampered, match="has a source other than the one that the protocol registers"):
        verify(folder)


def test_a_beacon_gives_the_registered_round_and_no_other_and_an_audit_says_what_to_compare(study, tmp_path):
    folder = study(ROUND)
    with pytest.raises(BadInput, match="write '1234 HEX' to FILE, with the value of that round of drand quicknet"):
        take(folder)
    file = tmp_path / "round"
    file.write_text(f"1235 {NONCE}\n")
    with pytest.raises(BadInput, match="was made for 1235; this study needs '1234 HEX'"):
        take(folder, file)
    file.write_text(f"1234 {NONCE}\n")
    take(folder, file)
    kept = documents.read(folder / claim.NAME).content["randomness"]
    assert kept == {
        "source": "beacon",
        "value": NONCE,
        "key": late_randomness.derive_key(lock.read(folder).digest, NONCE),
    }
    with pytest.raises(CannotTell, match=f"compare round 1234 of drand quicknet with {NONCE}"):
        verify(folder)


def test_an_anchors_block_is_the_value_and_is_compared_with_the_proof(study, tmp_path):
    folder = study({"source": "anchor"})
    with pytest.raises(BadInput, match=r"run: kv-prereg anchor"):
        take(folder)
    with pytest.raises(BadInput, match='the protocol has source = "anchor"'):
        take(folder, tmp_path / "value", Block)
    take(folder, None, Block)
    assert take(folder) == 2
    kept = documents.read(folder / claim.NAME).content["randomness"]
    assert (kept["value"], kept["height"]) == (Block.hash, 123)
    assert (
        verify(folder, Block) == "seeds and problems drawn with the hash of block 123, to which the lock's proof leads"
    )
    with pytest.raises(CannotTell, match=f"compare the hash of block 123 with {Block.hash}"):
        verify(folder)

    class Other(Block):
        hash = "8f" * 32

    with pytest.raises(Tampered, match="differs from the hash of block 123"):
        verify(folder, Other)


def test_two_locks_draw_differently_with_one_value():
    assert late_randomness.derive_key("0" * 64, NONCE) != late_randomness.derive_key("1" * 64, NONCE)
