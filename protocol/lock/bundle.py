"""sources.zip: the locked source tree, stored next to the lock so that the verdict can be derived again."""

import hashlib
import io
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from protocol.formats import files
from protocol.formats.refusals import Drifted, Tampered
from protocol.lock import closure, lock

NAME = "sources.zip"
MAX_BYTES = 1 << 25  # of the bundle, and of all its members: the shipped ones have up to 4.5 million
MAX_MEMBERS = 4096  # the shipped bundles have up to 700

_END = struct.Struct("<4s4H2LH")  # the end of a zip, without a comment
_ENTRY_BYTES = 256  # most bytes per member, on average, in the directory of the zip
_ENCRYPTED = 1
_COMPRESSIONS = (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED)  # the shipped bundles before `control-effect` are stored
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can hold


def write(folder: Path, root: Path, sources: Mapping[str, str]) -> str:
    """Bundle the files of `root` that `sources` names; return the SHA-256 of the zip.

    The same files give the same bytes wherever zlib is the same: sorted, deflated, with one fixed time. The
    bundle is written before the lock, which names it. Raises AlreadyClaimed after the lock, Drifted when a
    file no longer has its digest.
    """
    lock.refuse_second(folder)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(sources):
            data = (root / name).read_bytes()
            if hashlib.sha256(data).hexdigest() != sources[name]:
                raise Drifted(f"{name}: it changed while it was being locked; register again")
            member = zipfile.ZipInfo(name, _EPOCH)
            member.create_system = 3  # Unix, whatever system this is
            member.external_attr = 0o644 << 16
            archive.writestr(member, data, zipfile.ZIP_DEFLATED, 9)
    files.replace(folder / NAME, buffer.getvalue())
    return hashlib.sha256(buffer.getvalue()).hexdigest()


def verify(archive: Path, sources: Mapping[str, str]) -> list[str]:
    """Return the differences between the members of the bundle and the locked `sources`."""
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in _members(archive).items()}
    return closure.differences(sources, digests)


def read(archive: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Return the bytes of the named members that exist. Raises Tampered for an unreadable bundle."""
    members = _members(archive)
    return {name: members[name] for name in names if name in members}


def extract(archive: Path, sources: Mapping[str, str], target: Path) -> None:
    """Write the locked tree below `target`. Raises Tampered unless every member is as locked."""
    if wrong := verify(archive, sources):
        raise Tampered(f"{NAME}: {wrong[0]}")
    for name, data in _members(archive).items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _members(archive: Path) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    remaining = MAX_BYTES
    try:
        with zipfile.ZipFile(io.BytesIO(_read_zip(archive))) as zip_file:
            for member in zip_file.infolist():
                name = member.filename
                if name in members or not _is_inside(name):
                    raise Tampered(f"{NAME}: the member {name!r} occurs twice or points outside the bundle")
                if member.compress_type not in _COMPRESSIONS or member.flag_bits & _ENCRYPTED:
                    raise Tampered(
                        f"{NAME}: the member {name!r} is encrypted, or compressed in a way that kv-prereg never uses"
                    )
                remaining -= member.file_size
                if remaining < 0:
                    raise Tampered(f"{NAME}: its members declare more bytes than any bundle has")
                with zip_file.open(member) as file:
                    members[name] = file.read(member.file_size + 1)  # inflates no more than that at once
                if len(members[name]) != member.file_size:
                    raise Tampered(f"{NAME}: the member {name!r} has fewer bytes than it declares")
    except FileNotFoundError:
        raise Tampered(f"{NAME}: missing") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise Tampered(f"{NAME}: not readable: {error}") from None
    return members


def _read_zip(archive: Path) -> bytes:
    """Return the bytes of the bundle. Raises Tampered unless they end as `write` ends them."""
    data = files.read(archive, MAX_BYTES)
    end = data[-_END.size :]
    if len(end) < _END.size or not end.startswith(b"PK\5\6") or data[-_END.size - 20 :].startswith(b"PK\6\7"):
        raise Tampered(f"{NAME}: does not end like a bundle of kv-prereg; it was truncated or edited")
    _, _, _, _, members, directory, _, _ = _END.unpack(end)
    if members > MAX_MEMBERS or directory > MAX_MEMBERS * _ENTRY_BYTES:
        raise Tampered(f"{NAME}: lists more than {MAX_MEMBERS} members, which no bundle has")
    return data


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    is_plain = not path.is_absolute() and ".." not in path.parts and path.as_posix() == name
    return is_plain and not set(name) & set("\\:\0")
