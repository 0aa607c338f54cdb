"""verdict.json: what the committed rule says about the sealed records."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import canonical, documents, files, ledger, seal
from .documents import Document as Verdict
from .lock import Lock
from .refusals import Tampered

__all__ = ["NAME", "Verdict", "read", "write"]

NAME = "verdict.json"


def write(folder: Path, locked: Lock, judged: Mapping[str, Any]) -> None:
    """Write the verdict on the sealed `folder` and close the ledger with it.

    Again with the same judgement it completes what a crash cut off, or does nothing; with another one it
    raises Tampered, since the same records have one verdict under the same rule.
    """
    digest = canonical.digest(judged)  # refused here, nothing is written
    sealed = seal.read(folder)
    if (folder / NAME).exists():
        if canonical.digest(read(folder).content["judged"]) != digest:
            raise Tampered(f"{folder / NAME}: holds another judgement of the same records")
    else:
        ledger.ensure(folder, "seal", {"seal": sealed.digest})
        head = ledger.head(folder)
        content = {"judged": judged, "lock": locked.digest, "seal": sealed.digest, "ledger": head}
        documents.write(folder / NAME, content)
    ledger.ensure(folder, "verdict", {"sha256": files.sha256(folder / NAME)})


def read(folder: Path) -> Verdict:
    return documents.read(folder / NAME)
