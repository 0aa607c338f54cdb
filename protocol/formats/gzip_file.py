"""Read gzip files up to a size limit, since a thousand compressed bytes can hold a million."""

import zlib
from pathlib import Path

from protocol.formats import files
from protocol.formats.refusals import Tampered

MAX_BYTES = 1 << 28  # decompressed bytes: a batch of 2,600 lanes and 8,192 tokens
_GZIP_WINDOW_BITS = 31  # zlib's wbits: a window of 32 KiB inside the header and the checksum of gzip


def read(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the decompressed bytes of a file with one gzip member.

    Raises FileNotFoundError, and Tampered for any other file and for over `max_bytes` decompressed bytes.
    """
    compressed = files.read(path, max_bytes)
    decompressor = zlib.decompressobj(_GZIP_WINDOW_BITS)
    try:
        data = decompressor.decompress(compressed, max_bytes + 1)
    except zlib.error as error:
        raise Tampered(f"{path.name}: not readable: {error}") from None
    if len(data) > max_bytes:
        raise Tampered(f"{path.name}: holds over {max_bytes} bytes, compressed; no such file of ours does")
    if not decompressor.eof:
        raise Tampered(f"{path.name}: not readable: its compressed bytes were cut short")
    if any(compressed[3:8]):  # flags, and a time: with a flag, a name or a comment follows
        raise Tampered(f"{path.name}: its header holds more than that it is compressed")
    if decompressor.unused_data:
        raise Tampered(f"{path.name}: goes on after its compressed bytes")
    return data
