"""The three external witnesses of `evidence.external.anchors`, and which of them an auditor trusts.

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
    """Return all witnesses, to verify the proofs in anchors/.

    They trust only what the caller names: the authorities that the PEM file `ca` certifies, and `branch` of
    the git `remote`. Headers of Bitcoin blocks, in `headers` or in the study itself, are checked by their
    proof of work. Only a named remote is contacted over the network. Raises BadInput for a missing file or
    folder.
    """
    if ca and not ca.is_file():
        raise BadInput(f"--ca {ca}: no such file")
    if headers and not headers.is_dir():
        raise BadInput(f"--headers {headers}: no such folder")
    shelves = (study.folder / FOLDER / HEADERS, *([headers] if headers else []))
    return [OpenTimestamps(shelves), Authority(ca=ca), Remote(remote, branch)]


def block(study: Registration, headers: Path | None = None) -> Block:
    """Return the Bitcoin block of the lock's OpenTimestamps proof, whose hash did not exist before the lock.

    Raises BadInput without that proof, Unproven (of `anchors`) while it is undetermined, Tampered when it is
    invalid.
    """
    proof = study.folder / FOLDER / f"lock.{OpenTimestamps.suffix}"
    if not files.there(proof):
        raise BadInput(f"{proof}: missing; run: kv-prereg anchor {study.folder} lock --witness ots")
    shelves = (study.folder / FOLDER / HEADERS, *([headers] if headers else []))
    return OpenTimestamps(shelves).block(study.lock.digest, files.read(proof, anchors.MOST))


def drawn_from(study: Registration, headers: Path | None = None) -> Block:
    """Return the block as `find_lock_block` does, for drawing a late value: raises BadInput if unproven."""
    try:
        return block(study, headers)
    except Unproven as unproven:
        raise BadInput(f"randomness: {unproven}") from None
