"""A verdict as an in-toto Statement v1, for tools that read attestations.

https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md. The subjects are the files that carry
the verdict, by the SHA-256 of their bytes as `sha256sum` prints it. The statement is not signed: sign it with
what your tools use (DSSE), or sign the lock.
"""

from pathlib import Path
from typing import Any

from protocol.evidence.bytes import documents, files
from protocol.evidence.lock import lock
from protocol.evidence.outside import anchors
from protocol.evidence.refusals import BadInput, Tampered
from protocol.evidence.run import claim, ledger, seal, verdict

__all__ = ["PREDICATE", "STATEMENT", "of"]

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://kv-prereg.dev/verdict/v1"
SUBJECTS = (lock.NAME, claim.NAME, seal.NAME, verdict.NAME, ledger.NAME)


def of(folder: Path) -> dict[str, Any]:
    """The statement about the judged registration in `folder`; whether its evidence holds is for audit.

    Raises BadInput without a verdict, Tampered when the verdict is not of this lock and seal.
    """
    if not (folder / verdict.NAME).exists():
        raise BadInput(f"{folder} has no verdict; run: python -m protocol.confirm {folder}")
    held, given = lock.read(folder), verdict.read(folder).content
    if (given.get("lock"), given.get("seal")) != (held.digest, seal.read(folder).digest):
        raise Tampered(f"{verdict.NAME}: names another lock or seal; run: python -m protocol.audit {folder}")
    judged, proofs = given["judged"], (folder / anchors.FOLDER).rglob("*")
    return {
        "_type": STATEMENT,
        "subject": [_described(folder, folder / name) for name in SUBJECTS],
        "predicateType": PREDICATE,
        "predicate": {
            "name": held.content["name"],
            "question": held.content["protocol"]["content"]["question"],
            "verdict": judged["verdict"],
            "label": judged["label"],
            "rule": {**held.content["rule"], "decision": held.content["protocol"]["content"]["decision"]},
            "contrasts": judged["contrasts"],
            "missing": judged["missing"]["lanes"],
            "lock": held.digest,
            "parent": held.content["parent"],
            "amends": held.content.get("amends"),
            "ledger": ledger.head(folder),
            "randomness": documents.read(folder / claim.NAME, claim.FIELDS).content.get("randomness"),
            "anchors": [_described(folder, path) for path in sorted(proofs) if not path.is_dir()],
            "proves": judged["proves"],
            "doesNotProve": judged["does_not_prove"],
        },
    }


def _described(folder: Path, path: Path) -> dict[str, Any]:
    """A ResourceDescriptor: the file's name below the registration, and its digest."""
    files.refuse_other(path)
    return {"name": path.relative_to(folder).as_posix(), "digest": {"sha256": files.sha256(path)}}
