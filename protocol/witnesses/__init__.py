"""The three outside witnesses of `evidence.outside.anchors`, and which of them an auditor believes.

May import: protocol.evidence; bitcoin, opentimestamps.
"""

from pathlib import Path

from protocol.evidence.bytes import files
from protocol.evidence.outside import anchors
from protocol.evidence.outside.anchors import FOLDER, HEADERS, Unproven, Witness
from protocol.evidence.refusals import BadInput
from protocol.evidence.run.registration import Registration

from .ots import Block, OpenTimestamps
from .remote import BRANCH, Remote
from .rfc3161 import Authority

__all__ = ["Authority", "Block", "OpenTimestamps", "Remote", "block", "drawn_from", "trusted"]


def trusted(
    study: Registration,
    *,
    ca: Path | None = None,
    headers: Path | None = None,
    remote: str | None = None,
    branch: str = BRANCH,
) -> list[Witness]:
    """All witnesses, to verify the proofs in anchors/ with. They believe whom the caller names and nobody
    else: the authorities that the PEM file `ca` certifies, and `branch` of the git `remote`. Headers of
    Bitcoin blocks, in `headers` or in the study itself, are checked by their work.

    Only a named remote is asked over the network. Raises BadInput for a file or folder that is not there.
    """
    if ca and not ca.is_file():
        raise BadInput(f"--ca {ca}: no such file")
    if headers and not headers.is_dir():
        raise BadInput(f"--headers {headers}: no such folder")
    shelves = (study.folder / FOLDER / HEADERS, *([headers] if headers else []))
    return [OpenTimestamps(shelves), Authority(ca=ca), Remote(remote, branch)]


def block(study: Registration, headers: Path | None = None) -> Block:
    """The Bitcoin block of the lock's OpenTimestamps proof: its hash did not exist when the lock was written.

    Raises BadInput without that proof, Unproven (of `anchors`) while it cannot be told,
    Tampered when it is not one.
    """
    proof = study.folder / FOLDER / f"lock.{OpenTimestamps.suffix}"
    if not files.there(proof):
        raise BadInput(f"{proof}: missing; run: kv-prereg anchor {study.folder} lock --witness ots")
    shelves = (study.folder / FOLDER / HEADERS, *([headers] if headers else []))
    return OpenTimestamps(shelves).block(study.lock.digest, files.read(proof, anchors.MOST))


def drawn_from(study: Registration, headers: Path | None = None) -> Block:
    """The same for who draws a late value with it: what is not proven is refused as BadInput."""
    try:
        return block(study, headers)
    except Unproven as unproven:
        raise BadInput(f"randomness: {unproven}") from None
