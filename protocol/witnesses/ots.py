"""OpenTimestamps: a calendar commits the digest to a Bitcoin block. The opentimestamps library parses proofs.

A block is verified from its header alone, offline and without a node: the header must commit to the proof,
its hash must meet its target, and the target must have a difficulty that only Bitcoin's miners reach.
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from protocol.evidence.external.anchors import FOLDER, HEADERS, Attestation, Unproven
from protocol.formats import files
from protocol.formats.refusals import Tampered

from . import bitcoin

MAX_HEADER_BYTES = 1 << 10  # it has 80 bytes, in hex
TIMEOUT = 30  # for one answer of a calendar

CALENDARS = (
    "https://a.pool.opentimestamps.org",
    "https://b.pool.opentimestamps.org",
    "https://a.pool.eternitywall.com",
    "https://ots.btc.catallaxy.com",
)

# A header of this difficulty takes 2 * 10^23 hashes. Bitcoin's difficulty has been higher since the middle of
# 2023 (72 * 10^12 at the end of that year), so every block of a later study passes, and forging a header
# costs a good part of what a miner earns with a block.
MIN_DIFFICULTY = 50 * 10**12


class Block(NamedTuple):
    height: int  # from the calendar; the header does not have it
    hash: str  # in display order
    time: str  # UTC, by the miner's clock, which the network allows to be up to two hours ahead


@dataclass(frozen=True)
class OpenTimestamps:
    """A witness that asks `calendars`.

    It trusts blocks whose header is `<height>.hex` in one of the folders `headers` and whose difficulty is at
    least `min_difficulty`.
    """

    headers: tuple[Path, ...] = ()
    calendars: tuple[str, ...] = CALENDARS
    min_difficulty: int = MIN_DIFFICULTY

    name: ClassVar[str] = "ots"
    suffix: ClassVar[str] = "ots"

    def stamp(self, digest: str) -> bytes:
        """Return a pending proof; hours later `upgrade` adds the block. Calendars see a salted digest."""
        core, op, calendar = _library("core.timestamp"), _library("core.op"), _library("calendar")
        stamp = core.Timestamp(bytes.fromhex(digest))
        salted = stamp.ops.add(op.OpAppend(secrets.token_bytes(16))).ops.add(op.OpSHA256())
        failures = []
        for url in self.calendars:
            try:
                salted.merge(calendar.RemoteCalendar(url).submit(salted.msg, timeout=TIMEOUT))
            except Exception as error:  # the library also raises bare Exception
                failures.append(f"{url}: {error}")
        if len(failures) == len(self.calendars):
            raise Unproven(f"no calendar answers; {'; '.join(failures)}")
        return _to_bytes(core.DetachedTimestampFile(op.OpSHA256(), stamp))

    def upgrade(self, digest: str, proof: bytes) -> bytes | None:
        """Return the proof with a block that a calendar added; None without one, or if it had one already.

        A complete proof is not changed, since late randomness may depend on its block. Only `calendars` and
        the library's known ones are contacted, whatever the proof names.
        """
        detached, calendar = _read(digest, proof), _library("calendar")
        if _merkle_roots(detached):
            return None
        failures, has_answer = [], False
        for stamp, url in list(_pending_stamps(detached.timestamp)):
            try:
                if url not in self.calendars and url not in calendar.DEFAULT_CALENDAR_WHITELIST:
                    raise ValueError("an unknown calendar server; name it with --calendar")
                stamp.merge(calendar.RemoteCalendar(url).get_timestamp(stamp.msg, timeout=TIMEOUT))
                has_answer = True
            except calendar.CommitmentNotFoundError:  # the calendar has no block for the digest yet
                has_answer = True
            except Exception as error:
                failures.append(f"{url}: {error}")
        if not has_answer:
            raise Unproven(f"no calendar answers; {'; '.join(failures)}")
        return _to_bytes(detached) if _merkle_roots(detached) else None

    def verify(self, digest: str, proof: bytes) -> Attestation:
        block = self.find_block(digest, proof)
        return Attestation(f"block {block.height}", block.time, block.height)

    def find_block(self, digest: str, proof: bytes) -> Block:
        """Return the earliest block that the proof names.

        Raises Unproven while there is none or its header is missing, Tampered when header and proof
        contradict each other.
        """
        detached = _read(digest, proof)
        blocks = _merkle_roots(detached)
        if not blocks:
            calendars = ", ".join(sorted({url for _, url in _pending_stamps(detached.timestamp)})) or "no calendar"
            raise Unproven(f"pending at {calendars}; after some hours: kv-prereg anchor FOLDER --upgrade")
        height = min(blocks)
        name = f"{height}.hex"
        path = next((folder / name for folder in self.headers if files.exists(folder / name)), None)
        if path is None:
            raise Unproven(f"names block {height}; to check it, put the block's header into {FOLDER}/{HEADERS}/{name}")
        header = bitcoin.parse_header(files.read(path, MAX_HEADER_BYTES).decode(errors="replace"), name)
        if blocks[height] != {header.merkle_root}:
            raise Tampered(f"block {height} has another merkle root than the proof leads to")
        if not header.has_difficulty(self.min_difficulty):
            raise Unproven(f"{name} took less work than any Bitcoin block since 2023, so it is not accepted")
        time = datetime.fromtimestamp(header.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return Block(height, header.hash, time)


def _library(part: str) -> Any:
    try:
        return import_module(f"opentimestamps.{part}")
    except ImportError:
        raise Unproven("the library opentimestamps is not installed here: pip install '.[anchor]'") from None


def _read(digest: str, proof: bytes) -> Any:
    """Parse the proof to the library's DetachedTimestampFile, which recomputes every message."""
    core, op, serialize = _library("core.timestamp"), _library("core.op"), _library("core.serialize")
    try:
        detached = core.DetachedTimestampFile.deserialize(serialize.BytesDeserializationContext(proof))
    except Exception as error:  # any error from malformed bytes
        raise Tampered(f"not an OpenTimestamps proof: {error}") from None
    if not isinstance(detached.file_hash_op, op.OpSHA256) or detached.file_digest.hex() != digest:
        raise Tampered(f"a proof for the digest {detached.file_digest.hex()}, which is not this document's")
    return detached


def _to_bytes(detached: Any) -> bytes:
    context = _library("core.serialize").BytesSerializationContext()
    detached.serialize(context)
    return bytes(context.getbytes())


def _merkle_roots(detached: Any) -> dict[int, set[bytes]]:
    """Return the merkle roots that the proof leads to, by block height."""
    messages: dict[int, set[bytes]] = {}
    for message, attestation in detached.timestamp.all_attestations():
        if isinstance(attestation, _library("core.notary").BitcoinBlockHeaderAttestation):
            if attestation.height >= 1 << 32:
                raise Tampered("names a block number that is impossibly large")
            messages.setdefault(attestation.height, set()).add(message)
    return messages


def _pending_stamps(stamp: Any) -> Iterator[tuple[Any, str]]:
    """Yield every pending timestamp of the proof and the URL of its calendar."""
    for attestation in stamp.attestations:
        if isinstance(attestation, _library("core.notary").PendingAttestation):
            yield stamp, attestation.uri
    for child in stamp.ops.values():
        yield from _pending_stamps(child)
