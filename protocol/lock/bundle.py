"""sources.zip: the locked source tree, stored next to the lock so that the verdict can be derived again.

Studies of one folder that have ended can share their sources: sources.tar.xz beside them has each version of a file
once, as <path>/<SHA-256>. Every byte that is read is checked against the lock, which has the digest of each file.
"""

import hashlib
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from protocol.formats import files, packed_file
from protocol.formats.refusals import Drifted, Tampered
from protocol.lock import closure, lock

NAME = "sources.zip"
SHARED = "sources.tar.xz"
MAX_SHARED_BYTES = 1 << 28  # of all versions of all files: those of the 33 shipped studies have 27 million
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


def find(folder: Path) -> Path:
    """Return the archive with the sources of a study: its own, or the one that it shares."""
    own, shared = folder / NAME, folder.parent / SHARED
    return shared if files.exists(shared) and not files.exists(own) else own


def read(archive: Path, sources: Mapping[str, str]) -> dict[str, bytes]:
    """Return the bytes of all files in a study's own archive, and of a shared one those that it has of `sources`.

    Raises Tampered for an unreadable archive.
    """
    if archive.name != SHARED:
        return _read_own(archive)
    versions = _read_shared(archive)
    wanted = {name: f"{name}/{digest}" for name, digest in sources.items() if _is_inside(name)}
    return {name: versions[version] for name, version in wanted.items() if version in versions}


def differences(members: Mapping[str, bytes], sources: Mapping[str, str]) -> list[str]:
    """Return the differences between the files of an archive and the locked `sources`."""
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    return closure.differences(sources, digests)


def extract(archive: Path, sources: Mapping[str, str], target: Path) -> None:
    """Write the locked tree below `target`. Raises Tampered unless every member is as locked."""
    members = read(archive, sources)
    if wrong := differences(members, sources):
        raise Tampered(f"{archive.name}: {wrong[0]}")
    for name, data in members.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def share(folder: Path, sources: Mapping[str, str]) -> Path:
    """Move the sources of a study into the archive that it shares; return the path of that.

    Raises Tampered, and moves nothing, unless every member of its own archive is as locked.
    """
    own, shared = folder / NAME, folder.parent / SHARED
    members = read(own, sources)
    if wrong := differences(members, sources):
        raise Tampered(f"{NAME}: {wrong[0]}")
    versions = _read_shared(shared) if files.exists(shared) else {}
    versions |= {f"{name}/{sources[name]}": data for name, data in members.items()}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", preset=9) as tar:
        for name in sorted(versions):
            member = tarfile.TarInfo(name)
            member.size = len(versions[name])
            tar.addfile(member, io.BytesIO(versions[name]))
    files.replace(shared, buffer.getvalue())
    if wrong := differences(read(shared, sources), sources):
        raise Tampered(f"{SHARED}: {wrong[0]}")
    own.unlink()
    files.sync_folder(folder)
    return shared


def _read_shared(archive: Path) -> dict[str, bytes]:
    """Return the bytes of each version, by <path>/<digest>."""
    versions: dict[str, bytes] = {}
    try:
        with (
            files.open_plain(archive, MAX_BYTES) as file,
            packed_file.decompressed(file, SHARED, MAX_SHARED_BYTES) as stream,
            tarfile.open(fileobj=stream, mode="r|") as tar,
        ):
            for member in tar:
                if not member.isreg() or member.issparse() or member.name in versions:
                    raise Tampered(f"{SHARED}: the member {member.name!r} occurs twice or is not a plain file")
                content = tar.extractfile(member)
                versions[member.name] = b"" if content is None else content.read(MAX_SHARED_BYTES)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise Tampered(f"{SHARED}: not readable: {error}") from None
    return versions


def _read_own(archive: Path) -> dict[str, bytes]:
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
        raise Tampered(f"{NAME}: missing, and no {SHARED} is beside the folder") from None
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
