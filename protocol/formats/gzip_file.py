"""Read gzip files up to a size limit, since a thousand compressed bytes can hold a million."""

import io
import zlib
from pathlib import Path
from typing import IO

from protocol.formats import files
from protocol.formats.refusals import Tampered

MAX_BYTES = 1 << 28  # decompressed bytes: a batch of 2,600 lanes and 8,192 tokens
MIN_BYTES = 18  # header and trailer
_MAGIC = b"\x1f\x8b\x08"
_ENDINGS = (b"\x02\x03", b"\x02\xff")  # slowest compression, on Unix or an unnamed system: what Python writes
_GZIP_WINDOW_BITS = 31  # zlib's wbits: a window of 32 KiB inside the header and the checksum of gzip
_BLOCK = 1 << 16


def read(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Return a stream of the decompressed bytes of a file with one gzip member. Its reads raise as `read` does."""
    with files.open_plain(path, max_bytes) as file:
        return decompressed(file, path.name, max_bytes).read()


def decompress(data: bytes, name: str) -> bytes:
    """Return the decompressed bytes of one gzip member. Raises as `read` does."""
    return decompressed(io.BytesIO(data), name, MAX_BYTES).read()


def decompressed(file: IO[bytes], name: str, max_bytes: int) -> io.BufferedReader:
    """Return the decompressed bytes of a file with one gzip member as a stream. Its reads raise Tampered as
    `read` does.
    """
    return io.BufferedReader(_Member(file, name, max_bytes), _BLOCK)


class _Member(io.RawIOBase):
    def __init__(self, file: IO[bytes], name: str, max_bytes: int):
        self._file, self._name = file, name
        self._max_bytes = self._remaining = max_bytes
        self._decompressor = zlib.decompressobj(_GZIP_WINDOW_BITS)
        self._compressed = file.read(_BLOCK)
        flags_and_time, ending = self._compressed[3:8], self._compressed[8:10]
        if self._compressed.startswith(_MAGIC) and (any(flags_and_time) or ending not in _ENDINGS):
            raise Tampered(f"{name}: its gzip header has optional fields, which kv-prereg never writes")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # a BufferedReader passes no other
        data = b""
        while not data and not self._decompressor.eof:
            block = self._compressed or self._file.read(_BLOCK)
            try:
                data = self._decompressor.decompress(block, len(buffer))
            except zlib.error as error:
                raise Tampered(f"{self._name}: not readable: {error}") from None
            self._compressed = self._decompressor.unconsumed_tail
            if not (block or data or self._decompressor.eof):
                raise Tampered(f"{self._name}: not readable: its compressed bytes are truncated")
        self._remaining -= len(data)
        if self._remaining < 0:
            raise Tampered(
                f"{self._name}: has more than {self._max_bytes} bytes once unpacked, which no file of this kind has"
            )
        if self._decompressor.eof and (self._decompressor.unused_data or self._file.read(1)):
            raise Tampered(f"{self._name}: has further bytes after its compressed content")
        buffer[: len(data)] = data
        return len(data)
