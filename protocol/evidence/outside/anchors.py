"""Anchors: proofs by external witnesses that a document of a registration existed.

A proof is the file `anchors/<document>.<suffix of the witness>`, made of the digest of the document. It shows
that the document existed no later than the witness states, so nobody can replace it afterwards. It does not
show what was run, or discarded, before.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from protocol.evidence.bytes import documents, files
from protocol.evidence.findings import CannotTell, line, trouble
from protocol.evidence.lock import lock
from protocol.evidence.refusals import BadInput, Tampered, Unanchored
from protocol.evidence.run import registration
from protocol.evidence.run.registration import Registration

FOLDER = "anchors"
MOST = 1 << 20  # of a proof; those of our three witnesses have some thousands
HEADERS = "headers"  # a subfolder with headers of Bitcoin blocks, <height>.hex
DOCUMENTS = {
    "lock": lock.NAME,
    "claim": registration.CLAIM,
    "seal": registration.SEAL,
    "verdict": registration.VERDICT,
}  # in chronological order


class Unproven(Exception):
    """A proof that can neither be accepted nor rejected: pending, an untrusted authority, a missing tool."""


class Vouched(NamedTuple):
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

    def verify(self, digest: str, proof: bytes) -> Vouched:
        """Verify a proof. Raises Tampered if it is forged or of another digest, Unproven if undetermined."""


class Growing(Witness, Protocol):
    """A witness whose proof is pending at first."""

    def upgrade(self, digest: str, proof: bytes) -> bytes | None:
        """Return the proof with new attestations added; None if there are none or it is complete.

        Raises Tampered, Unproven.
        """


class Anchor(NamedTuple):
    document: str
    witness: str
    status: Literal["held", "failed", "cannot tell"]
    time: str | None
    detail: str
    order: int | None = None  # of two valid ones by one witness, the smaller came first

    def line(self) -> str:
        time = f" ({self.time})" if self.time and self.time not in self.detail else ""
        by = f" by {self.witness}" if self.witness else ""
        return f"{self.status:<12} {self.document}{by}: {self.detail}{time}"


def existing(study: Registration) -> list[str]:
    """Return the keys in DOCUMENTS of the documents that the study has."""
    return [document for document, name in DOCUMENTS.items() if study.has(name)]


def stamped(study: Registration, document: str, witness: Witness) -> bool:
    return files.there(_path(study, document, witness))


def stamp(study: Registration, document: str, witness: Witness) -> None:
    """Get a proof of `document` from `witness` and store it, once.

    Raises BadInput when the document is missing, the proof exists, the witness is unavailable, or its answer
    does not verify; Tampered where anchors/ is no plain folder.
    """
    files.listed(study.folder / FOLDER)
    if document not in existing(study):
        raise BadInput(f"{study.folder} has no {DOCUMENTS[document]} to stamp")
    if stamped(study, document, witness):
        raise BadInput(f"{_path(study, document, witness)} exists; a witness vouches for a document once")
    digest = _digest(study, document)
    try:
        proof = witness.stamp(digest)
    except Unproven as gap:
        raise BadInput(f"{document} by {witness.name}: {gap}") from None
    try:
        witness.verify(digest, proof)
    except Unproven:
        pass  # stored as it is: pending, or from an authority that others may trust
    except Tampered as problem:
        raise BadInput(f"{witness.name} answered what is no proof of {document}: {problem}") from None
    files.create(_path(study, document, witness), proof)


def upgrade(study: Registration, document: str, witness: Growing) -> bool:
    """Add new attestations to a pending proof of `document`, and return whether there were any.

    Raises BadInput when the witness is unavailable, Tampered for a proof of something else.
    """
    path = _path(study, document, witness)
    try:
        more = witness.upgrade(_digest(study, document), files.read(path, MOST))
    except Unproven as gap:
        raise BadInput(f"{document} by {witness.name}: {gap}") from None
    if more is None:
        return False
    files.replace(path, more)
    return True


def verified(study: Registration, witnesses: Iterable[Witness]) -> list[Anchor]:
    """Check every file in `anchors/` with the witness of its suffix; a file without such a witness fails.

    A genuine proof that came after the same witness's proof of a later document is "cannot tell": it does
    not show which of the two documents existed first.
    """
    place = study.folder / FOLDER
    by_suffix = {witness.suffix: witness for witness in witnesses}
    found = []
    try:
        kept = files.listed(place)
    except Tampered as other:
        return [Anchor(FOLDER, "", "failed", None, str(other))]
    for path in kept:
        document, _, suffix = path.name.partition(".")
        if document in DOCUMENTS and suffix in by_suffix:
            found.append(_checked(study, document, by_suffix[suffix], path))
        elif path.name == HEADERS and path.is_dir() and not path.is_symlink():
            strange = [each for each in files.listed(path) if not re.fullmatch(r"\d+\.hex", each.name)]
            found += [_strange(each, "is not <height>.hex") for each in strange]
        else:
            found.append(_strange(path, "is no proof of a witness that is known here"))
    rank = list(DOCUMENTS)
    found.sort(key=lambda one: rank.index(one.document) if one.document in rank else len(rank))
    return [_ordered(one, found) for one in found]


def word(found: Sequence[Anchor]) -> str:
    """Return UNANCHORED until a proof of the lock is valid; then ANCHORED, with all valid proofs."""
    held = [one for one in found if one.status == "held"]
    if not any(one.document == "lock" for one in held):
        return "UNANCHORED"
    return "ANCHORED (" + "; ".join(f"{one.document} by {one.witness} {one.detail}" for one in held) + ")"


def require(found: Sequence[Anchor], needed: Iterable[str]) -> None:
    """Raise Unanchored unless each `required` document has a valid anchor, Tampered when any proof fails."""
    for one in found:
        if one.status == "failed":
            raise Tampered(f"{FOLDER}: {one.document}: {one.detail}")
    for document in needed:
        mine = [one for one in found if one.document == document]
        if not any(one.status == "held" for one in mine):
            why = "; ".join(f"{one.witness}: {one.detail}" for one in mine) or "no witness was asked"
            raise Unanchored(f"{DOCUMENTS[document]}: {why}; see: kv-prereg anchor --help")


def _path(study: Registration, document: str, witness: Witness) -> Path:
    return study.folder / FOLDER / f"{document}.{witness.suffix}"


def _digest(study: Registration, document: str) -> str:
    return documents.read(study.folder / DOCUMENTS[document]).digest


def _checked(study: Registration, document: str, witness: Witness, path: Path) -> Anchor:
    try:
        vouched = witness.verify(_digest(study, document), files.read(path, MOST))
    except (Unproven, CannotTell) as gap:
        return Anchor(document, witness.name, "cannot tell", None, str(gap))
    except Tampered as problem:
        return Anchor(document, witness.name, "failed", None, str(problem))
    except Exception as problem:  # any error from a malformed proof, or a limit of this machine
        if remedy := trouble(problem):
            return Anchor(document, witness.name, "cannot tell", None, remedy)
        return Anchor(document, witness.name, "failed", None, f"{type(problem).__name__}: {line(problem)}")
    return Anchor(document, witness.name, "held", vouched.time, vouched.detail, vouched.order)


def _strange(path: Path, why: str) -> Anchor:
    return Anchor(path.name, "", "failed", None, f"{why}; move it out of {FOLDER}/")


def _ordered(one: Anchor, found: Sequence[Anchor]) -> Anchor:
    if one.order is None:
        return one
    rank = list(DOCUMENTS)
    for other in found:
        later = other.witness == one.witness and other.order is not None and other.order < one.order
        if later and rank.index(other.document) > rank.index(one.document):
            detail = f"{one.detail}, after the proof of {other.document}: which existed first cannot be told"
            return one._replace(status="cannot tell", detail=detail)
    return one
