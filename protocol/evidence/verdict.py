"""verdict.json: the verdict of the committed rule on the sealed records.

The vocabulary is closed. A rule gives one of the first three verdicts; SCREENED replaces it for a study that
is too small to decide, DEVIATED for one that was amended too late, RE-USED for one on held-out problems that had
been opened before. INVALID is the status of evidence that
does not verify, whatever its own verdict.
"""

from collections.abc import Mapping
from typing import Any

from protocol.evidence import ledger, registration
from protocol.evidence.registration import Registration
from protocol.formats import canonical, document_fields, documents, files
from protocol.formats.documents import Document
from protocol.formats.refusals import BadInput, Tampered
from protocol.formats.vocabulary import VERDICT_WORDS

NAME = registration.VERDICT
INVALID = "INVALID"
VERDICTS = (*VERDICT_WORDS, INVALID)


def write(study: Registration, judged: Mapping[str, Any]) -> None:
    """Write the verdict on a sealed study and close the ledger with it.

    A repeated call with the same judgement completes what a crash interrupted, or does nothing. Another
    judgement raises Tampered, since the same records have one verdict under the same rule. Raises BadInput
    for a judgement whose verdict no rule may give.
    """
    digest = canonical.digest(judged)  # raises before anything is written
    if judged.get("verdict") not in VERDICT_WORDS:
        raise BadInput(f"verdict: is {judged.get('verdict')!r}; a rule must give one of {', '.join(VERDICT_WORDS)}")
    current, folder = study.reopen(), study.folder
    if current.has(NAME):
        if canonical.digest(current.verdict.content["judged"]) != digest:
            raise Tampered(f"{folder / NAME}: contains a different judgement of the same records")
    else:
        seal = current.seal.digest
        ledger.refuse_closed(folder)
        ledger.ensure(folder, "seal", {"seal": seal})
        head = ledger.read_head(folder)
        content = {"judged": judged, "lock": current.lock.digest, "seal": seal, "ledger": head}
        documents.write(folder / NAME, content, document_fields.VERDICT)
    ledger.ensure(folder, "verdict", {"sha256": files.plain_sha256(folder / NAME)})


def read_word(verdict: Document) -> str:
    """Return the verdict in a document. Raises Tampered for one outside the vocabulary."""
    value = verdict.content["judged"]["verdict"]
    if value not in VERDICT_WORDS:
        raise Tampered(f"{NAME}: says {value!r}, which is not a verdict of any rule")
    return str(value)
