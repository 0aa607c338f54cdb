"""Whether a registration holds, from its files alone: every item of an audit, looked at once, in order.

Here is what the folder, git and outside witnesses show by themselves: digests computed again, chains
followed, cells accounted for. What needs more than the standard library (deriving the lock again, grading,
judging) is brought by the caller. What was run before registering, nothing shows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TypeAlias

from protocol.evidence.audit import amendment, inventory, measured, occluded, outcome, sense
from protocol.evidence.audit.checks import Checks
from protocol.evidence.audit.items import FROM_OUTSIDE, ITEMS
from protocol.evidence.findings import Finding
from protocol.evidence.lock import signing
from protocol.evidence.outside import history
from protocol.evidence.outside.anchors import Anchor
from protocol.evidence.run import late_randomness
from protocol.evidence.run.registration import Registration

__all__ = ["Check", "audit", "failed", "unfinished", "untold"]

Check: TypeAlias = Callable[[], str]  # returns what holds; raises Tampered, CannotTell or NotRun
RANDOMNESS = ("protocol", "content", late_randomness.FIELD)


def audit(
    study: Registration,
    beside: Mapping[str, Check] | None = None,
    last: Mapping[str, Check] | None = None,
    *,
    signers: Path | None = None,
    anchored: Sequence[Anchor] = (),
    block: Callable[[], late_randomness.Block] | None = None,
    during: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> list[Finding]:
    """One finding an item, in the order of `items.ITEMS`; some items only some studies have.

    beside: further checks by item, after those of the evidence; last: those that run at the end, and only
    where nothing failed. signers: the keys that may have signed the lock, as ssh-keygen reads them. anchored:
    what `anchors.verified` found in anchors/. block: the block of Bitcoin that the lock's proof leads to.
    during: entered with the name of an item while it is looked at.

    "not run" is a step that left no trace, as do the steps after it. Other evidence that is not there fails.
    """
    checked = Checks(study)
    own: dict[str, Check] = {
        "files": lambda: inventory.check(study),
        "lock": checked.check_lock,
        "protocol": checked.check_protocol,
        "sources": checked.check_sources,
        "commit": lambda: history.check_commit(study),
        "signature": lambda: signing.check(study.folder, signers),
        **({"amendment": lambda: amendment.verify(study)} if checked.has("amends") else {}),
        "ledger": checked.check_ledger,
        "history": lambda: history.check(study),
        "probe": checked.check_probe,
        **({"cost": lambda: measured.check(study, checked.claimed)} if checked.measures else {}),
        **({"anatomy": lambda: _occluded(checked)} if checked.occludes else {}),
        **({"selection": checked.check_selection} if checked.swept else {}),
        "claim": checked.check_claim,
        **({"randomness": lambda: checked.check_randomness(block)} if checked.has(*RANDOMNESS) else {}),
        "records": checked.check_records,
        "trajectories": checked.check_trajectories,
        "grid": checked.check_grid,
        "sense": lambda: sense.check(study),
        "seal": checked.check_seal,
        "verdict": checked.check_verdict,
        **({"ending": lambda: amendment.ended(study)} if checked.ended else {}),
        "anchors": lambda: checked.check_anchors(anchored),
    }
    beside, last = beside or {}, last or {}
    found = {}
    for name in (item.name for item in ITEMS):
        if checks := [each[name] for each in (own, beside) if name in each]:
            with during(name):
                found[name] = outcome.found(name, partial(_all, checks))
    broken = failed(found.values())
    for name, check in last.items():
        with during(name):
            found[name] = (
                Finding(name, "not run", f"{broken[0]} failed") if broken else outcome.found(name, check)
            )
    return [found[item.name] for item in ITEMS if item.name in found]


def _occluded(checked: Checks) -> str:
    return occluded.check(checked.study, checked.claimed, checked.ended)


def failed(findings: Iterable[Finding]) -> list[str]:
    return [one.item for one in findings if one.status == "failed"]


def unfinished(findings: Iterable[Finding]) -> list[str]:
    return [one.item for one in findings if one.status == "unfinished"]


def untold(findings: Iterable[Finding]) -> list[str]:
    """What of the evidence itself could not be told here."""
    return [one.item for one in findings if one.status == "cannot tell" and one.item not in FROM_OUTSIDE]


def _all(checks: Iterable[Check]) -> str:
    """What the checks of an item say together; the first that does not hold speaks for all."""
    return "; ".join(check() for check in checks)
