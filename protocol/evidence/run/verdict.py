"""verdict.json: what the committed rule says about the sealed records.

The vocabulary is closed. The first three words come from a rule; SCREENED stands in their place for a study
that is too small to decide, DEVIATED for one that was amended too late. INVALID is what is said of evidence
that does not verify, whatever it says of itself.
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
GIVEN = ("CONFIRMED", "REFUTED", "INCONCLUSIVE", "SCREENED", "DEVIATED")  # by the judge
WORDS = (*GIVEN, INVALID)


def write(study: Registration, judged: Mapping[str, Any]) -> None:
    """Write the verdict on a sealed study and close the ledger with it.

    Again with the same judgement it completes what a crash cut off, or does nothing; with another one it
    raises Tampered, since the same records have one verdict under the same rule. Raises BadInput for a
    judgement whose verdict is no word that a rule may give.
    """
    digest = canonical.digest(judged)  # refused here, nothing is written
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
    """The verdict that a document gives. Raises Tampered for one that is not of the vocabulary."""
    given = verdict.content["judged"]["verdict"]
    if given not in GIVEN:
        raise Tampered(f"{NAME}: says {given!r}, which no rule gives")
    return str(given)
