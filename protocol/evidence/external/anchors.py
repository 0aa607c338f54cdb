"""Anchors: proofs by external witnesses that a document of a registration existed.

A proof is the file `anchors/<document>.<suffix of the witness>`, made of the digest of the document. It shows
that the document existed no later than the witness states, so nobody can replace it afterwards. It does not
show what was run, or discarded, before.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from protocol.evidence import registration
from protocol.evidence.registration import Registration
from protocol.formats import documents, files
from protocol.formats.citations import CITES
from protocol.formats.findings import CannotTell, find_remedy, one_line
from protocol.formats.refusals import Tampered, Unanchored
from protocol.lock import lock

FOLDER = registration.ANCHORS
MAX_PROOF_BYTES = 1 << 20  # of a proof; those of our three witnesses have some thousands
BRANCH = "kv-prereg-anchors"  # of a git remote that is a witness
HEADERS = "headers"  # a subfolder with headers of Bitcoin blocks, <height>.hex
DOCUMENTS = {
    "lock": lock.NAME,
    "claim": registration.CLAIM,
    "seal": registration.SEAL,
    "verdict": registration.VERDICT,
}  # in chronological order


class Unproven(Exception):
    """A proof that can neither be accepted nor rejected: pending, an untrusted authority, a missing tool."""


class Attestation(NamedTuple):
    """The statement of a witness about a document."""

    detail: str  # the source in brief: "block 900000"
    time: str | None  # UTC; the document existed then. None from a witness without a reliable clock
    order: int  # of two proofs by one witness, the smaller came first


class Witness(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def suffix(self) -> str: ...

    def stamp(self, digest: str) -> bytes:
        """Return a proof that `digest` (SHA-256, hex) exists now. Raises Unproven if the witness fails."""

    def verify(self, digest: str, proof: bytes) -> Attestation:
        """Verify a proof. Raises Tampered if it is forged or of another digest, Unproven if undetermined."""


class Anchor(NamedTuple):
    document: str
    witness: str
    status: Literal["held", "failed", "cannot tell"]
    time: str | None
    detail: str
    order: int | None = None  # of two valid ones by one witness, the smaller came first
    file: str = ""  # its name in anchors/

    def format_line(self) -> str:
        time = f" ({self.time})" if self.time and self.time not in self.detail else ""
        witness_text = f" by {self.witness}" if self.witness else ""
        return f"{self.status:<12} {self.document}{witness_text}: {self.detail}{time}"


def existing_documents(study: Registration) -> list[str]:
    """Return the keys in DOCUMENTS of the documents that the study has."""
    return [document for document, name in DOCUMENTS.items() if study.has(name)]


def verify_anchors(study: Registration, witnesses: Iterable[Witness]) -> list[Anchor]:
    """Check every file in `anchors/` with the witness of its suffix; a file without such a witness fails.

    A genuine proof that came after the same witness's proof of a later document is "cannot tell": it does
    not show which of the two documents existed first.
    """
    folder = study.folder / FOLDER
    by_suffix = {witness.suffix: witness for witness in witnesses}
    anchors = []
    try:
        paths = files.list_folder(folder)
    except Tampered as error:
        return [Anchor(FOLDER, "", "failed", None, str(error))]
    for path in paths:
        document, _, suffix = path.name.partition(".")
        if document in DOCUMENTS and suffix in by_suffix:
            anchors.append(_check_proof(study, document, by_suffix[suffix], path))
        elif path.name == HEADERS and path.is_dir() and not path.is_symlink():
            unknown_paths = [
                unknown_path
                for unknown_path in files.list_folder(path)
                if not re.fullmatch(r"\d+\.hex", unknown_path.name)
            ]
            anchors += [_unknown_file(unknown_path, "is not <height>.hex") for unknown_path in unknown_paths]
        else:
            anchors.append(_unknown_file(path, "is not a proof from any witness that this release knows"))
    rank = list(DOCUMENTS)
    anchors.sort(key=lambda anchor: rank.index(anchor.document) if anchor.document in rank else len(rank))
    return [_check_order(anchor, anchors) for anchor in anchors]


def format_anchoring(anchors: Sequence[Anchor]) -> str:
    """Return UNANCHORED until a proof of the lock is valid; then ANCHORED, with all valid proofs."""
    valid = [anchor for anchor in anchors if anchor.status == "held"]
    if not any(anchor.document == "lock" for anchor in valid):
        return "UNANCHORED"
    return "ANCHORED (" + "; ".join(f"{anchor.document} by {anchor.witness} {anchor.detail}" for anchor in valid) + ")"


def is_lock_witnessed(study: Registration, anchors: Iterable[Anchor]) -> bool:
    """Return whether the claim cites, byte for byte, a proof of the lock that is valid here: then the lock came
    before the claim, and before all that follows from it. A proof that was made or completed later shows no order, nor
    does any where records are cited: they are of before this claim, and only a claim that could be written anew says
    that they are of after the lock.
    """
    if not study.has(registration.CLAIM) or not study.claim.content.get(registration.WITNESS):
        return False
    if study.lock.content.get(CITES):
        return False
    cited, present = study.claim.content[registration.WITNESS], study.lock_proofs()
    return any(
        anchor.document == "lock" and anchor.status == "held" and cited.get(anchor.file) == present[anchor.file]
        for anchor in anchors
    )


def require_anchors(anchors: Sequence[Anchor], required: Iterable[str]) -> None:
    """Raise Unanchored unless each `required` document has a valid anchor, Tampered when any proof fails."""
    for anchor in anchors:
        if anchor.status == "failed":
            raise Tampered(f"{FOLDER}: {anchor.document}: {anchor.detail}")
    for document in required:
        matching = [anchor for anchor in anchors if anchor.document == document]
        if not any(anchor.status == "held" for anchor in matching):
            reasons = (
                "; ".join(f"{anchor.witness}: {anchor.detail}" for anchor in matching)
                or "no witness was asked for a time stamp"
            )
            raise Unanchored(f"{DOCUMENTS[document]}: {reasons}; see: kv-prereg anchor --help")


def document_digest(study: Registration, document: str) -> str:
    return documents.read(study.folder / DOCUMENTS[document]).digest


def _check_proof(study: Registration, document: str, witness: Witness, path: Path) -> Anchor:
    try:
        attestation = witness.verify(document_digest(study, document), files.read(path, MAX_PROOF_BYTES))
    except (Unproven, CannotTell) as undetermined:
        return Anchor(document, witness.name, "cannot tell", None, str(undetermined))
    except Tampered as error:
        return Anchor(document, witness.name, "failed", None, str(error))
    except Exception as error:  # any error from a malformed proof, or a limit of this machine
        if remedy := find_remedy(error):
            return Anchor(document, witness.name, "cannot tell", None, remedy)
        return Anchor(document, witness.name, "failed", None, f"{type(error).__name__}: {one_line(error)}")
    return Anchor(document, witness.name, "held", attestation.time, attestation.detail, attestation.order, path.name)


def _unknown_file(path: Path, reason: str) -> Anchor:
    return Anchor(path.name, "", "failed", None, f"{reason}; move it out of {FOLDER}/")


def _check_order(anchor: Anchor, anchors: Sequence[Anchor]) -> Anchor:
    if anchor.order is None:
        return anchor
    rank = list(DOCUMENTS)
    for other in anchors:
        is_later = other.witness == anchor.witness and other.order is not None and other.order < anchor.order
        if is_later and rank.index(other.document) > rank.index(anchor.document):
            detail = f"{anchor.detail}, after the proof of {other.document}: it is unknown which existed first"
            return anchor._replace(status="cannot tell", detail=detail)
    return anchor
