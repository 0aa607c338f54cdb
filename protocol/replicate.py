"""Run a confirmed study again, as a new registration of your own.

    kv-prereg replicate registrations/quickstart

Audits the parent first: what fails there is not repeated, what cannot be told there is named. Then it
registers a child in replications/ (parent's digest, your environment, your claim), confirms it on the same
held-out problems (with [randomness]: drawn anew), from the sources that it locked, and says whether it
agrees with its parent. The winner of a sweep is the parent's: a replication does not probe again. An
interrupted replication is continued by the same command.

Exit status: that of the child's verdict: 0 CONFIRMED; 10 REFUTED; 11 INCONCLUSIVE or SCREENED; 2 bad input; 3
drifted or tampered.
"""

import sys
from pathlib import Path
from typing import Any

from protocol import command, witnesses
from protocol.acts import preflight
from protocol.evidence.registration import Registration
from protocol.formats.progress_display import phase
from protocol.formats.refusals import Tampered
from protocol.models import sources
from protocol.run.executors import preflight as executors
from protocol.run.executors.settings import ExecutorOptions, add_options, parse_settings
from protocol.workspace import locked_tree


class Options(command.Options, ExecutorOptions):
    value: Path | None
    identity: Path | None
    headers: Path | None


def main(argv: list[str] | None = None, *, enter: bool = False) -> int:
    parser = command.make_parser("protocol.replicate", __doc__)
    command.add_folder(parser)
    parser.add_argument(
        "--value", type=Path, metavar="FILE", help="the late value of the replication, if one is registered"
    )
    command.add_identity(parser)
    parser.add_argument("--headers", type=Path, metavar="FOLDER", help="more headers of Bitcoin blocks")
    add_options(parser)
    args = parser.parse_args(argv, namespace=Options())
    return command.execute(args.json, lambda: act(args, enter), resumes=True)


def act(args: Options, enter: bool) -> int:
    parent, settings = Registration(args.folder), parse_settings(args)
    with phase(locked_tree.phase_label("checking the files of the parent")):
        preflight.check_replicate(parent)
        executors.refuse_unavailable(settings, parent.protocol["generation"]["device"])
        undetermined = (
            [] if locked_tree.locked_digest() else audit_parent(parent, args.headers)
        )  # in the locked tree the audit has already run
    for item in undetermined:
        command.print_notice(f"{parent.folder}: {item} could not be told; going on")
    # Imported late: torch is slow, and --help and the refusals above do not need it.
    with phase(locked_tree.phase_label("loading torch", "loading torch, compiled anew")):
        from figures.table import verdict_table
        from protocol.acts import judge, replicate
        from protocol.workspace.study import open_study

    parent_study = open_study(parent, sources.cache_home())
    with phase("registering the replication"):
        child = replicate.start_child(parent_study)
        if enter:
            locked_tree.enter(child.registration, "protocol.replicate")
    result = replicate.replicate(parent_study, child, args.value, args.headers, args.identity, settings)
    judged, compared = result.judgement.content, result.comparison
    paths = [str(path) for path in result.judgement.files]
    lines = [verdict_table(judged), "", format_comparison(parent, compared), "", *judge.format_selected(judged), *paths]
    values = {"verdict": judged["verdict"], "files": paths, "parent": parent.lock.digest, **compared}
    command.print_result(args.json, "\n".join(lines), values)
    return command.EXIT_STATUS[judged["verdict"]]


def audit_parent(parent: Registration, headers: Path | None) -> list[str]:
    """Return the audit items of the parent that cannot be checked here. Raises Tampered if one fails."""
    from protocol.acts import audit  # imports scipy

    audited = audit.audit(
        parent, witnesses.make_witnesses(parent, headers=headers), audit.AuditOptions(headers=headers)
    )
    if audited.failed_items:
        first = next(finding for finding in audited.findings if finding.status == "failed")
        raise Tampered(
            f"{parent.folder}: its audit fails ({', '.join(audited.failed_items)}), and nothing is built on it: "
            f"{first.item}: {first.detail[:200]}; see: kv-prereg audit {parent.folder}"
        )
    return audited.undetermined_items


def format_comparison(parent: Registration, compared: dict[str, Any]) -> str:
    verb = "agrees with" if compared["agrees"] else "DISAGREES with"
    verdict, rule_says = compared["parent_verdict"], compared["parent_rule_says"]
    parent_verdict = verdict if verdict == rule_says else f"{verdict}, the rule says {rule_says}"
    if "lanes" not in compared:
        return (
            f"This replication {verb} {parent.folder.name} ({parent_verdict}), with seeds and "
            "generated problems drawn anew: single answers are not compared."
        )
    return (
        f"This replication {verb} {parent.folder.name} ({parent_verdict}): "
        f"{compared['same_text']} of {compared['lanes']} lanes gave the same text, "
        f"{compared['same_grade']} the same grade."
    )


if __name__ == "__main__":
    sys.exit(locked_tree.run(main))
