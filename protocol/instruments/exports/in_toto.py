"""A verdict as an in-toto Statement v1, for tools that read attestations.

https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md. The subjects are the files with the
verdict, by the SHA-256 that `sha256sum` prints. The statement is not signed: sign it with your own tools
(DSSE), or sign the lock. Tools that name the subjects themselves need only the predicate: GitHub's
actions/attest, with PREDICATE as predicate-type.
"""

from pathlib import Path
from typing import Any

from analysis.rules import verdict_line
from protocol.evidence import ledger
from protocol.evidence.external import anchors
from protocol.evidence.registration import CLAIM, SEAL, VERDICT, Registration
from protocol.formats import files
from protocol.formats.refusals import BadInput, Tampered
from protocol.lock import lock

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://kv-prereg.dev/verdict/v1"
SUBJECTS = (lock.NAME, CLAIM, SEAL, VERDICT, ledger.NAME)


def build_statement(study: Registration) -> dict[str, Any]:
    """Return the statement about a judged registration; it does not verify the evidence, `audit` does.

    Raises BadInput without a verdict, Tampered if the verdict is about another lock or seal.
    """
    folder, locked = study.folder, study.lock
    if not study.has(VERDICT):
        raise BadInput(f"{folder} has no verdict; run: kv-prereg confirm {folder}")
    verdict = study.verdict.content
    if (verdict.get("lock"), verdict.get("seal")) != (locked.digest, study.seal.digest):
        raise Tampered(f"{VERDICT}: names a different lock or seal; run: kv-prereg audit {folder}")
    judged, proofs = verdict["judged"], (folder / anchors.FOLDER).rglob("*")
    return {
        "_type": STATEMENT,
        "subject": [_describe_file(study, folder / name) for name in SUBJECTS],
        "predicateType": PREDICATE,
        "predicate": {
            "name": locked.content["name"],
            "question": study.protocol["question"],
            "verdict": verdict_line.verdict_word(judged),
            "ruleSays": verdict_line.printed_rule_verdict(judged),
            "label": judged["label"],
            "models": study.protocol["models"],
            "gate": judged.get("gate"),
            "rule": {**locked.content["rule"], "decision": study.protocol["decision"]},
            "contrasts": judged["contrasts"],
            "missing": judged["missing"]["lanes"],
            "lock": locked.digest,
            "parent": locked.content["parent"],
            "amends": locked.content.get("amends"),
            "ledger": ledger.head_of(study.entries),
            "randomness": study.claim.content.get("randomness"),
            "anchors": [_describe_file(study, path) for path in sorted(proofs) if not path.is_dir()],
            "proves": judged["proves"],
            "doesNotProve": judged["does_not_prove"],
        },
    }


def _describe_file(study: Registration, path: Path) -> dict[str, Any]:
    """Return a ResourceDescriptor: the path of a file in the registration, and its digest."""
    return {"name": path.relative_to(study.folder).as_posix(), "digest": {"sha256": files.plain_sha256(path)}}
