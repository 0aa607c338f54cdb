"""Audit a registration from its files alone, and state what remains of its verdict."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from analysis.output import headline
from analysis.output.phases import phase
from protocol import witnesses
from protocol.acts import regrade
from protocol.acts.again import drawn_again, judged_again, lock_again, replay, traces_again
from protocol.evidence import findings
from protocol.evidence.audit import auditing
from protocol.evidence.audit.auditing import Check
from protocol.evidence.bytes import files
from protocol.evidence.findings import Finding
from protocol.evidence.outside import anchors
from protocol.evidence.outside.anchors import Anchor, Witness
from protocol.evidence.refusals import BadInput, Refusal
from protocol.evidence.run import records, verdict
from protocol.evidence.run.registration import Registration
from protocol.locked import drift
from protocol.witnesses import Block

__all__ = ["FAILED", "UNFINISHED", "UNTOLD", "Asked", "Audited", "audit", "status", "summary"]

FAILED, UNFINISHED, UNTOLD = 3, 6, 7  # exit statuses besides 0


class Asked(NamedTuple):
    """The optional parts of an audit: see `kv-prereg audit --help`."""

    signers: Path | None = None
    headers: Path | None = None
    identity: Path | None = None
    run_locked: bool = False
    replay: int = 0
    nonce: str = ""
    draw: bool = False


class Audited(NamedTuple):
    findings: list[Finding]
    anchored: list[Anchor]
    verdict: str | None  # by the auditor's own analysis; INVALID if something failed, None without one
    said: str  # the verdict as it is printed; empty without one
    judged: Mapping[str, Any] | None = (
        None  # the auditor's own judgement; None if `verdict` does not come from it
    )

    @property
    def broken(self) -> list[str]:
        return auditing.failed(self.findings)

    @property
    def unfinished(self) -> list[str]:
        return auditing.unfinished(self.findings)

    @property
    def gaps(self) -> list[str]:
        """The evidence items that are undetermined here."""
        return auditing.untold(self.findings)


def audit(study: Registration, believed: Sequence[Witness] = (), asked: Asked | None = None) -> Audited:
    """Audit a study. Raises BadInput for a folder without a registration, and for a missing list of signers.
    """
    asked = asked or Asked()
    if not study.traces():
        raise BadInput(f"{study.folder}: no registration is here; name the folder of one")
    if asked.signers and not asked.signers.is_file():
        raise BadInput(f"--signers {asked.signers}: no such file; see ALLOWED SIGNERS in man ssh-keygen")
    if asked.replay:
        replay.refuse(asked.replay, asked.nonce)
    with phase("auditing: anchors"):
        anchored = anchors.verified(study, believed)
    judge = cache(lambda: judged_again.judged(study))
    # A replay loads models, which create cyclic garbage.
    with nullcontext() if asked.replay else records.nothing_collected():
        made = auditing.audit(
            study,
            _beside(study, asked, judge),
            _last(study, asked),
            signers=asked.signers,
            anchored=anchored,
            block=lambda: _block(study, asked.headers),
            during=lambda item: phase(f"auditing: {item}"),
        )
    if auditing.failed(made):
        return Audited(made, anchored, verdict.INVALID, verdict.INVALID)
    if all(one.item != "judgement" or one.status == "not run" for one in made):
        return Audited(made, anchored, None, "")
    try:
        own = judge()
    except Exception:  # the finding on the judgement has the error
        return Audited(made, anchored, None, "")
    return Audited(made, anchored, str(own["verdict"]), headline.word(own), own)


def status(audited: Audited) -> int:
    """Return the exit status of an audit's result."""
    if audited.broken:
        return FAILED
    if audited.gaps:
        return UNTOLD
    return UNFINISHED if audited.unfinished else 0


def summary(audited: Audited) -> str:
    """Return the result as a text, with the items."""
    if audited.broken:
        return f"AUDIT FAILED ({', '.join(audited.broken)})"
    if audited.gaps:
        return f"could not be told: {', '.join(audited.gaps)}"
    if audited.unfinished:
        return f"unfinished ({', '.join(audited.unfinished)}); what is there holds"
    outside = [each.item for each in audited.findings if each.status == "cannot tell"]
    return "everything held" + (f", but for what is not here: {', '.join(outside)}" if outside else "")


def _beside(study: Registration, asked: Asked, judge: Callable[[], dict[str, Any]]) -> Mapping[str, Check]:
    """Return the checks that need this project's own code, and none of the author's."""
    checks: dict[str, Check] = {
        "sources": lambda: drift.packages(study.lock.content),
        "registered": lambda: lock_again.check(study),
        "policies": lambda: lock_again.check_policies(study),
        "grades": lambda: regrade.check(study, asked.identity),
        "judgement": lambda: judged_again.check(study, judge),
    }
    if "anatomy" in _registered(study):
        checks["anatomy"] = lambda: traces_again.check(study)
    if "sweep" in _registered(study):
        checks["selection"] = lambda: judged_again.check_selection(study)
    return checks


def _last(study: Registration, asked: Asked) -> Mapping[str, Check]:
    """Return the checks that take longer or run the author's code: on request only, and after all others
    passed.
    """
    checks: dict[str, Check] = {}
    if asked.draw:
        checks["drawings"] = lambda: drawn_again.check(study)
    if asked.replay:
        checks["replay"] = lambda: replay.check(
            study, files.home(), asked.replay, asked.nonce, asked.identity
        )
    if asked.run_locked:
        checks["locked code"] = lambda: judged_again.check_locked(study)
    return checks


def _registered(study: Registration) -> Mapping[str, Any]:
    """Return the protocol in the lock; empty if the lock cannot be read."""
    try:
        return study.registered
    except (Refusal, OSError, KeyError, TypeError):
        return {}


def _block(study: Registration, headers: Path | None) -> Block:
    """Return the block of the lock's proof. Raises CannotTell if it is not proven."""
    try:
        return witnesses.block(study, headers)
    except (anchors.Unproven, BadInput) as unproven:
        raise findings.CannotTell(str(unproven)) from None
