import chain_by_hand
import pytest
from looped import looped

from protocol.formats.refusals import Tampered
from protocol.witnesses import bitcoin

# The first block of Bitcoin, as every node has it.
GENESIS = (
    "01000000" + "00" * 32 + "3ba3edfd7a7b12b27ac72c3e67768f617fc81bc3888a51323a9fb8aa4b1e5e4a"
    "29ab5f49" + "ffff001d" + "1dac2b7c"
)


def test_the_first_block_is_read_as_it_is_known():
    header = bitcoin.parse_header(GENESIS + "\n", "0.hex")
    assert header.hash == "000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f"
    assert header.merkle_root[::-1].hex() == "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b"
    assert header.time == 1231006505  # 2009-01-03 18:15:05
    assert header.has_difficulty(1)
    assert not header.has_difficulty(2)


def test_the_difficulty_of_a_header_is_that_of_its_bits():
    """0x1d00ffff is difficulty 1; an exponent less by one is 256 times that, half the mantissa twice."""
    targets = {0x1C00FFFF: 256, 0x1C7FFF80: 2, 0x170331DB: 88_104_191_118_793}  # the last: since 24 April 2024
    for bits, difficulty in targets.items():
        target = (bits & 0x7FFFFF) << 8 * ((bits >> 24) - 3)
        header = bitcoin.Header("", b"", 0, target)
        assert header.has_difficulty(difficulty)
        assert not header.has_difficulty(difficulty + 1)


@looped("place", range(0, 160, 7))
def test_a_changed_header_misses_its_target(place):
    other = "0" if GENESIS[place] != "0" else "1"
    with pytest.raises(Tampered, match=r"0\.hex"):
        bitcoin.parse_header(GENESIS[:place] + other + GENESIS[place + 1 :], "0.hex")


@looped("text", ["", "zz", GENESIS[:-2], GENESIS + "00", "\ufffd"])
def test_what_is_not_eighty_bytes_is_refused(text):
    with pytest.raises(Tampered, match="is not a block header of 80 bytes"):
        bitcoin.parse_header(text, "0.hex")


def test_an_easy_header_that_meets_its_own_target_is_read():
    text = chain_by_hand.mined(b"r" * 32)
    header = bitcoin.parse_header(text, "5.hex")
    assert header.merkle_root == b"r" * 32
    assert not header.has_difficulty(1)


def test_a_negative_target_is_none():
    raw = bytearray.fromhex(chain_by_hand.mined(b"r" * 32))
    raw[72:76] = (0x20FFFFFF).to_bytes(4, "little")
    with pytest.raises(Tampered, match="does not meet"):
        bitcoin.parse_header(raw.hex(), "5.hex")
