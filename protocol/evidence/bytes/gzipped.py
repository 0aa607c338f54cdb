"""Compressed files, inflated up to a limit: a thousand bytes can hold a million."""

import zlib
from pathlib import Path

from protocol.evidence.bytes import files
from protocol.evidence.refusals import Tampered

MOST = 1 << 28  # bytes, inflated: those of a batch of 2,600 lanes and 8,192 tokens
_GZIP = 31  # of zlib: the window of 32 KiB, within the header and the checksum of gzip


def read(path: Path, most: int = MOST) -> bytes:
    """What a file of one gzip member holds. Raises FileNotFoundError, and Tampered for what is no such file,
    and for one that holds more than `most` bytes.
    """
    packed = files.read(path, most)
    inflating = zlib.decompressobj(_GZIP)
    try:
        data = inflating.decompress(packed, most + 1)
    except zlib.error as problem:
        raise Tampered(f"{path.name}: not readable: {problem}") from None
    if len(data) > most:
        raise Tampered(f"{path.name}: holds over {most} bytes, compressed; no such file of ours does")
    if not inflating.eof:
        raise Tampered(f"{path.name}: not readable: its compressed bytes were cut short")
    if any(packed[3:8]):  # flags, and a time: with a flag, a name or a comment follows
        raise Tampered(f"{path.name}: its header holds more than that it is compressed")
    if inflating.unused_data:
        raise Tampered(f"{path.name}: goes on after its compressed bytes")
    return data
