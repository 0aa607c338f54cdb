"""Audit the registrations that changed files belong to: for pre-commit, and for pull requests.

    kv-prereg audit-changed registrations/mine/lock.json      files, as pre-commit names them
    kv-prereg audit-changed --since origin/main               what HEAD changed since it branched off
    kv-prereg audit-changed --since main --summary FILE       the result also as Markdown

Each registration is audited as kv-prereg audit does, from its files alone. A study that is still running passes
and is named. A registration fails if its evidence fails the audit or its folder is a link. With --since, it
also fails if it was locked and is gone, or if its ledger lost lines in a move. A registration with a check that
cannot be made here does not pass: audit it on a machine that can make the check, then merge it.

Exit status: 0 no registration failed; 2 bad input; 3 a registration failed or is gone; 7 a check of a registration
could not be made here.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from protocol import audit, command, witnesses
from protocol.audit import FAILED, UNDETERMINED, UNFINISHED, AuditResult
from protocol.evidence.external import anchors
from protocol.evidence.registration import Registration
from protocol.formats import escape
from protocol.formats.refusals import BadInput, Refusal
from protocol.messages import audit_page
from protocol.recompute import changed_registrations
from protocol.recompute.changed_registrations import ChangedRegistrations

STATUS_NAMES = {0: "held", FAILED: "failed", UNFINISHED: "unfinished", UNDETERMINED: "undetermined"}


GONE_ADVICE = (
    "or was moved without its whole ledger; restore it, since a study may only end with a verdict or with "
    "kv-prereg withdraw"
)


class AuditedFolder(NamedTuple):
    """The result for one registration, and its text."""

    status: str  # one of STATUS_NAMES, "not locked" or "gone"
    line: str
    page: list[str]  # the output of the audit if it failed
    audited: AuditResult | None = None


def main(argv: list[str] | None = None) -> int:
    parser = command.make_parser("audit-changed", __doc__)
    parser.add_argument("names", type=Path, nargs="*", metavar="FILE", help="a changed file")
    parser.add_argument(
        "--since", metavar="COMMIT", help="audit the studies that HEAD changed since it branched off this commit"
    )
    parser.add_argument("--summary", type=Path, metavar="FILE", help="append the result as Markdown")
    args = parser.parse_args(argv)
    return command.execute(args.json, lambda: act(args.names, args.since, args.summary, args.json))


def act(names: list[Path], since: str | None, summary: Path | None, as_json: bool) -> int:
    if since is not None and names:
        raise BadInput("FILE and --since: give either the files or the commit")
    if missing := [name for name in names if not name.exists()]:
        raise BadInput(f"{missing[0]}: no such file; to audit deleted files, give --since COMMIT")
    changes = (
        changed_registrations.find_registrations(names) if since is None else changed_registrations.changed_since(since)
    )
    results = audit_changes(changes)
    if summary:
        with summary.open("a", encoding="utf-8") as file:
            file.write(format_markdown(results))
    lines = [line for result in results for line in (*result.page, result.line)]
    values = {"registrations": [{"stands": result.status, "said": result.line} for result in results]}
    command.print_result(as_json, "\n".join([*lines, format_counts(results)]), values)
    statuses = {result.status for result in results}
    if statuses & {STATUS_NAMES[FAILED], "gone"}:
        return FAILED
    return UNDETERMINED if STATUS_NAMES[UNDETERMINED] in statuses else 0


def audit_changes(changes: ChangedRegistrations) -> list[AuditedFolder]:
    gone = [AuditedFolder("gone", f"{name}: was locked and is gone, {GONE_ADVICE}", []) for name in changes.removed]
    written = [AuditedFolder("not locked", f"{folder}: not locked yet", []) for folder in changes.unlocked]
    return [*gone, *(audit_folder(folder) for folder in changes.registered), *written]


def audit_folder(folder: Path) -> AuditedFolder:
    """Audit one folder. A refusal counts as a failure, since it is about a file of the change."""
    command.print_notice(f"auditing {folder}")
    study = Registration(folder)
    if folder.is_symlink():
        return AuditedFolder(STATUS_NAMES[FAILED], f"{folder}: is a link; commit the files of the study themselves", [])
    try:
        trusted = witnesses.make_witnesses(study, ca=None, headers=None, remote=None, branch=anchors.BRANCH)
        audited = audit.audit(study, trusted)
    except Refusal as refusal:
        return AuditedFolder(STATUS_NAMES[FAILED], f"{folder}: {type(refusal).__name__}: {refusal}", [])
    anchoring = anchors.format_anchoring(audited.proofs)
    line = "; ".join(
        filter(
            None,
            (f"{folder}: {audit.summarize(audited)}", audited.verdict_line and f"{audited.verdict_line}, {anchoring}"),
        )
    )
    page = (
        audit_page.format_page(study, audited.findings, anchored=anchoring != "UNANCHORED")
        if audited.failed_items
        else []
    )
    return AuditedFolder(STATUS_NAMES[audit.exit_status(audited)], line, page, audited)


def format_counts(results: list[AuditedFolder]) -> str:
    if not results:
        return "no registration was changed"
    return ", ".join(f"{number} {status}" for status, number in Counter(result.status for result in results).items())


def format_markdown(results: list[AuditedFolder]) -> str:
    """Format the results as Markdown. All text of a study is inside a code fence that it cannot close."""
    parts = [
        f"### Audit of changed registrations: {format_counts(results)}",
        *(_fence_lines(format_result(result)) for result in results),
    ]
    return "\n\n".join(parts) + "\n\n"


def format_result(result: AuditedFolder) -> list[str]:
    """Format one result. If the study was judged again here, draw that judgement as a text forest plot."""
    if result.audited is None or result.audited.judged is None:
        return [result.line, *result.page]
    from figures.drawing import formatting
    from figures.drawing.plain_forest import plain_forest

    judged = result.audited.judged
    return [result.line, str(judged["title"]), formatting.rule_line(judged), "", *plain_forest(judged["contrasts"])]


def _fence_lines(lines: list[str]) -> str:
    text = "\n".join(escape.escape_control(" ".join(line.splitlines())) for line in lines)
    fence = "`" * max(3, 1 + max(map(len, _backtick_runs(text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def _backtick_runs(text: str) -> list[str]:
    """Return the runs of consecutive backticks."""
    return "".join(letter if letter == "`" else " " for letter in text).split()


if __name__ == "__main__":
    sys.exit(main())
