import hashlib
import io
import sys

import chain_by_hand
import pytest
from chain_by_hand import HEIGHT
from finished_study import lock_content
from opentimestamps.core.serialize import StreamDeserializationContext
from opentimestamps.core.timestamp import DetachedTimestampFile

from protocol import witnesses
from protocol.evidence.external.anchors import Unproven
from protocol.evidence.registration import Registration
from protocol.formats.refusals import BadInput, Tampered
from protocol.lock import lock
from protocol.witnesses.ots import Block, OpenTimestamps

DIGEST = hashlib.sha256(b"a lock").hexdigest()
RAW = bytes.fromhex(DIGEST)


@pytest.fixture
def calendar():
    server = chain_by_hand.serve(chain_by_hand.Calendar)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def headers(tmp_path):
    folder = tmp_path / "headers"
    folder.mkdir()
    return folder


def parsed(proof):
    return DetachedTimestampFile.deserialize(StreamDeserializationContext(io.BytesIO(proof)))


def attestations(proof):
    return set(parsed(proof).timestamp.all_attestations())


def write_header(folder, root, name=f"{HEIGHT}.hex"):
    text = chain_by_hand.mined(root)
    (folder / name).write_text(text + "\n")
    raw = bytes.fromhex(text)
    return hashlib.sha256(hashlib.sha256(raw).digest()).digest()[::-1].hex()


def test_a_proof_is_pending_then_grows_into_a_block(calendar, headers):
    witness = OpenTimestamps((headers,), (calendar.url,), min_difficulty=0)
    proof = witness.stamp(DIGEST)
    assert parsed(proof).file_digest.hex() == DIGEST
    with pytest.raises(Unproven, match=f"pending at {calendar.url}"):
        witness.verify(DIGEST, proof)
    assert witness.upgrade(DIGEST, proof) is None

    calendar.mined = True
    grown = witness.upgrade(DIGEST, proof)
    assert parsed(grown).file_digest.hex() == DIGEST
    assert attestations(grown) > attestations(proof)
    with pytest.raises(Unproven, match=f"to check it, put the block's header into anchors/headers/{HEIGHT}.hex"):
        witness.verify(DIGEST, grown)

    (salted,) = calendar.digests.values()
    hashed = write_header(headers, chain_by_hand.merkle_root(salted))
    assert witness.verify(DIGEST, grown) == (f"block {HEIGHT}", "2026-09-21T14:13:20Z", HEIGHT)
    assert witness.find_block(DIGEST, grown) == Block(HEIGHT, hashed, "2026-09-21T14:13:20Z")


def test_a_calendar_does_not_see_the_digest(calendar):
    witness = OpenTimestamps((), (calendar.url,))
    witness.stamp(DIGEST)
    witness.stamp(DIGEST)
    assert RAW not in calendar.digests.values()
    assert len(calendar.digests) == 2


def test_one_calendar_that_answers_is_enough(calendar):
    OpenTimestamps((), ("http://127.0.0.1:9", calendar.url)).stamp(DIGEST)
    with pytest.raises(Unproven, match=r"no calendar answers; http://127\.0\.0\.1:9"):
        OpenTimestamps((), ("http://127.0.0.1:9",)).stamp(DIGEST)


def test_a_proof_with_a_block_stays_as_it_is(calendar):
    calendar.mined = True
    witness = OpenTimestamps((), (calendar.url,))
    grown = witness.upgrade(DIGEST, witness.stamp(DIGEST))
    calendar.shutdown()
    assert witness.upgrade(DIGEST, grown) is None


def test_a_calendar_that_only_the_proof_names_is_not_asked(calendar):
    proof = OpenTimestamps((), (calendar.url,)).stamp(DIGEST)
    calendar.mined = True
    with pytest.raises(Unproven, match=f"{calendar.url}: an unknown calendar server"):
        OpenTimestamps().upgrade(DIGEST, proof)


def test_a_proof_written_by_hand_holds(headers):
    write_header(headers, chain_by_hand.merkle_root(RAW))
    vouched = OpenTimestamps((headers,), min_difficulty=0).verify(DIGEST, chain_by_hand.complete(RAW))
    assert vouched.order == HEIGHT


def test_a_block_of_too_little_work_is_not_believed(headers):
    write_header(headers, chain_by_hand.merkle_root(RAW))
    with pytest.raises(Unproven, match="less work"):
        OpenTimestamps((headers,)).verify(DIGEST, chain_by_hand.complete(RAW))


def test_a_header_over_other_transactions_contradicts_the_proof(headers):
    write_header(headers, chain_by_hand.merkle_root(b"x" * 32))
    with pytest.raises(Tampered, match="another merkle root"):
        OpenTimestamps((headers,), min_difficulty=0).verify(DIGEST, chain_by_hand.complete(RAW))


def test_a_header_without_work_is_forged(headers):
    write_header(headers, chain_by_hand.merkle_root(RAW))
    path = headers / f"{HEIGHT}.hex"
    path.write_text(path.read_text()[:144] + "ffff001d" + path.read_text()[152:])  # claims difficulty 1
    with pytest.raises(Tampered, match="no miner made this header"):
        OpenTimestamps((headers,), min_difficulty=0).verify(DIGEST, chain_by_hand.complete(RAW))


def test_a_proof_of_another_digest_fails():
    with pytest.raises(Tampered, match="which is not this document's"):
        OpenTimestamps().verify("0" * 64, chain_by_hand.complete(RAW))


def test_of_two_blocks_the_earlier_one_counts(headers):
    both = chain_by_hand.complete(RAW)
    one = both[both.index(chain_by_hand.PREPEND + b"\x20") :]
    both = both[: -len(one)] + b"\xff" + one + one.replace(b"n" * 32, b"m" * 32)
    both = both.replace(chain_by_hand.number(HEIGHT), chain_by_hand.number(HEIGHT + 1), 1)
    later = chain_by_hand.sha256(chain_by_hand.sha256(b"n" * 32 + chain_by_hand.committed(RAW)))
    earlier = chain_by_hand.sha256(chain_by_hand.sha256(b"m" * 32 + chain_by_hand.committed(RAW)))
    write_header(headers, later, f"{HEIGHT + 1}.hex")
    witness = OpenTimestamps((headers,), min_difficulty=0)
    with pytest.raises(Unproven, match=f"names block {HEIGHT}"):
        witness.verify(DIGEST, both)
    write_header(headers, earlier)
    assert witness.verify(DIGEST, both).order == HEIGHT


PROOF = chain_by_hand.complete(RAW)


@pytest.mark.parametrize("length", [0, 10, 31, 40, 70, len(PROOF) - 1])
def test_a_proof_cut_short_is_none(length):
    with pytest.raises(Tampered, match="not an OpenTimestamps proof"):
        OpenTimestamps().verify(DIGEST, PROOF[:length])


def test_foreign_bytes_are_no_proof():
    for proof in (b"hello", PROOF + b"\x00", PROOF[:32] + b"\xff" * 4000, PROOF[:65] + chain_by_hand.SHA256 * 3000):
        with pytest.raises(Tampered, match="not an OpenTimestamps proof"):
            OpenTimestamps().verify(DIGEST, proof)


def test_a_block_beyond_every_chain_is_refused():
    with pytest.raises(Tampered, match="impossibly large"):
        OpenTimestamps().verify(DIGEST, chain_by_hand.complete(RAW, height=1 << 20000))


def test_every_changed_byte_of_a_proof_shows(headers):
    write_header(headers, chain_by_hand.merkle_root(RAW))
    witness = OpenTimestamps((headers,), min_difficulty=0)
    witness.verify(DIGEST, PROOF)
    for place in range(len(PROOF)):
        changed = bytearray(PROOF)
        changed[place] ^= 1
        with pytest.raises((Tampered, Unproven)):
            witness.verify(DIGEST, bytes(changed))


def test_without_the_library_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentimestamps.core.timestamp", None)
    with pytest.raises(Unproven, match=r"pip install '\.\[anchor\]'"):
        OpenTimestamps().verify(DIGEST, PROOF)


def test_the_block_of_a_lock_is_that_of_its_proof(tmp_path):
    digest = lock.write(tmp_path, lock_content())
    with pytest.raises(BadInput, match=r"lock\.ots: missing; run: kv-prereg anchor"):
        witnesses.find_lock_block(Registration(tmp_path))
    (tmp_path / "anchors").mkdir()
    (tmp_path / "anchors" / "lock.ots").write_bytes(chain_by_hand.complete(bytes.fromhex(digest)))
    with pytest.raises(Unproven, match=f"names block {HEIGHT}"):
        witnesses.find_lock_block(Registration(tmp_path))
    (tmp_path / "anchors" / "headers").mkdir()
    write_header(tmp_path / "anchors" / "headers", chain_by_hand.merkle_root(bytes.fromhex(digest)))
    with pytest.raises(Unproven, match="less work"):
        witnesses.find_lock_block(Registration(tmp_path))
