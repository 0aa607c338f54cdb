"""Read gzip files up to a size limit, since a thousand compressed bytes can hold a million."""

import zlib
from pathlib import Path

from protocol.evidence.bytes import files
from protocol.evidence.refusals import Tampered

MOST = 1 << 28  # decompressed bytes: a batch of 2,600 lanes and 8,192 tokens
_GZIP = 31  # zlib's wbits: a window of 32 KiB inside the header and the checksum of gzip


def read(path: Path, most: int = MOST) -> bytes:
    """Return the decompressed bytes of a file with one gzip member.

    Raises FileNotFoundError, and Tampered for any other file and for over `max_bytes` decompressed bytes.
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
