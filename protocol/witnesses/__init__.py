"""The four external witnesses of `evidence.external.anchors`, and which of them an auditor trusts.

May import: protocol.formats, protocol.evidence; opentimestamps, sigstore.
"""

from pathlib import Path

from protocol.evidence.external import anchors
from protocol.evidence.external.anchors import BRANCH, FOLDER, HEADERS, Unproven, Witness
from protocol.evidence.registration import Registration
from protocol.formats import files
from protocol.formats.refusals import BadInput
from protocol.witnesses.git_remote import GitRemote as GitRemote
from protocol.witnesses.ots import Block
from protocol.witnesses.ots import OpenTimestamps as OpenTimestamps
from protocol.witnesses.rfc3161 import Authority as Authority
from protocol.witnesses.sigstore_log import SigstoreLog as SigstoreLog


def make_witnesses(
    study: Registration,
    *,
    ca: Path | None = None,
    headers: Path | None = None,
    remote: str | None = None,
    branch: str = BRANCH,
    sigstore_root: Path | None = None,
) -> list[Witness]:
    """Return all witnesses, to verify the proofs in anchors/.

    They trust only what the caller names: the authorities that the PEM file `ca` certifies, `branch` of the git
    `remote`, and the logs of `sigstore_root` (None: those that the installed library has). Headers of Bitcoin blocks,
    in `headers` or in the study itself, are checked by their proof of work. Only a named remote is contacted over the
    network. Raises BadInput for a missing file or folder.
    """
    for option, file in (("--ca", ca), ("--sigstore-root", sigstore_root)):
        if file and not file.is_file():
            raise BadInput(f"{option} {file}: no such file")
    if headers and not headers.is_dir():
        raise BadInput(f"--headers {headers}: no such folder")
    header_folders = (study.folder / FOLDER / HEADERS, *([headers] if headers else []))
    return [
        OpenTimestamps(header_folders),
        Authority(ca=ca),
        GitRemote(remote, branch),
        SigstoreLog(study, sigstore_root),
    ]


def find_lock_block(study: Registration, headers: Path | None = None) -> Block:
    """Return the Bitcoin block of the lock's OpenTimestamps proof, whose hash did not exist before the lock.

    Raises BadInput without that proof, Unproven (of `anchors`) while it is undetermined, Tampered when it is invalid.
    """
    proof = study.folder / FOLDER / f"lock.{OpenTimestamps.suffix}"
    if not files.exists(proof):
        raise BadInput(f"{proof}: missing; run: kv-prereg anchor {study.folder} lock --witness ots")
    header_folders = (study.folder / FOLDER / HEADERS, *([headers] if headers else []))
    return OpenTimestamps(header_folders).find_block(study.lock.digest, files.read(proof, anchors.MAX_PROOF_BYTES))


def find_randomness_block(study: Registration, headers: Path | None = None) -> Block:
    """Return the block as `find_lock_block` does, for drawing a late value: raises BadInput if unproven."""
    try:
        return find_lock_block(study, headers)
    except Unproven as unproven:
        raise BadInput(f"randomness: {unproven}") from None
