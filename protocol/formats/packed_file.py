"""Read packed files (gzip, xz) up to a size limit, since a thousand compressed bytes can hold a million."""

import io
import lzma
import os
import zlib
from pathlib import Path
from typing import IO, Protocol

from protocol.formats import files
from protocol.formats.refusals import Tampered

MAX_BYTES = 1 << 28  # decompressed bytes: a batch of 2,600 lanes and 8,192 tokens
GZIP, XZ = ".gz", ".xz"
_GZIP_MAGIC, _XZ_MAGIC = b"\x1f\x8b\x08", b"\xfd7zXZ\0\0\4"  # that of xz with CRC64, its usual checksum
_GZIP_ENDINGS = (b"\x02\x03", b"\x02\xff")  # slowest compression, on Unix or an unnamed system: what Python writes
_GZIP_WINDOW_BITS = 31  # zlib's wbits: a window of 32 KiB inside the header and the checksum of gzip
_GZIP_MIN_BYTES = 18  # header and trailer
_XZ_MEMORY = 1 << 27  # bytes that unpacking may take: preset 9 takes half of them
_XZ_FOOTER = 12  # bytes: checksum, size of the index, flags, magic
_BLOCK = 1 << 16


class _Decompressor(Protocol):
    """What unpacks one stream, as `lzma.LZMADecompressor` does."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _GzipDecompressor:
    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(_GZIP_WINDOW_BITS)

    @property
    def eof(self) -> bool:
        return self._inflater.eof

    @property
    def needs_input(self) -> bool:
        return not self._inflater.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inflater.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inflater.decompress(self._inflater.unconsumed_tail + data, max_length)


def read(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the unpacked bytes of a file with one gzip member or one stream of xz, as its suffix says.

    Raises Tampered for any other content, and for more than `max_bytes` bytes.
    """
    with files.open_plain(path, max_bytes) as file:
        return decompressed(file, path.name, max_bytes).read()


def decompress(data: bytes, name: str) -> bytes:
    """Return the unpacked bytes of a file of this name. Raises as `read` does."""
    return decompressed(io.BytesIO(data), name, MAX_BYTES).read()


def decompressed(file: IO[bytes], name: str, max_bytes: int) -> io.BufferedReader:
    """Return the unpacked bytes of a file of this name as a stream. Its reads raise Tampered as `read` does."""
    return io.BufferedReader(_Stream(file, name, max_bytes), _BLOCK)


def stated_bytes(file: IO[bytes], name: str) -> int:
    """Return the size of the unpacked bytes that the end of a packed file states; that of the file if it is too short
    to state one. Raises Tampered for xz in more than one block.
    """
    size = file.seek(0, os.SEEK_END)
    if name.endswith(XZ):
        return _stated_by_xz(file, name, size)
    if size < _GZIP_MIN_BYTES:
        return size
    file.seek(-4, os.SEEK_END)
    return int.from_bytes(file.read(4), "little")


def _stated_by_xz(file: IO[bytes], name: str, size: int) -> int:
    """Read the index of xz: a zero, the number of blocks, and of each the packed and the unpacked size."""
    if size < 2 * _XZ_FOOTER:  # header and footer have the same size
        return size
    file.seek(-_XZ_FOOTER, os.SEEK_END)
    index_bytes = 4 * (int.from_bytes(file.read(_XZ_FOOTER)[4:8], "little") + 1)
    file.seek(-min(size, _XZ_FOOTER + index_bytes), os.SEEK_END)
    index = io.BytesIO(file.read(min(index_bytes, _BLOCK)))
    blocks = index.read(2)
    if blocks == b"\0\0":
        return 0
    if blocks != b"\0\1":
        raise Tampered(f"{name}: not readable: is not one block of xz; kv-prereg writes no other")
    _read_integer(index)
    return _read_integer(index)


def _read_integer(index: IO[bytes]) -> int:
    """Read an integer of xz: seven bits a byte, the lowest first, of which all but the last byte have the eighth."""
    value = 0
    for shift in range(0, 63, 7):
        byte = int.from_bytes(index.read(1), "little")
        value |= (byte & 127) << shift
        if byte < 128:
            break
    return value


class _Stream(io.RawIOBase):
    def __init__(self, file: IO[bytes], name: str, max_bytes: int):
        self._file, self._name = file, name
        self._max_bytes = self._remaining = max_bytes
        self._compressed = file.read(_BLOCK)
        self._decompressor: _Decompressor
        if name.endswith(XZ):
            self._decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY)
            has_options = not self._compressed.startswith(_XZ_MAGIC) and self._compressed.startswith(_XZ_MAGIC[:6])
        else:
            self._decompressor = _GzipDecompressor()
            flags_and_time, ending = self._compressed[3:8], self._compressed[8:10]
            is_usual = not any(flags_and_time) and ending in _GZIP_ENDINGS
            has_options = self._compressed.startswith(_GZIP_MAGIC) and not is_usual
        if has_options:
            raise Tampered(f"{name}: its {self._format} header has optional fields, which kv-prereg never writes")

    @property
    def _format(self) -> str:
        return "xz" if self._name.endswith(XZ) else "gzip"

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # a BufferedReader passes no other
        data = b""
        while not data and not self._decompressor.eof:
            block, self._compressed = self._compressed, b""
            needs_input = not block and self._decompressor.needs_input
            if needs_input:
                block = self._file.read(_BLOCK)
            try:
                data = self._decompressor.decompress(block, len(buffer))
            except (zlib.error, lzma.LZMAError) as error:
                raise Tampered(f"{self._name}: not readable: {error}") from None
            if needs_input and not (block or data or self._decompressor.eof):
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
