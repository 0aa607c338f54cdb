"""The audit of a registration from its files alone: every item is checked once, in order.

The checks here need only the folder, git and external witnesses: digests are recomputed, chains are followed
and cells are counted. The caller passes checks that need more than the standard library (deriving the lock
again, grading, judging). No check can show what was run before registering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from protocol.evidence.audit import consistency, inventory
from protocol.evidence.audit.checks import Checks
from protocol.evidence.audit.items import EXTERNAL_ITEMS, ITEMS
from protocol.evidence.external import git_history
from protocol.evidence.external.anchors import Anchor
from protocol.evidence.registration import Registration
from protocol.formats.citations import CITES
from protocol.formats.findings import CannotTell, Finding, NotRun, Unfinished, find_remedy, one_line
from protocol.formats.instruments import Instrument
from protocol.formats.refusals import Tampered
from protocol.formats.registry import load_attribute
from protocol.formats.vocabulary import RANDOMNESS
from protocol.lock import lock

if TYPE_CHECKING:
    from protocol.evidence.late_randomness import Block

AMENDMENT = "protocol.evidence.audit.amendment"  # loaded, as below, by the few studies that have one
Check: TypeAlias = Callable[[], str]  # returns a summary; raises Tampered, CannotTell or NotRun


def audit(
    study: Registration,
    extra_checks: Mapping[str, Check] | None = None,
    final_checks: Mapping[str, Check] | None = None,
    *,
    signers: Path | None = None,
    anchors: Sequence[Anchor] = (),
    block: Callable[[], Block] | None = None,
    value: Path | None = None,
    item_context: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> list[Finding]:
    """Return one finding per item, in the order of `items.ITEMS`; only some studies have all items.

    extra_checks: further checks by item, run after those of the evidence. final_checks: run at the end, and
    only if nothing failed. signers: a file of keys that may have signed the lock, as ssh-keygen reads it.
    anchors: the result of `anchors.verify_anchors`. block: returns the Bitcoin block of the lock's proof.
    value: a file with the round of the beacon, as the auditor looked it up.
    item_context: a context that is entered with the name of an item while it is checked.

    "not run" means that a step and all after it left no trace. Other missing evidence fails.
    """
    study_checks = Checks(study)
    evidence_checks: dict[str, Check] = {
        "files": lambda: inventory.check(study),
        "lock": study_checks.check_lock,
        "protocol": study_checks.check_protocol,
        "sources": study_checks.check_sources,
        "commit": lambda: git_history.check_commit(study),
        "signature": lambda: _check_signature(study, signers),
        **({"amendment": lambda: load_attribute(f"{AMENDMENT}:verify")(study)} if study_checks.has("amends") else {}),
        "ledger": study_checks.check_ledger,
        "history": lambda: git_history.check(study),
        "probe": study_checks.check_probe,
        **{
            instrument.name: partial(_check_instrument, study_checks, instrument)
            for instrument in study_checks.instruments
        },
        **({"selection": study_checks.check_selection} if study_checks.has_sweep else {}),
        "claim": study_checks.check_claim,
        **(
            {"randomness": lambda: study_checks.check_randomness(block, value)}
            if study_checks.has("protocol", "content", RANDOMNESS)
            else {}
        ),
        "records": study_checks.check_records,
        "trajectories": study_checks.check_trajectories,
        **({"cited": lambda: _check_cited(study, study_checks)} if study_checks.has(CITES) else {}),
        "grid": study_checks.check_grid,
        "sense": lambda: consistency.check(study),
        "seal": study_checks.check_seal,
        "verdict": study_checks.check_verdict,
        **({"ending": lambda: load_attribute(f"{AMENDMENT}:describe_ending")(study)} if study_checks.has_ended else {}),
        "anchors": lambda: study_checks.check_anchors(anchors),
    }
    extra_checks, final_checks = extra_checks or {}, final_checks or {}
    findings = {}
    for name in (item.name for item in ITEMS if item.name not in study_checks.unaudited):
        if checks := [group[name] for group in (evidence_checks, extra_checks) if name in group]:
            with item_context(name):
                findings[name] = run_check(name, partial(_run_all, checks))
    failures = failed_items(findings.values())
    for name, check in final_checks.items():
        with item_context(name):
            findings[name] = Finding(name, "not run", f"{failures[0]} failed") if failures else run_check(name, check)
    return [findings[item.name] for item in ITEMS if item.name in findings]


def run_check(item: str, check: Check) -> Finding:
    """Return the finding on one item.

    Any exception from a damaged file is a failure, in one line; what this machine lacks is "cannot tell", with the
    remedy.
    """
    try:
        return Finding(item, "held", one_line(check()))
    except NotRun as not_run:
        return Finding(item, "not run", one_line(not_run))
    except Unfinished as unfinished:
        return Finding(item, "unfinished", one_line(unfinished))
    except CannotTell as undetermined:
        return Finding(item, "cannot tell", one_line(undetermined))
    except Exception as error:
        if remedy := find_remedy(error):
            return Finding(item, "cannot tell", remedy)
        kind = "" if isinstance(error, Tampered) else f"{type(error).__name__}: "
        return Finding(item, "failed", f"{kind}{one_line(error)}")


def _check_instrument(study_checks: Checks, instrument: Instrument) -> str:
    if not study_checks.has("protocol", "content", instrument.name):
        raise Tampered(f"the ledger has attempts to {instrument.verb}, but no [{instrument.name}] is registered")
    check = load_attribute(instrument.check)
    return str(check(study_checks.study, study_checks.is_claimed, study_checks.has_ended))


def _check_signature(study: Registration, signers: Path | None) -> str:
    if not (signers or study.has(lock.SIGNATURE) or study.lock.content.get("signer")):
        raise NotRun(lock.UNSIGNED)
    from protocol.lock import signing  # here and below: what few studies have is loaded by those

    return signing.check(study.folder, signers)


def _check_cited(study: Registration, study_checks: Checks) -> str:
    """Audit the evidence of the cited studies, and compare their records with those that were copied."""
    if not study_checks.is_claimed:
        raise NotRun
    from protocol.evidence import citations

    summary = citations.check(study)
    citations.refuse_unusable(study, list_failures)
    return summary


def list_failures(study: Registration) -> list[str]:
    """Return the items of the evidence that fail in a folder, as an audit names them."""
    return failed_items(audit(study))


def failed_items(findings: Iterable[Finding]) -> list[str]:
    return [finding.item for finding in findings if finding.status == "failed"]


def unfinished_items(findings: Iterable[Finding]) -> list[str]:
    return [finding.item for finding in findings if finding.status == "unfinished"]


def undetermined_items(findings: Iterable[Finding]) -> list[str]:
    """Return the items of the folder itself that could not be decided here."""
    return [
        finding.item for finding in findings if finding.status == "cannot tell" and finding.item not in EXTERNAL_ITEMS
    ]


def _run_all(checks: Iterable[Check]) -> str:
    """Return the joined summaries of an item's checks; the first that raises ends it."""
    return "; ".join(check() for check in checks)
