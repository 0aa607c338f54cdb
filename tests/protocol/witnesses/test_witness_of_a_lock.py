"""CONFIRMED needs an outsider who shows that the lock came before the results; else it reads UNWITNESSED."""

import subprocess

import finished_study
import pytest
import studies
from looped import looped

from analysis.judgement import qualifiers
from analysis.rules import verdict_line
from figures.report_page import report_index
from protocol import audit, status
from protocol.evidence import late_randomness
from protocol.evidence.audit.checks import Checks
from protocol.evidence.external import anchors
from protocol.evidence.registration import Registration
from protocol.formats import documents
from protocol.formats.findings import Finding
from protocol.formats.refusals import Tampered
from protocol.formats.vocabulary import VERDICT_WORDS
from protocol.witnesses import GitRemote, registered, stamping

BARE = "CONFIRMED (UNWITNESSED)"


class Study:
    """What `registered` reads of a registration: its folder, its protocol, and a lock to stamp."""

    def __init__(self, folder, **tables):
        finished_study.locked(folder)
        self.study, self.folder, self.protocol = Registration(folder), folder, tables

    def __getattr__(self, name):
        return getattr(self.study, name)


@pytest.fixture
def remote(tmp_path):
    subprocess.run(["git", "init", "--quiet", "--bare", tmp_path / "remote.git"], check=True)
    return str(tmp_path / "remote.git")


def stamped(folder, remote):
    study = Study(folder, witness={"kind": "git", "remote": remote})
    registered.stamp_lock(study)
    return Registration(folder)


def verified(study, remote):
    return anchors.verify_anchors(study, [GitRemote(remote)])


@looped("judging", [1, 2, 3])
@looped("word", VERDICT_WORDS)
def test_confirmed_alone_is_qualified_and_only_by_todays_rules(word, judging):
    judged = {"verdict": word, "contrasts": [], "rule_says": "REFUTED"}
    own = {"opened": [], "items": {}, "parent": None, "judging": judging}
    lock = {**finished_study.lock_content(), **own}
    judged["qualifiers"] = [each._asdict() for each in qualifiers.list_qualifiers(judged, lock)]
    expected = BARE if (word, judging) == ("CONFIRMED", 3) else word
    assert verdict_line.verdict_word(judged) == expected
    if word != "SCREENED":
        assert verdict_line.format_verdict(judged) == expected
        assert verdict_line.format_line(verdict_line.witnessed(judged)) == word
    assert any("may be younger" in line for line in verdict_line.list_remarks(judged)) == (expected == BARE)


def test_other_qualifiers_stay_beside_it_and_when_it_is_lifted():
    others = [{"word": "UNWITNESSED", "text": "t"}, {"word": "REPRODUCTION", "text": "t"}]
    judged = {"verdict": "CONFIRMED", "qualifiers": others, "contrasts": []}
    assert verdict_line.format_verdict(judged) == f"{BARE} [REPRODUCTION]"
    assert verdict_line.format_verdict(verdict_line.witnessed(judged)) == "CONFIRMED [REPRODUCTION]"


def test_a_judgement_without_qualifiers_stays_what_it_is():
    shipped = {"verdict": "CONFIRMED"}
    assert verdict_line.witnessed(shipped) == shipped


def test_indexes_count_the_unwitnessed_apart():
    entries = [
        report_index.Entry(str(number), "judged", "", "CONFIRMED", text, False)
        for number, text in enumerate(("CONFIRMED", f"{BARE} [REPRODUCTION]"))
    ]
    assert "2 CONFIRMED (1 UNWITNESSED)" in report_index.format_total(entries)


def test_what_is_registered_is_pushed_and_the_claim_cites_it(tmp_path, remote):
    study = stamped(tmp_path / "registrations" / "study", remote)
    finished_study.confirm(study.folder)
    assert study.claim.content["witness"] == study.lock_proofs() != {}
    assert anchors.is_lock_witnessed(study, verified(study, remote))
    assert "names the lock" in Checks(study).check_claim()


def test_a_remote_is_named_as_the_repository_knows_it(tmp_path, remote):
    root = tmp_path / "clone"
    subprocess.run(["git", "init", "--quiet", root], check=True)
    subprocess.run(["git", "-C", root, "remote", "add", "origin", "../remote.git"], check=True)
    study = Study(root / "registrations" / "study", witness={"kind": "git", "remote": "origin"})
    assert "witnessed by git" in registered.stamp_lock(study)
    assert registered.find_remote(study) == remote
    with studies.unchanged(study.folder):
        registered.stamp_lock(study)


def test_a_proof_of_after_the_claim_shows_no_order(tmp_path, remote):
    folder = tmp_path / "study"
    finished_study.finished(folder)
    stamping.stamp(Registration(folder), "lock", GitRemote(remote))
    study = Registration(folder)
    proofs = verified(study, remote)
    assert anchors.format_anchoring(proofs).startswith("ANCHORED (lock")
    assert not anchors.is_lock_witnessed(study, proofs)


def test_a_proof_shows_no_order_to_records_that_are_cited(tmp_path, remote):
    """They are of before this claim; whoever has their folder can write its claim anew, so that it names this lock."""
    study = stamped(tmp_path / "study", remote)
    finished_study.confirm(study.folder)
    proofs = verified(study, remote)
    assert anchors.is_lock_witnessed(study, proofs)
    study.lock.content["cites"] = {"full": {"name": "earlier", "lock": "0" * 64, "seal": None, "other_code": 0}}
    assert not anchors.is_lock_witnessed(study, proofs)


def test_a_proof_that_nobody_here_trusts_is_no_witness(tmp_path, remote):
    study = stamped(tmp_path / "study", remote)
    finished_study.confirm(study.folder)
    assert not anchors.is_lock_witnessed(study, anchors.verify_anchors(study, [GitRemote()]))
    assert not anchors.is_lock_witnessed(study, [])


def test_a_proof_of_another_document_is_no_witness_of_the_lock(tmp_path, remote):
    study = stamped(tmp_path / "study", remote)
    finished_study.confirm(study.folder)
    proofs = [proof._replace(document="claim") for proof in verified(study, remote)]
    assert not anchors.is_lock_witnessed(study, proofs)


@pytest.mark.parametrize("damage", ["removed", "exchanged"])
def test_a_cited_proof_has_to_be_there_as_it_was(tmp_path, remote, damage):
    study = stamped(tmp_path / "study", remote)
    finished_study.confirm(study.folder)
    path = study.folder / "anchors" / "lock.git.json"
    path.unlink() if damage == "removed" else path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(Tampered, match="anchors/"):
        Checks(Registration(study.folder)).check_claim()


def test_a_pending_proof_may_be_completed_and_is_then_no_witness(tmp_path):
    study = Registration(tmp_path / "study")
    finished_study.locked(study.folder)
    (study.folder / "anchors").mkdir()
    path = study.folder / "anchors" / "lock.ots"
    path.write_bytes(b"pending")
    finished_study.confirm(study.folder)
    path.write_bytes(b"complete")
    Checks(study).check_claim()
    held = anchors.Anchor("lock", "ots", "held", None, "block 1", 1, "lock.ots")
    assert not anchors.is_lock_witnessed(study, [held])


@pytest.mark.parametrize(
    ("witness", "words"),
    [
        (None, "will read CONFIRMED (UNWITNESSED)"),
        ({"kind": "none"}, "will read CONFIRMED (UNWITNESSED)"),
        ({"kind": "git", "remote": "origin"}, "this repository has no git remote origin"),
        ({"kind": "git", "remote": "/nowhere.git"}, "/nowhere.git does not answer"),
        ({"kind": "git", "remote": "https://me:secret@example.invalid/x.git"}, "has a password in it"),
        ({"kind": "rfc3161", "authority": "ftp://example.invalid"}, "http:// or https://"),
    ],
)
def test_without_a_witness_one_line_says_what_to_do_and_registering_goes_on(tmp_path, witness, words):
    study = Study(tmp_path / "study", **({} if witness is None else {"witness": witness}))
    line = registered.stamp_lock(study)
    assert words in line
    assert len(line.splitlines()) == 1
    assert "secret" not in line
    assert not (study.folder / "anchors").exists()
    if witness and witness["kind"] != "none":
        assert f"before confirm, run: kv-prereg anchor {study.folder} lock --witness {witness['kind']}" in line


@pytest.mark.parametrize(
    ("source", "is_silent"), [("local", False), ("beacon", False), ("nonce", True), ("anchor", True)]
)
def test_a_late_value_of_somebody_else_needs_no_witness_and_a_local_one_does(tmp_path, source, is_silent):
    study = Study(tmp_path / "study", randomness={"source": source})
    assert (registered.stamp_lock(study) == "") == is_silent


class Locked:
    digest = "0" * 64

    def __init__(self, signer=None, **randomness):
        self.content = {"signer": signer, "protocol": {"content": {"randomness": randomness} if randomness else {}}}


@pytest.fixture(scope="module")
def auditor(tmp_path_factory):
    """The public key of an auditor, and the claim with a nonce that it signed for the lock of `Locked`."""
    folder = tmp_path_factory.mktemp("auditor")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
    value = "ab" * 32
    (folder / "value").write_text(f"{Locked.digest} {value}\n")
    sign = ["ssh-keygen", "-q", "-Y", "sign", "-n", "kv-prereg-nonce", "-f", folder / "key", folder / "value"]
    subprocess.run(sign, check=True, capture_output=True)
    key = " ".join((folder / "key.pub").read_text().split()[:2])
    signature = (folder / "value.sig").read_text()
    return key, documents.Document({"randomness": {"source": "nonce", "value": value, "signature": signature}}, "")


@pytest.mark.parametrize(
    ("source", "listed", "is_order_shown"),
    [
        (None, "a {key}", False),
        ("local", 'a namespaces="kv-prereg-nonce" {key}', False),
        ("anchor", "", True),
        ("beacon", 'a namespaces="kv-prereg-nonce" {key}', False),
        ("nonce", 'a namespaces="kv-prereg-nonce" {key}', True),
        ("nonce", 'a NAMESPACES="git,kv-prereg-nonce" {key} of A', True),
        ("nonce", "a {key}", False),
        ("nonce", 'a namespaces="kv-prereg" {key}', False),
        ("nonce", 'a namespaces="kv-prereg" {key}\na namespaces="kv-prereg-nonce" ssh-ed25519 AAAA', False),
        ("nonce", '# a namespaces="kv-prereg-nonce" {key}', False),
        ("nonce", 'a namespaces="kv-prereg-nonce",valid-before="20200101" {key}', False),
        ("nonce", None, False),
    ],
)
def test_which_late_value_shows_that_the_lock_came_first(tmp_path, auditor, source, listed, is_order_shown):
    """Of a nonce, only a line for nonces in the auditor's list: ssh allows a line without namespaces all of them."""
    key, taken = auditor
    signers = tmp_path / "signers" if listed is not None else None
    if signers:
        signers.write_text(f"{listed.format(key=key)}\n")
    randomness = {"source": source, **({"auditor": key} if source == "nonce" else {})} if source else {}
    assert late_randomness.shows_order(Locked(**randomness), taken, signers) == is_order_shown
    if source == "nonce":  # the author's own key, though the auditor listed it
        assert not late_randomness.shows_order(Locked(signer=key, **randomness), taken, signers)


@pytest.mark.parametrize(("found", "is_witnessed"), [("held", True), ("cannot tell", False), ("failed", False)])
def test_an_audit_believes_a_late_value_that_it_verified(tmp_path, found, is_witnessed):
    study = Study(tmp_path / "study")
    study.lock, study.claim = Locked(source="anchor"), documents.Document({}, "")
    findings = [Finding("randomness", found, "")]
    assert audit._is_witnessed(study, audit.AuditOptions(), [], findings) == is_witnessed
    study.lock = Locked(source="beacon")
    assert not audit._is_witnessed(study, audit.AuditOptions(), [], findings)


def test_an_audit_prints_one_word_for_one_verdict():
    judged = {"verdict": "CONFIRMED", "qualifiers": [{"word": "UNWITNESSED", "text": "t"}], "contrasts": []}
    finding = Finding("judgement", "held", f"{BARE}, judged alike")
    assert audit._name_witnessed(finding, judged).detail == "CONFIRMED, judged alike"
    assert status.format_verdict(judged) == BARE


def test_a_beacon_that_the_auditor_looked_up_holds_and_another_value_fails(tmp_path):
    locked = Locked(source="beacon", name="drand", round=7)
    locked.digest = "0" * 64
    value, file = "ab" * 32, tmp_path / "round"
    key = late_randomness.derive_key(locked.digest, value)
    taken = documents.Document({"randomness": {"source": "beacon", "value": value, "key": key}}, "")
    file.write_text(f"7 {value}\n")
    assert "looked up" in late_randomness.verify(locked, taken, file=file)
    file.write_text(f"7 {'cd' * 32}\n")
    with pytest.raises(Tampered, match="round 7"):
        late_randomness.verify(locked, taken, file=file)
