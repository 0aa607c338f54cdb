"""verdict.json: what the committed rule says about the sealed records.

The vocabulary is closed. The first four words come from a rule; INVALID is what is said of evidence that
does not verify, whatever it says of itself.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protocol.evidence.bytes import canonical, documents, files, journal
from protocol.evidence.bytes.documents import Document as Verdict
from protocol.evidence.bytes.fields import DIGEST, Field, Table, Text
from protocol.evidence.lock.lock import Lock
from protocol.evidence.refusals import BadInput, Tampered
from protocol.evidence.run import ledger, seal

__all__ = ["FIELDS", "NAME", "WORDS", "Verdict", "read", "word", "write"]

NAME = "verdict.json"
FIELDS = Table(
    {
        "judged": Field(
            Table({"verdict": Field(Text(), "The word.")}, others=True), "What the committed rule prints."
        ),
        "lock": Field(DIGEST, "The lock."),
        "seal": Field(DIGEST, "The seal."),
        "ledger": Field(journal.HEAD, "The ledger before the verdict."),
    }
)
INVALID = "INVALID"
GIVEN = ("CONFIRMED", "REFUTED", "INCONCLUSIVE", "DEVIATED")  # by a rule
WORDS = (*GIVEN, INVALID)


def write(folder: Path, locked: Lock, judged: Mapping[str, Any]) -> None:
    """Write the verdict on the sealed `folder` and close the ledger with it.

    Again with the same judgement it completes what a crash cut off, or does nothing; with another one it
    raises Tampered, since the same records have one verdict under the same rule. Raises BadInput for a
    judgement whose verdict is no word that a rule may give.
    """
    digest = canonical.digest(judged)  # refused here, nothing is written
    if judged.get("verdict") not in GIVEN:
        raise BadInput(f"verdict: is {judged.get('verdict')!r}; a rule says one of {', '.join(GIVEN)}")
    sealed = seal.read(folder)
    if (folder / NAME).exists():
        if canonical.digest(read(folder).content["judged"]) != digest:
            raise Tampered(f"{folder / NAME}: holds another judgement of the same records")
    else:
        ledger.refuse_closed(folder)
        ledger.ensure(folder, "seal", {"seal": sealed.digest})
        head = ledger.head(folder)
        content = {"judged": judged, "lock": locked.digest, "seal": sealed.digest, "ledger": head}
        documents.write(folder / NAME, content, FIELDS)
    ledger.ensure(folder, "verdict", {"sha256": files.sha256(folder / NAME)})


def read(folder: Path) -> Verdict:
    return documents.read(folder / NAME, FIELDS)


def word(found: Verdict) -> str:
    """The verdict that `found` gives. Raises Tampered for one that is not of the vocabulary."""
    said = found.content["judged"]["verdict"]
    if said not in GIVEN:
        raise Tampered(f"{NAME}: says {said!r}, which no rule gives")
    return str(said)
