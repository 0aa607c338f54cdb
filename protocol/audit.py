"""Check a registration from its files alone: offline, without torch, on any machine.

    kv-prereg audit registrations/quickstart
    kv-prereg audit registrations/quickstart --replay        lanes that carry the verdict are decoded again
    kv-prereg audit registrations/quickstart --run-locked    the author's judge too, contained

Asks three things. Does it follow from what was registered: the lock is derived again from protocol.toml and
the frozen splits, and the judge that is installed here judges the records. Is it consistent with itself:
digests, chains, cells, every relation between the fields of a record, every grade against its text. What do
git and outside witnesses say. Nothing that the author wrote is run, unless --run-locked asks for it.

Exit status: 0 all held (what lies outside the folder may be missing, and is named); 2 not a registration; 3
something failed; 5 with --require-anchor, a document of the study is not anchored; 6 the study is unfinished,
and what is there holds; 7 something could not be told here, and while a verdict depends on it, none is printed.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from analysis.rules import verdict_line
from protocol import command
from protocol.evidence import records, verdict
from protocol.evidence.audit import auditor
from protocol.evidence.audit.auditor import Check
from protocol.evidence.external import anchors
from protocol.evidence.external.anchors import Anchor, Witness
from protocol.evidence.registration import VERDICT, Registration
from protocol.formats import files, findings
from protocol.formats.findings import Finding
from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput, Refusal
from protocol.formats.registry import load_attribute
from protocol.formats.runners import describe_refusal, find_runner
from protocol.messages import audit_page
from protocol.workspace import drift

if TYPE_CHECKING:
    from protocol.evidence.late_randomness import Block

FAILED, UNFINISHED, UNDETERMINED = 3, 6, 7  # exit statuses besides 0
# No verdict depends on these; while another item is undetermined, none is said.
BESIDE_THE_VERDICT = ("drawings", "locked code")
# Words of the output that the help explains.
TERMS = ("held", "failed", "unfinished", "cannot tell", "not run", "INVALID", "ANCHORED", "UNANCHORED")


class AuditOptions(NamedTuple):
    """The optional parts of an audit: see `kv-prereg audit --help`."""

    signers: Path | None = None
    headers: Path | None = None
    value: Path | None = None
    identity: Path | None = None
    run_locked: bool = False
    replay: int | None = None  # lanes to decode again; 0 for as many as the odds need
    nonce: str = ""
    redraw: bool = False
    simulate: bool = False


class AuditResult(NamedTuple):
    findings: list[Finding]
    proofs: list[Anchor]
    verdict: str | None  # by the auditor's own analysis; INVALID if something failed, None if one cannot be told
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


class Options(command.Trust):
    """Parsed arguments, those of `AuditOptions` among them."""

    replay: int | None
    nonce: str
    details: bool


def main(argv: list[str] | None = None) -> int:
    parser = command.make_parser("audit", __doc__, TERMS)
    command.add_folder(parser)
    parser.add_argument("--details", action="store_true", help="one line for each item")
    parser.add_argument(
        "--replay",
        type=_parse_count,
        nargs="?",
        const=0,
        metavar="N",
        help="decode N lanes again, drawn with --nonce (default: enough to detect a forged verdict with "
        "probability 95 %%)",
    )
    parser.add_argument(
        "--nonce",
        default="",
        metavar="HEX",
        help="the random value that chooses these lanes (default: drawn, and printed)",
    )
    parser.add_argument("--draw", action="store_true", dest="redraw", help="redraw the figures, and compare them")
    parser.add_argument("--simulate", action="store_true", help="repeat the simulations that register ran")
    parser.add_argument(
        "--run-locked",
        action="store_true",
        help="also run the author's locked judge in a sandbox, if everything else passed",
    )
    parser.add_argument(
        "--signers", type=Path, metavar="FILE", help="file of allowed signers in ssh's format: whose signatures count"
    )
    parser.add_argument("--value", type=Path, metavar="FILE", help="file with the beacon's round, as you looked it up")
    command.add_identity(parser)
    command.add_trust(parser)
    return command.run(parser, argv, Options(), act)


def act(args: Options) -> int:
    study = Registration(args.folder)
    if args.nonce and args.replay is None:
        raise BadInput("--nonce: has an effect only with --replay, whose lanes it chooses; add --replay")
    options = AuditOptions(**{name: getattr(args, name) for name in AuditOptions._fields})
    options = options._replace(nonce=args.nonce or secrets.token_hex(16))
    audited = audit(study, command.trusted_witnesses(args), options)
    anchoring = anchors.format_anchoring(audited.proofs)
    if args.details:
        lines = audit_page.format_details(audited.findings)
    else:
        lines = audit_page.format_page(study, audited.findings, anchored=anchoring != "UNANCHORED")
    verdict_note = f"{audited.verdict_line}, " if audited.verdict_line else ""
    lines += ["", f"{study.folder}: {summarize(audited)}; {verdict_note}{anchoring}"]
    values = {
        "held": exit_status(audited) == 0,
        "status": exit_status(audited),
        "findings": [finding._asdict() for finding in audited.findings],
        "verdict": audited.verdict,
        "anchors": anchoring,
    }
    command.print_result(args.json, "\n".join(lines), values)
    if args.require_anchor and not exit_status(audited):
        anchors.require_anchors(audited.proofs, anchors.existing_documents(study))
    return exit_status(audited)


def audit(study: Registration, trusted: Sequence[Witness] = (), options: AuditOptions | None = None) -> AuditResult:
    """Audit a study. Raises BadInput for a folder without a registration, and for a missing list of signers."""
    options = options or AuditOptions()
    if not study.written_files():
        raise BadInput(f"{study.folder}: contains no registration; name the folder of one")
    if options.signers and not options.signers.is_file():
        raise BadInput(f"--signers {options.signers}: no such file; see ALLOWED SIGNERS in man ssh-keygen")
    if options.replay is not None:
        from protocol.recompute import replay

        if find_runner(_registered_protocol(study)) is not None:
            raise BadInput(f"--replay: {describe_refusal(study.folder)}")
        replay.refuse_options(options.replay or None, options.nonce)
    with phase("auditing: anchors"):
        proofs = anchors.verify_anchors(study, trusted)
    # Imported late: scipy is slow, and --help and the refusals above do not need it.
    with phase("loading the libraries that judging needs"):
        from protocol.recompute import verify_judgement
    judge = cache(lambda: verify_judgement.judge_study(study))
    # A replay loads models, which create cyclic garbage.
    with nullcontext() if options.replay is not None else records.pause_gc():
        results = auditor.audit(
            study,
            _recompute_checks(study, options, judge),
            _requested_checks(study, options),
            signers=options.signers,
            anchors=proofs,
            block=lambda: _proven_block(study, options.headers),
            value=options.value,
            item_context=lambda item: phase(f"auditing: {item}"),
        )
    if auditor.failed_items(results):
        return AuditResult(results, proofs, verdict.INVALID, verdict.INVALID)
    if {*auditor.undetermined_items(results)}.difference(BESIDE_THE_VERDICT):
        return AuditResult(list(map(_withhold_verdict, results)), proofs, None, "")
    if all(finding.item != "judgement" or finding.status == "not run" for finding in results):
        return AuditResult(results, proofs, None, "")
    try:
        judgement = judge()
    except Exception:  # the finding on the judgement has the error
        return AuditResult(results, proofs, None, "")
    if _is_witnessed(study, options, proofs, results):
        results = [_name_witnessed(finding, judgement) for finding in results]
        judgement = verdict_line.witnessed(judgement)
    word, line = verdict_line.verdict_word(judgement), verdict_line.format_verdict(judgement)
    return AuditResult(results, proofs, word, line, judgement)


def _is_witnessed(
    study: Registration, options: AuditOptions, proofs: Sequence[Anchor], results: Sequence[Finding]
) -> bool:
    """Return whether an outsider whom this auditor trusts shows that the lock came before the results."""
    if anchors.is_lock_witnessed(study, proofs):
        return True
    if not any(finding.item == "randomness" and finding.status == "held" for finding in results):
        return False
    from protocol.evidence import late_randomness

    return late_randomness.shows_order(study.lock, study.claim, options.signers)


def _name_witnessed(finding: Finding, judgement: Mapping[str, Any]) -> Finding:
    """Return the finding on the judgement with the verdict as it reads where a witness was verified."""
    if finding.item != "judgement":
        return finding
    line, witnessed_line = map(verdict_line.format_verdict, (judgement, verdict_line.witnessed(judgement)))
    return finding._replace(detail=finding.detail.replace(line, witnessed_line))


def _withhold_verdict(finding: Finding) -> Finding:
    """Return a finding without the verdict, which rests on what cannot be told."""
    is_told = finding.item == "judgement" and finding.status == "held"
    return finding._replace(detail="today's analysis judges the records as verdict.json does") if is_told else finding


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
        withheld = "" if audited.verdict else ", so the verdict is withheld"
        return f"undetermined: {', '.join(audited.undetermined_items)}{withheld}"
    if audited.unfinished_items:
        return f"unfinished ({', '.join(audited.unfinished_items)}); what exists so far passed"
    undetermined = [finding.item for finding in audited.findings if finding.status == "cannot tell"]
    return "everything held" + (f", not checkable here: {', '.join(undetermined)}" if undetermined else "")


def _recompute_checks(
    study: Registration, options: AuditOptions, judge: Callable[[], dict[str, Any]]
) -> Mapping[str, Check]:
    """Return the checks that need this project's own code, and none of the author's."""
    from protocol.recompute import verify_grades, verify_judgement, verify_lock

    checks: dict[str, Check] = {
        "sources": lambda: drift.summarize_packages(study.lock.content),
        "registered": lambda: verify_lock.check(study),
        "policies": lambda: verify_lock.check_policies(study),
        "grades": lambda: verify_grades.check_grades(study, options.identity),
        "judgement": lambda: verify_judgement.check(study, judge),
    }
    if (runner := find_runner(_registered_protocol(study))) is not None:
        checks |= load_attribute(runner.checks)(study)
    for instrument in INSTRUMENTS:
        if instrument.recompute and instrument.name in _registered_protocol(study):
            checks[instrument.name] = partial(load_attribute(instrument.recompute), study)
    if "sweep" in _registered_protocol(study):
        from protocol.recompute import verify_selection

        checks["selection"] = lambda: verify_selection.check_selection(study)
    return checks


def _requested_checks(study: Registration, options: AuditOptions) -> Mapping[str, Check]:
    """Return the checks that take longer or run the author's code: on request only, and after all others passed."""
    checks: dict[str, Check] = {}
    if options.redraw:
        from protocol.recompute import verify_drawings

        checks["drawings"] = lambda: verify_drawings.check(study)
    if options.simulate:
        from protocol.recompute import verify_lock

        checks["simulations"] = lambda: verify_lock.check_simulated(study)
    if options.replay is not None:
        from protocol.recompute import replay, turning_lanes

        def check_replay() -> str:
            with phase("looking for lanes that could change the verdict"):
                routes = turning_lanes.find_study_routes(study) if study.has(VERDICT) else []
            home = files.cache_home()
            return replay.check(study, home, options.replay or None, options.nonce, options.identity, routes=routes)

        checks["replay"] = check_replay
    if options.run_locked:
        from protocol.recompute import run_locked

        checks["locked code"] = lambda: run_locked.check_locked(study)
    return checks


def _parse_count(text: str) -> int:
    """Parse a number of lanes from one on."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(
            f"write how many lanes to decode again, at least 1, or leave the number out, not {text!a}"
        )
    return int(text)


def _registered_protocol(study: Registration) -> Mapping[str, Any]:
    """Return the protocol in the lock; empty if the lock cannot be read."""
    try:
        return study.protocol
    except (Refusal, OSError, KeyError, TypeError):
        return {}


def _proven_block(study: Registration, headers: Path | None) -> Block:
    """Return the block of the lock's proof. Raises CannotTell if it is not proven."""
    from protocol import witnesses

    try:
        return witnesses.find_lock_block(study, headers)
    except (anchors.Unproven, BadInput) as unproven:
        raise findings.CannotTell(str(unproven)) from None


if __name__ == "__main__":
    sys.exit(main())
