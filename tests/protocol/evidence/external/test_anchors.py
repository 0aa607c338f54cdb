import json
import subprocess
from dataclasses import dataclass

import finished_study
import pytest
import studies

from protocol.evidence.external import anchors
from protocol.evidence.external.anchors import Attestation, Unproven
from protocol.evidence.registration import Registration
from protocol.formats.refusals import BadInput, Tampered, Unanchored
from protocol.witnesses import stamping


@dataclass
class Clerk:
    """A witness for tests: its proof is the digest and a number, larger each time; "?" is pending."""

    name: str = "clerk"
    suffix: str = "note"
    count: int = 0
    pending: bool = False
    gone: bool = False

    def stamp(self, digest):
        if self.gone:
            raise Unproven("out of office")
        self.count += 1
        return f"{digest} {'?' if self.pending else self.count}".encode()

    def verify(self, digest, proof):
        said, number = proof.decode().split()
        if said != digest:
            raise Tampered("a note about something else")
        if number == "?":
            raise Unproven("not numbered yet")
        return Attestation(f"number {number}", None, int(number))

    def upgrade(self, digest, proof):
        return None if self.pending else proof.replace(b"?", b"1")


@pytest.fixture
def study(tmp_path):
    folder = tmp_path / "toy"
    finished_study.finished(folder)
    return folder


def digest(path):
    """As docs/records.md says to compute it."""
    return subprocess.run(f"head -c -1 '{path}' | sha256sum", shell=True, capture_output=True, text=True).stdout[:64]


def status(folder, *witnesses):
    return {anchor.document: anchor.status for anchor in anchors.verify_anchors(Registration(folder), witnesses)}


@pytest.mark.parametrize("document", ["lock", "claim", "seal", "verdict"])
def test_what_is_stamped_is_the_digest_of_the_document(study, document):
    stamping.stamp(Registration(study), document, Clerk())
    proof = (study / "anchors" / f"{document}.note").read_text()
    assert proof == f"{digest(study / f'{document}.json')} 1"


def test_a_study_is_unanchored_until_a_proof_of_the_lock_holds(study):
    clerk = Clerk()
    assert anchors.format_anchoring(anchors.verify_anchors(Registration(study), [clerk])) == "UNANCHORED"
    clerk.count = 4
    stamping.stamp(Registration(study), "verdict", clerk)
    assert anchors.format_anchoring(anchors.verify_anchors(Registration(study), [clerk])) == "UNANCHORED"
    slow = Clerk("slow", "slow", pending=True)
    stamping.stamp(Registration(study), "lock", slow)
    assert anchors.format_anchoring(anchors.verify_anchors(Registration(study), [clerk, slow])) == "UNANCHORED"
    clerk.count = 1
    stamping.stamp(Registration(study), "lock", clerk)
    found = anchors.verify_anchors(Registration(study), [clerk, slow])
    assert anchors.format_anchoring(found) == "ANCHORED (lock by clerk number 2; verdict by clerk number 5)"


def test_the_documents_are_listed_in_the_order_of_their_making(study):
    clerk = Clerk()
    for document in anchors.existing_documents(Registration(study)):
        stamping.stamp(Registration(study), document, clerk)
    assert list(status(study, clerk)) == ["lock", "claim", "seal", "verdict"]
    assert set(status(study, clerk).values()) == {"held"}


def test_a_witness_vouches_for_a_document_once(study):
    clerk = Clerk()
    stamping.stamp(Registration(study), "lock", clerk)
    with studies.unchanged(study):
        with pytest.raises(BadInput, match=r"lock\.note exists"):
            stamping.stamp(Registration(study), "lock", clerk)
        assert clerk.count == 1  # it was not even asked


def test_a_document_that_is_not_there_yet_is_not_stamped(tmp_path):
    finished_study.locked(tmp_path / "toy")
    with pytest.raises(BadInput, match=r"no verdict\.json"):
        stamping.stamp(Registration(tmp_path / "toy"), "verdict", Clerk())


def test_a_witness_that_cannot_be_had_leaves_nothing_behind(study):
    with pytest.raises(BadInput, match="lock by clerk: out of office"):
        stamping.stamp(Registration(study), "lock", Clerk(gone=True))
    assert not (study / "anchors").exists()


def test_an_answer_that_is_no_proof_is_not_kept(study):
    clerk = Clerk()
    clerk.stamp = lambda digest: b"something 1"
    with pytest.raises(BadInput, match="not a proof of lock"):
        stamping.stamp(Registration(study), "lock", clerk)
    assert not (study / "anchors").exists()


def test_a_document_written_anew_fails_against_its_proof(study):
    stamping.stamp(Registration(study), "verdict", Clerk())
    content = json.loads((study / "verdict.json").read_bytes())
    content["judged"]["verdict"] = "CONFIRMED"
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    (study / "verdict.json").write_text(text + "\n")
    assert status(study, Clerk()) == {"verdict": "failed"}


def test_a_proof_whose_document_was_taken_away_fails(study):
    stamping.stamp(Registration(study), "verdict", Clerk())
    (study / "verdict.json").unlink()
    (one,) = anchors.verify_anchors(Registration(study), [Clerk()])
    assert (one.status, one.detail) == ("failed", "verdict.json: missing")


@pytest.mark.parametrize(
    "name", ["lock.txt", "lock", "records.note", "notes/lock.note", "notes/1.hex", "headers/tip.hex", ".lock.note.12ab"]
)
def test_a_file_that_is_no_proof_fails(study, name):
    path = study / "anchors" / name
    path.parent.mkdir(parents=True)
    path.write_text("")
    assert [anchor.status for anchor in anchors.verify_anchors(Registration(study), [Clerk()])] == ["failed"]


def test_block_headers_may_lie_beside_the_proofs(study):
    (study / "anchors" / "headers").mkdir(parents=True)
    (study / "anchors" / "headers" / "900000.hex").write_text("")
    assert anchors.verify_anchors(Registration(study), [Clerk()]) == []


def test_a_proof_made_after_that_of_a_later_document_shows_no_order(study):
    clerk = Clerk()
    stamping.stamp(Registration(study), "claim", clerk)
    stamping.stamp(Registration(study), "lock", clerk)
    lock, claim = anchors.verify_anchors(Registration(study), [clerk])
    assert (lock.status, claim.status) == ("cannot tell", "held")
    assert "after the proof of claim" in lock.detail
    assert anchors.format_anchoring([lock, claim]) == "UNANCHORED"


def test_the_numbers_of_two_witnesses_are_not_compared(study):
    other = Clerk("other", "other", count=10)
    stamping.stamp(Registration(study), "lock", other)
    stamping.stamp(Registration(study), "claim", Clerk())
    assert status(study, other, Clerk()) == {"lock": "held", "claim": "held"}


def test_documents_without_a_proof_that_holds_are_refused_by_name(study):
    clerk, slow = Clerk(), Clerk("slow", "slow", pending=True)
    stamping.stamp(Registration(study), "lock", clerk)
    stamping.stamp(Registration(study), "claim", slow)
    found = anchors.verify_anchors(Registration(study), [clerk, slow])
    assert len(found) == 2
    anchors.require_anchors(found, ["lock"])
    with pytest.raises(Unanchored, match=r"claim\.json: slow: not numbered yet"):
        anchors.require_anchors(found, ["lock", "claim"])
    with pytest.raises(Unanchored, match=r"seal\.json: no witness") as refused:
        anchors.require_anchors(found, ["seal"])
    assert refused.value.exit_status == 5


def test_a_proof_that_fails_is_worse_than_none(study):
    stamping.stamp(Registration(study), "lock", Clerk())
    (study / "anchors" / "claim.note").write_text(f"{'0' * 64} 1")
    with pytest.raises(Tampered, match="claim: a note about something else"):
        anchors.require_anchors(anchors.verify_anchors(Registration(study), [Clerk()]), ["lock", "seal"])


def test_a_pending_proof_is_replaced_by_the_same_one_with_more(study):
    clerk = Clerk(pending=True)
    stamping.stamp(Registration(study), "lock", clerk)
    with studies.unchanged(study):
        assert not stamping.upgrade(Registration(study), "lock", clerk)
    clerk.pending = False
    assert stamping.upgrade(Registration(study), "lock", clerk)
    assert status(study, clerk) == {"lock": "held"}
