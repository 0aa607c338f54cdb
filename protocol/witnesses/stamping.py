"""Have external witnesses stamp the documents of a registration, and complete what they said."""

from pathlib import Path
from typing import Protocol

from protocol.evidence.external import anchors
from protocol.evidence.external.anchors import Unproven, Witness
from protocol.evidence.registration import Registration
from protocol.formats import files
from protocol.formats.refusals import BadInput, Tampered


class UpgradableWitness(Witness, Protocol):
    """A witness whose proof is pending at first."""

    def upgrade(self, digest: str, proof: bytes) -> bytes | None:
        """Return the proof with new attestations added; None if there are none or it is complete.

        Raises Tampered, Unproven.
        """


def has_proof(study: Registration, document: str, witness: Witness) -> bool:
    return files.exists(_path(study, document, witness))


def stamp(study: Registration, document: str, witness: Witness) -> None:
    """Get a proof of `document` from `witness` and store it, once.

    Raises BadInput when the document is missing, the proof exists, the witness is unavailable, or its answer
    does not verify; Tampered where anchors/ is no plain folder.
    """
    files.list_folder(study.folder / anchors.FOLDER)
    if document not in anchors.existing_documents(study):
        raise BadInput(f"{study.folder} has no {anchors.DOCUMENTS[document]} that could be stamped")
    if has_proof(study, document, witness):
        raise BadInput(f"{_path(study, document, witness)} exists; each witness stamps a document only once")
    digest = anchors.document_digest(study, document)
    try:
        proof = witness.stamp(digest)
    except Unproven as unproven:
        raise BadInput(f"{document} by {witness.name}: {unproven}") from None
    try:
        witness.verify(digest, proof)
    except Unproven:
        pass  # stored as it is: pending, or from an authority that others may trust
    except Tampered as error:
        raise BadInput(f"the answer of {witness.name} is not a proof of {document}: {error}") from None
    files.create(_path(study, document, witness), proof)


def upgrade(study: Registration, document: str, witness: UpgradableWitness) -> bool:
    """Add new attestations to a pending proof of `document`, and return whether there were any.

    Raises BadInput when the witness is unavailable, Tampered for a proof of something else.
    """
    path = _path(study, document, witness)
    try:
        upgraded = witness.upgrade(anchors.document_digest(study, document), files.read(path, anchors.MAX_PROOF_BYTES))
    except Unproven as unproven:
        raise BadInput(f"{document} by {witness.name}: {unproven}") from None
    if upgraded is None:
        return False
    files.replace(path, upgraded)
    return True


def _path(study: Registration, document: str, witness: Witness) -> Path:
    return study.folder / anchors.FOLDER / f"{document}.{witness.suffix}"
