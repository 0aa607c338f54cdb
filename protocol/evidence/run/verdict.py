"""verdict.json: the verdict of the committed rule on the sealed records.

The vocabulary is closed. A rule gives one of the first three verdicts; SCREENED replaces it for a study that
is too small to decide, DEVIATED for one that was amended too late. INVALID is the status of evidence that
does not verify, whatever its own verdict.
"""

from collections.abc import Mapping
from typing import Any

from protocol.evidence.bytes import canonical, documents, files
from protocol.evidence.bytes.documents import Document
from protocol.evidence.refusals import BadInput, Tampered
from protocol.evidence.run import document_fields, ledger, registration
from protocol.evidence.run.registration import Registration

__all__ = ["NAME", "WORDS", "word", "write"]

NAME = registration.VERDICT
INVALID = "INVALID"
GIVEN = ("CONFIRMED", "REFUTED", "INCONCLUSIVE", "SCREENED", "DEVIATED")  # those that the judge gives
WORDS = (*GIVEN, INVALID)


def write(study: Registration, judged: Mapping[str, Any]) -> None:
    """Write the verdict on a sealed study and close the ledger with it.

    A repeated call with the same judgement completes what a crash interrupted, or does nothing. Another
    judgement raises Tampered, since the same records have one verdict under the same rule. Raises BadInput
    for a judgement whose verdict no rule may give.
    """
    digest = canonical.digest(judged)  # raises before anything is written
    if judged.get("verdict") not in GIVEN:
        raise BadInput(f"verdict: is {judged.get('verdict')!r}; a rule says one of {', '.join(GIVEN)}")
    now, folder = study.anew(), study.folder
    if now.has(NAME):
        if canonical.digest(now.verdict.content["judged"]) != digest:
            raise Tampered(f"{folder / NAME}: holds another judgement of the same records")
    else:
        seal = now.seal.digest
        ledger.refuse_closed(folder)
        ledger.ensure(folder, "seal", {"seal": seal})
        head = ledger.head(folder)
        content = {"judged": judged, "lock": now.lock.digest, "seal": seal, "ledger": head}
        documents.write(folder / NAME, content, document_fields.VERDICT)
    ledger.ensure(folder, "verdict", {"sha256": files.plain_sha256(folder / NAME)})


def word(verdict: Document) -> str:
    """Return the verdict in a document. Raises Tampered for one outside the vocabulary."""
    given = verdict.content["judged"]["verdict"]
    if given not in GIVEN:
        raise Tampered(f"{NAME}: says {given!r}, which no rule gives")
    return str(given)
