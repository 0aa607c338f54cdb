"""Parse the header of a Bitcoin block and check its proof of work, without the rest of the chain."""

import hashlib
import struct
from typing import NamedTuple

from protocol.formats.refusals import Tampered

MAX_TARGET = 0xFFFF << 208  # the target of difficulty 1


class Header(NamedTuple):
    hash: str  # in display order: the reversed digest
    merkle_root: bytes  # in hash order, not in display order
    time: int  # Unix seconds
    target: int  # the hash is at most this

    def has_difficulty(self, difficulty: int) -> bool:
        return self.target * difficulty <= MAX_TARGET


def parse_header(text: str, source: str) -> Header:
    """Parse 80 bytes in hex. Raises Tampered when they are no header or its hash misses its own target."""
    try:
        raw = bytes.fromhex(text)
        _, _, root, time, bits, _ = struct.unpack("<i32s32sIII", raw)
    except (ValueError, struct.error):
        raise Tampered(f"{source}: is not a block header of 80 bytes in hex") from None
    digest = hashlib.sha256(hashlib.sha256(raw).digest()).digest()
    exponent, mantissa = bits >> 24, bits & 0xFFFFFF
    target = mantissa << 8 * (exponent - 3) if exponent >= 3 else mantissa >> 8 * (3 - exponent)
    if mantissa >= 1 << 23 or int.from_bytes(digest, "little") > target:  # a negative target is invalid
        raise Tampered(f"{source}: its hash does not meet its own target, so no miner made this header")
    return Header(digest[::-1].hex(), root, time, target)
