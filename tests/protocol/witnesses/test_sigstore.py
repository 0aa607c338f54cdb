"""A bundle of sigstore is believed for what its log and its authorities signed, and by the reader's root alone."""

import base64
import copy
import hashlib
import json
import os
import subprocess
import sys

import authority
import finished_study
import pytest
import sigstore_instance
import studies
from cryptography import x509
from finished_study import lock_content
from sigstore_instance import IDENTITY, ISSUER, NOW, Instance

from protocol.evidence.external import anchors
from protocol.evidence.external.anchors import Unproven
from protocol.evidence.registration import Registration
from protocol.formats.refusals import Tampered
from protocol.lock import lock
from protocol.witnesses import SigstoreLog, make_witnesses, registered, sigstore_log

WITNESS = {"kind": "sigstore", "identity": IDENTITY, "issuer": ISSUER}


@pytest.fixture(scope="module")
def instance():
    return Instance()


@pytest.fixture(scope="module")
def root(instance, tmp_path_factory):
    return written(tmp_path_factory.mktemp("trusted"), instance)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("registrations") / "study"
    lock.write(folder, lock_content(written={"witness": WITNESS}))
    return Registration(folder)


@pytest.fixture(scope="module")
def bundle(study, instance):
    return instance.sign(study.lock.digest)


def written(folder, instance):
    folder.mkdir(exist_ok=True)
    (folder / "trusted_root.json").write_text(json.dumps(instance.trusted_root()))
    return folder / "trusted_root.json"


def verify(study, root, bundle):
    return SigstoreLog(study, root).verify(study.lock.digest, json.dumps(bundle).encode())


def refused(how, words, *given):
    with pytest.raises(how, match=words):
        verify(*given)


def changed(bundle, path, value):
    """The bundle with a field changed; None: without it."""
    made = copy.deepcopy(bundle)
    *parents, last = path.split(".")
    place = made
    for name in parents:
        place = place[int(name) if name.isdecimal() else name]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return made


def utc(seconds):
    return (NOW + sigstore_instance.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


ENTRY = "verificationMaterial.tlogEntries.0"


def test_a_bundle_holds_at_the_time_of_the_log(study, root, bundle):
    assert verify(study, root, bundle) == (utc(60), utc(60), int(NOW.timestamp()) + 60)


def test_another_lock_is_told(study, root, instance):
    refused(Tampered, "for another document", study, root, instance.sign("ab" * 32))


def test_the_digest_that_a_bundle_names_is_not_what_counts(study, root, instance):
    """The signature is: a bundle of another digest that names this one, or none, does not verify."""
    other = instance.sign("ab" * 32)
    named = base64.b64encode(bytes.fromhex(study.lock.digest)).decode()
    refused(Tampered, "does not verify", study, root, changed(other, "messageSignature.messageDigest.digest", named))
    refused(Tampered, "does not verify", study, root, changed(other, "messageSignature.messageDigest", None))


@pytest.mark.parametrize("own", [{"identity": "other@example.org"}, {"issuer": "https://login.other.org"}])
def test_who_signed_has_to_be_whom_the_lock_names(study, root, instance, own):
    refused(Tampered, f"no bundle signed by {IDENTITY}", study, root, instance.sign(study.lock.digest, **own))


@pytest.mark.parametrize("seconds", [0, 59, 61, 590])
def test_another_time_is_not_believed(study, root, bundle, seconds):
    refused(
        Tampered,
        "does not verify",
        study,
        root,
        changed(bundle, f"{ENTRY}.integratedTime", str(int(NOW.timestamp()) + seconds)),
    )


def test_a_time_of_no_certificate_is_not_believed(study, root, bundle, instance):
    """An hour before the certificate; and one that the log really signed an hour after it had ended."""
    refused(
        Unproven,
        "certificate",
        study,
        root,
        changed(bundle, f"{ENTRY}.integratedTime", str(int(NOW.timestamp()) - 3600)),
    )
    refused(Unproven, "certificate", study, root, instance.sign(study.lock.digest, seconds=3600))


@pytest.mark.parametrize(
    "path",
    [
        f"{ENTRY}.inclusionPromise",
        f"{ENTRY}.inclusionProof",
        f"{ENTRY}.inclusionProof.checkpoint",
        f"{ENTRY}.canonicalizedBody",
        "verificationMaterial.tlogEntries",
        "verificationMaterial.certificate",
        "messageSignature.signature",
    ],
)
def test_a_bundle_that_lacks_a_part_is_none(study, root, bundle, path):
    with pytest.raises(Tampered):
        verify(study, root, changed(bundle, path, None))


def test_a_bundle_without_the_time_of_its_log_proves_no_time(study, root, bundle):
    refused(Unproven, "time", study, root, changed(bundle, f"{ENTRY}.integratedTime", None))


@pytest.mark.parametrize(
    "path",
    [
        f"{ENTRY}.inclusionPromise.signedEntryTimestamp",
        f"{ENTRY}.inclusionProof.rootHash",
        f"{ENTRY}.inclusionProof.hashes",
        f"{ENTRY}.inclusionProof.checkpoint.envelope",
        f"{ENTRY}.canonicalizedBody",
        "messageSignature.signature",
    ],
)
def test_a_part_of_another_bundle_is_not_believed(study, root, bundle, instance, path):
    other = instance.sign("cd" * 32, seconds=5)
    for name in path.split("."):
        other = other[int(name) if name.isdecimal() else name]
    if path.endswith("hashes"):
        other = [base64.b64encode(hashlib.sha256(b"another").digest()).decode()]
    with pytest.raises(Tampered):
        verify(study, root, changed(bundle, path, other))


def test_an_instance_that_the_reader_does_not_name_proves_nothing(study, bundle, tmp_path):
    """The installed library knows the public one; an author may have made one with the same names."""
    own = written(tmp_path / "own", Instance())
    for trusted in (None, own):
        with pytest.raises(Unproven, match="--sigstore-root"):
            verify(study, trusted, bundle)


def test_a_log_that_is_younger_than_the_reader_is_no_forgery(study, instance, bundle, tmp_path):
    """Logs are replaced every year: the same authority, another log."""
    before, instance.log_key = instance.log_key, sigstore_instance.new_key()
    try:
        later = written(tmp_path / "later", instance)
    finally:
        instance.log_key = before
    refused(Unproven, "newer library", study, later, bundle)


def test_a_log_of_certificates_that_is_younger_than_the_reader_is_no_forgery(study, instance, bundle, tmp_path):
    """The same authority and the same log of signatures, which promised the time; another log of certificates."""
    later = instance.trusted_root()
    later["ctlogs"] = Instance().trusted_root()["ctlogs"]
    (tmp_path / "root.json").write_text(json.dumps(later))
    refused(Unproven, "newer library", study, tmp_path / "root.json", bundle)


def test_a_bundle_of_a_format_that_is_younger_than_the_reader_is_no_forgery(study, root, bundle):
    later = changed(bundle, "mediaType", "application/vnd.dev.sigstore.bundle.v0.9+json")
    refused(Unproven, "newer library", study, root, later)


@pytest.fixture(scope="module")
def stamping(instance, tmp_path_factory):
    """A time-stamping authority that the instance trusts, as logs have it that promise no time."""
    folder = authority.made(tmp_path_factory.mktemp("stamps") / "one")
    certificates = [x509.load_pem_x509_certificate((folder / name).read_bytes()) for name in ("tsa.pem", "ca.pem")]
    instance.stamp_authorities.append(certificates)
    return folder


def stamped(folder, bundle):
    signature = base64.b64decode(bundle["messageSignature"]["signature"])
    digest = hashlib.sha256(signature).hexdigest()
    answer = authority.reply(folder, authority.openssl(folder, "ts", "-query", "-digest", digest, "-sha256", "-cert"))
    return {"signedTimestamp": base64.b64encode(answer).decode()}


def with_stamps(bundle, *stamps):
    without = changed(changed(bundle, f"{ENTRY}.inclusionPromise", None), f"{ENTRY}.integratedTime", None)
    without["verificationMaterial"]["timestampVerificationData"] = {"rfc3161Timestamps": [*stamps]}
    return without


def test_a_log_that_promises_no_time_needs_a_stamp_and_the_latest_counts(study, instance, bundle, stamping, tmp_path):
    """One stamp has to verify. A forged one beside it, of an authority of one's own, can only make it later."""
    trusted = written(tmp_path / "trusted", instance)
    genuine = stamped(stamping, bundle)
    vouched = verify(study, trusted, with_stamps(bundle, genuine))
    assert 0 <= vouched.order - NOW.timestamp() < 3000
    forged = copy.deepcopy(genuine)
    answer = base64.b64decode(genuine["signedTimestamp"])
    year = str(NOW.year).encode()
    forged["signedTimestamp"] = base64.b64encode(answer.replace(b"\x18\x0f" + year, b"\x18\x0f2020")).decode()
    assert verify(study, trusted, with_stamps(bundle, forged, genuine)).order == vouched.order
    promised = copy.deepcopy(bundle)
    promised["verificationMaterial"]["timestampVerificationData"] = {"rfc3161Timestamps": [genuine]}
    unstamped = {
        name: [] if name == "timestampAuthorities" else value for name, value in instance.trusted_root().items()
    }
    (tmp_path / "unstamped.json").write_text(json.dumps(unstamped))
    refused(Unproven, "Timestamp Authorities", study, tmp_path / "unstamped.json", promised)
    refused(Unproven, "time", study, trusted, with_stamps(bundle, forged))
    own = authority.made(tmp_path / "own")
    refused(Unproven, "time", study, trusted, with_stamps(bundle, stamped(own, bundle)))
    with pytest.raises(Unproven):
        verify(study, trusted, changed(with_stamps(bundle, genuine), "messageSignature.signature", "AAAA"))


@pytest.mark.parametrize("proof", [b"", b"{}", b"[]", b"\xff", b'{"mediaType": 1}', b"[" * 5000])
def test_what_is_no_bundle_is_told(study, root, proof):
    with pytest.raises(Tampered, match="no bundle"):
        SigstoreLog(study, root).verify(study.lock.digest, proof)


@pytest.mark.parametrize("text", ["", "{}", "[]"])
def test_a_root_that_is_none_is_the_readers_fault(study, bundle, tmp_path, text):
    (tmp_path / "root.json").write_text(text)
    refused(Unproven, r"root\.json is not a trusted_root\.json", study, tmp_path / "root.json", bundle)


@pytest.mark.parametrize("witness", [{}, {"witness": {"kind": "git", "remote": "origin"}}])
def test_a_lock_that_names_nobody_has_no_such_witness(root, bundle, tmp_path, witness):
    lock.write(tmp_path / "study", lock_content(written=witness))
    refused(Unproven, "names no signer", Registration(tmp_path / "study"), root, bundle)


def test_without_the_library_nothing_is_told(study, root, bundle, monkeypatch):
    monkeypatch.setitem(sys.modules, "sigstore.models", None)
    refused(Unproven, r"pip install '\.\[sigstore\]'", study, root, bundle)


def test_nothing_is_asked_over_the_network(study, root, bundle, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("asked the network"))
    verify(study, root, bundle)


def signed(folder, instance, root, *, is_late=False):
    """A study that was confirmed, with a bundle of its lock from before the claim, or a late one from after it."""
    held = finished_study.locked(folder, protocol=lock_content(written={"witness": WITNESS})["protocol"])
    if is_late:
        finished_study.confirm(folder)
    (folder / "anchors").mkdir()
    (folder / "anchors" / "lock.sigstore.json").write_text(json.dumps(instance.sign(held.digest)))
    if not is_late:
        finished_study.confirm(folder)
    study = Registration(folder)
    return study, anchors.verify_anchors(study, make_witnesses(study, sigstore_root=root))


def test_a_bundle_of_before_the_claim_makes_confirmed_of_unwitnessed(tmp_path, instance, root):
    study, proofs = signed(tmp_path / "study", instance, root)
    assert anchors.is_lock_witnessed(study, proofs)
    assert anchors.format_anchoring(proofs) == f"ANCHORED (lock by sigstore {utc(60)})"
    assert not anchors.is_lock_witnessed(study, anchors.verify_anchors(study, make_witnesses(study)))
    late, proofs = signed(tmp_path / "late", instance, root, is_late=True)
    assert not anchors.is_lock_witnessed(late, proofs)


def test_the_line_that_registering_prints_signs_the_digest_of_the_lock(tmp_path, monkeypatch):
    """Run by a shell with a `sigstore` in the path that writes down what it would sign, in a folder with a space."""
    folder = tmp_path / "my registrations" / "study"
    lock.write(folder, lock_content(written={"witness": WITNESS}))
    study = Registration(folder)
    line = registered.stamp_lock(study)
    assert "no witness yet" in line
    assert line.endswith(f"before confirm, run: kv-prereg anchor {folder} lock --witness sigstore")
    assert not (folder / "anchors").exists()
    (tmp_path / "sigstore").write_text('#!/bin/sh\ncp "$4" "$3"\n')
    (tmp_path / "sigstore").chmod(0o755)
    command = sigstore_log.format_signing_command(folder, "lock")
    assert command in line
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environment, check=True)
    assert hashlib.sha256((folder / "anchors" / "lock.sigstore.json").read_bytes()).hexdigest() == study.lock.digest


def test_the_command_says_what_the_bundle_shows(tmp_path, instance, root):
    study, _ = signed(tmp_path / "study", instance, root)
    done = studies.here("anchor", study.folder, "--sigstore-root", root)
    assert done.stdout.splitlines()[0] == f"held         lock by sigstore: {utc(60)}"
    assert done.returncode == 0
    done = studies.here("anchor", study.folder)
    assert done.stdout.startswith("cannot tell  lock by sigstore: ")
    assert done.stdout.endswith("UNANCHORED\n")
    done = studies.here("anchor", study.folder, "--sigstore-root", tmp_path / "none.json")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
