"""Audit a registration from its files alone, and state what remains of its verdict."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from analysis.rules import verdict_line
from protocol import witnesses
from protocol.acts import regrade
from protocol.evidence import records, verdict
from protocol.evidence.audit import auditor
from protocol.evidence.audit.auditor import Check
from protocol.evidence.external import anchors
from protocol.evidence.external.anchors import Anchor, Witness
from protocol.evidence.registration import Registration
from protocol.formats import files, findings
from protocol.formats.findings import Finding
from protocol.formats.instruments import INSTRUMENTS, load_attribute
from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput, Refusal
from protocol.recompute import replay, verify_drawings, verify_judgement, verify_lock
from protocol.witnesses import Block
from protocol.workspace import drift

__all__ = ["FAILED", "UNDETERMINED", "UNFINISHED", "AuditOptions", "AuditResult", "audit", "exit_status", "summarize"]

FAILED, UNFINISHED, UNDETERMINED = 3, 6, 7  # exit statuses besides 0


class AuditOptions(NamedTuple):
    """The optional parts of an audit: see `kv-prereg audit --help`."""

    signers: Path | None = None
    headers: Path | None = None
    identity: Path | None = None
    run_locked: bool = False
    replay: int = 0
    nonce: str = ""
    redraw: bool = False


class AuditResult(NamedTuple):
    findings: list[Finding]
    proofs: list[Anchor]
    verdict: str | None  # by the auditor's own analysis; INVALID if something failed, None without one
    verdict_line: str  # the verdict as it is printed; empty without one
    judged: Mapping[str, Any] | None = None  # the auditor's own judgement; None if `verdict` does not come from it

    @property
    def failed_items(self) -> list[str]:
        return auditor.failed_items(self.findings)

    @property
    def unfinished_items(self) -> list[str]:
        return auditor.unfinished_items(self.findings)

    @property
    def undetermined_items(self) -> list[str]:
        """The evidence items that are undetermined here."""
        return auditor.undetermined_items(self.findings)


def audit(study: Registration, trusted: Sequence[Witness] = (), options: AuditOptions | None = None) -> AuditResult:
    """Audit a study. Raises BadInput for a folder without a registration, and for a missing list of signers."""
    options = options or AuditOptions()
    if not study.written_files():
        raise BadInput(f"{study.folder}: no registration is here; name the folder of one")
    if options.signers and not options.signers.is_file():
        raise BadInput(f"--signers {options.signers}: no such file; see ALLOWED SIGNERS in man ssh-keygen")
    if options.replay:
        replay.refuse_options(options.replay, options.nonce)
    with phase("auditing: anchors"):
        proofs = anchors.verify_anchors(study, trusted)
    judge = cache(lambda: verify_judgement.judge_study(study))
    # A replay loads models, which create cyclic garbage.
    with nullcontext() if options.replay else records.pause_gc():
        results = auditor.audit(
            study,
            _recompute_checks(study, options, judge),
            _requested_checks(study, options),
            signers=options.signers,
            anchors=proofs,
            block=lambda: _proven_block(study, options.headers),
            item_context=lambda item: phase(f"auditing: {item}"),
        )
    if auditor.failed_items(results):
        return AuditResult(results, proofs, verdict.INVALID, verdict.INVALID)
    if all(finding.item != "judgement" or finding.status == "not run" for finding in results):
        return AuditResult(results, proofs, None, "")
    try:
        judgement = judge()
    except Exception:  # the finding on the judgement has the error
        return AuditResult(results, proofs, None, "")
    return AuditResult(results, proofs, str(judgement["verdict"]), verdict_line.format_verdict(judgement), judgement)


def exit_status(audited: AuditResult) -> int:
    """Return the exit status of an audit's result."""
    if audited.failed_items:
        return FAILED
    if audited.undetermined_items:
        return UNDETERMINED
    return UNFINISHED if audited.unfinished_items else 0


def summarize(audited: AuditResult) -> str:
    """Return the result as a text, with the items."""
    if audited.failed_items:
        return f"AUDIT FAILED ({', '.join(audited.failed_items)})"
    if audited.undetermined_items:
        return f"could not be told: {', '.join(audited.undetermined_items)}"
    if audited.unfinished_items:
        return f"unfinished ({', '.join(audited.unfinished_items)}); what is there holds"
    undetermined = [finding.item for finding in audited.findings if finding.status == "cannot tell"]
    return "everything held" + (f", but for what is not here: {', '.join(undetermined)}" if undetermined else "")


def _recompute_checks(
    study: Registration, options: AuditOptions, judge: Callable[[], dict[str, Any]]
) -> Mapping[str, Check]:
    """Return the checks that need this project's own code, and none of the author's."""
    checks: dict[str, Check] = {
        "sources": lambda: drift.summarize_packages(study.lock.content),
        "registered": lambda: verify_lock.check(study),
        "policies": lambda: verify_lock.check_policies(study),
        "grades": lambda: regrade.check_grades(study, options.identity),
        "judgement": lambda: verify_judgement.check(study, judge),
    }
    for instrument in INSTRUMENTS:
        if instrument.recompute and instrument.name in _registered_protocol(study):
            checks[instrument.name] = partial(load_attribute(instrument.recompute), study)
    if "sweep" in _registered_protocol(study):
        checks["selection"] = lambda: verify_judgement.check_selection(study)
    return checks


def _requested_checks(study: Registration, options: AuditOptions) -> Mapping[str, Check]:
    """Return the checks that take longer or run the author's code: on request only, and after all others
    passed.
    """
    checks: dict[str, Check] = {}
    if options.redraw:
        checks["drawings"] = lambda: verify_drawings.check(study)
    if options.replay:
        checks["replay"] = lambda: replay.check(
            study, files.cache_home(), options.replay, options.nonce, options.identity
        )
    if options.run_locked:
        checks["locked code"] = lambda: verify_judgement.check_locked(study)
    return checks


def _registered_protocol(study: Registration) -> Mapping[str, Any]:
    """Return the protocol in the lock; empty if the lock cannot be read."""
    try:
        return study.protocol
    except (Refusal, OSError, KeyError, TypeError):
        return {}


def _proven_block(study: Registration, headers: Path | None) -> Block:
    """Return the block of the lock's proof. Raises CannotTell if it is not proven."""
    try:
        return witnesses.find_lock_block(study, headers)
    except (anchors.Unproven, BadInput) as unproven:
        raise findings.CannotTell(str(unproven)) from None
