"""The audit of a registration from its files alone: every item is checked once, in order.

The checks here need only the folder, git and external witnesses: digests are recomputed, chains are followed
and cells are counted. The caller passes checks that need more than the standard library (deriving the lock
again, grading, judging). No check can show what was run before registering.
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

Check: TypeAlias = Callable[[], str]  # returns a summary; raises Tampered, CannotTell or NotRun
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
    """Return one finding per item, in the order of `items.ITEMS`; only some studies have all items.

    extra_checks: further checks by item, run after those of the evidence. final_checks: run at the end, and
    only if nothing failed. signers: a file of keys that may have signed the lock, as ssh-keygen reads it.
    anchors: the result of `anchors.verify_anchors`. block: returns the Bitcoin block of the lock's proof.
    item_context: a context that is entered with the name of an item while it is checked.

    "not run" means that a step and all after it left no trace. Other missing evidence fails.
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
    """Return the items of the folder itself that could not be decided here."""
    return [one.item for one in findings if one.status == "cannot tell" and one.item not in FROM_OUTSIDE]


def _all(checks: Iterable[Check]) -> str:
    """Return the joined summaries of an item's checks; the first that raises ends it."""
    return "; ".join(check() for check in checks)
