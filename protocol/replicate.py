"""Run a confirmed study again, as a new registration of your own: reproduce it, or replicate it on fresh problems.

    kv-prereg replicate registrations/quickstart            a reproduction: the same problems and seeds
    kv-prereg replicate --fresh registrations/quickstart    a replication: fresh problems and seeds

Audits the parent first: what fails there is not repeated, what cannot be told there is named. Then it registers a
child in replications/ (parent's digest, your environment, your claim), confirms it from the sources that it locked,
and says whether it agrees with its parent. The winner of a sweep is the parent's: neither probes again. An
interrupted run is continued by the same command.

A reproduction shows that the run can be repeated, and nothing about other problems. With --fresh generated problems
and seeds are drawn after the new lock: by the [randomness] of the parent, else by a number that this machine draws
when it takes the claim. That is a study of its own, judged by today's rules, and kv-prereg pool joins it with its
parent. Where a study that ships with kv-prereg lacks what these rules require, the first line of protocol.toml says
what was completed.

Of a study that another harness runs it registers the child; kv-prereg confirm releases its problems, and reads the
outputs that somebody else made.

Exit status: that of the child's verdict: 0 CONFIRMED; 10 REFUTED; 11 INCONCLUSIVE, SCREENED or RE-USED; 2 bad input;
3 drifted or tampered; 6 registered, and another harness runs it.
"""

import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from analysis.rules import verdict_line
from protocol import audit, command, confirm, register, witnesses
from protocol.confirm import Judgement
from protocol.evidence import late_randomness, ledger, records, selection
from protocol.evidence.registration import PROTOCOL, SEAL, Registration
from protocol.formats import files
from protocol.formats.progress_display import phase
from protocol.formats.refusals import Drifted, Tampered
from protocol.formats.runners import find_runner
from protocol.lock import lock
from protocol.preflight import fresh_replication
from protocol.recompute import study_files
from protocol.run.executors import launchers
from protocol.run.executors.settings import LOCAL, ExecutorOptions, Settings, add_options, parse_settings
from protocol.workspace import locked_tree
from protocol.workspace.study import Study, open_study, refuse_drift


class ReplicationResult(NamedTuple):
    judgement: Judgement
    comparison: dict[str, Any]  # of child and parent


class Options(command.Options, ExecutorOptions):
    fresh: bool
    value: Path | None
    identity: Path | None
    headers: Path | None


def main(argv: list[str] | None = None, *, enter: bool = False) -> int:
    parser = command.make_parser("replicate", __doc__)
    command.add_folder(parser)
    parser.add_argument("--fresh", action="store_true", help="with newly drawn generated problems and seeds")
    parser.add_argument(
        "--value", type=Path, metavar="FILE", help="with --fresh: the late value, if the parent registers one"
    )
    command.add_identity(parser)
    parser.add_argument("--headers", type=Path, metavar="FOLDER", help="more headers of Bitcoin blocks")
    add_options(parser)
    return command.run(parser, argv, Options(), partial(act, enter=enter), resumes=True)


def act(args: Options, enter: bool) -> int:
    parent, settings = Registration(args.folder), parse_settings(args)
    runner = find_runner(parent.protocol)
    with phase(locked_tree.phase_label("checking the files of the parent")):
        study_files.check_replicate(parent, is_fresh=args.fresh)
        if runner is None:
            launchers.refuse_unavailable(settings, parent.protocol["generation"]["device"])
        undetermined = (
            [] if locked_tree.locked_digest() else audit_parent(parent, args.headers)
        )  # in the locked tree the audit has already run
    for item in undetermined:
        command.print_notice(f"{parent.folder}: {item} could not be checked; continuing")
    if runner is not None:
        return register_outside(parent, args)
    parent_study = open_study(parent, files.cache_home())
    with phase(f"registering the {name_kind(args.fresh)}"):
        child, is_new = start_child(parent_study, is_fresh=args.fresh)
        if enter:
            locked_tree.enter(child.registration, "protocol.replicate", is_derived=is_new)
    result = replicate(parent_study, child, args.value, args.headers, args.identity, settings)
    from figures.table import verdict_table  # scipy and matplotlib

    judged, compared = result.judgement.content, result.comparison
    paths = [str(path) for path in result.judgement.files]
    lines = [
        verdict_table(judged),
        "",
        format_comparison(parent, compared, is_fresh=args.fresh),
        "",
        *confirm.format_selected(judged),
        *paths,
    ]
    kind = name_kind(args.fresh)
    values = {
        "verdict": verdict_line.verdict_word(judged),
        "kind": kind,
        "files": paths,
        "parent": parent.lock.digest,
        **compared,
    }
    command.print_result(args.json, "\n".join(lines), values)
    return command.EXIT_STATUS[judged["verdict"]]


def register_outside(parent: Registration, args: Options) -> int:
    """Register the child of a study that another harness runs, or find its unfinished one, and say how it goes on."""
    newest = list_children(parent, is_fresh=args.fresh)[-1:]
    children = [child for child in newest if child.has_entries and not ledger.closing_entry(child.entries)]
    child = children[0] if children else write_child(parent, files.cache_home(), is_fresh=args.fresh)
    next_step = f"kv-prereg confirm {child.folder}"
    values = {"folder": str(child.folder), "parent": parent.lock.digest, "next": next_step}
    text = f"{child.folder} is a {name_kind(args.fresh)} of {parent.folder.name} with new outputs; next: {next_step}"
    command.print_result(args.json, text, values)
    return confirm.UNFINISHED


def audit_parent(parent: Registration, headers: Path | None) -> list[str]:
    """Return the audit items of the parent that cannot be checked here. Raises Tampered if one fails."""
    audited = audit.audit(
        parent, witnesses.make_witnesses(parent, headers=headers), audit.AuditOptions(headers=headers)
    )
    if audited.failed_items:
        first = next(finding for finding in audited.findings if finding.status == "failed")
        raise Tampered(
            f"{parent.folder}: its audit fails ({', '.join(audited.failed_items)}), so it cannot be "
            f"replicated: {first.item}: {first.detail[:200]}; see: kv-prereg audit {parent.folder}"
        )
    return audited.undetermined_items


def name_kind(is_fresh: bool) -> str:
    return "replication" if is_fresh else "reproduction"


def format_comparison(parent: Registration, compared: dict[str, Any], *, is_fresh: bool) -> str:
    verb = "agrees with" if compared["agrees"] else "DISAGREES with"
    verdict, rule_says = compared["parent_verdict"], compared["parent_rule_says"]
    is_said = rule_says is None or verdict.startswith(rule_says)  # CONFIRMED (UNWITNESSED) says it
    parent_verdict = verdict if is_said else f"{verdict}, but the rule says {rule_says}"
    if is_fresh:
        return (
            f"This replication {verb} {parent.folder.name} ({parent_verdict}), on fresh problems and seeds, "
            f"so single answers are not compared. To pool the two: kv-prereg pool {parent.folder}"
        )
    return (
        f"This reproduction {verb} {parent.folder.name} ({parent_verdict}): {compared['same_text']} of "
        f"{compared['lanes']} lanes gave the same text, {compared['same_grade']} the same grade. This says "
        "nothing about other problems."
    )


def start_child(parent: Study, *, is_fresh: bool) -> tuple[Study, bool]:
    """Return the child that this run confirms, and whether it is new: the one whose locked tree this is, an unfinished
    one, or else a new one. It takes over its parent's selection.
    """
    earlier = find_running_child(parent, is_fresh=is_fresh) or find_unfinished(parent, is_fresh=is_fresh)
    child = earlier or register_child(parent, is_fresh=is_fresh)
    if child.registration.has_sweep:
        selection.adopt(child.registration, parent.registration)
    return child, earlier is None


def replicate(
    parent: Study,
    child: Study,
    value: Path | None = None,
    headers: Path | None = None,
    identity: Path | None = None,
    settings: Settings = LOCAL,
) -> ReplicationResult:
    """Confirm the child unless it is sealed, judge and compare it. Raises as `check_confirm` and `confirm` do."""
    if not child.registration.has(SEAL):

        def read_block() -> late_randomness.Block:
            return witnesses.find_randomness_block(child.registration, headers)

        study_files.check_confirm(child.registration, value, read_block, identity)
        confirm.confirm(child, value, read_block, identity, settings)
    judgement = confirm.judge_sealed(child.registration)
    return ReplicationResult(
        judgement, compare_verdicts(parent.registration, child.registration.reopen(), judgement.content)
    )


def replications_folder(parent: Registration) -> Path:
    """Return the folder of the replications of `parent`: beside the folder that contains it."""
    return parent.folder.resolve().parent.parent / "replications"


def name_children(parent: Registration, *, is_fresh: bool) -> str:
    """Return what the names of its reproductions, or of its replications, begin with."""
    return f"{parent.name}-fresh" if is_fresh else parent.name


def list_children(parent: Registration, *, is_fresh: bool) -> list[Registration]:
    """Return the earlier reproductions of `parent`, or its replications, oldest first."""
    name = name_children(parent, is_fresh=is_fresh)
    return [Registration(folder) for folder in sorted(replications_folder(parent).glob(f"{name}-[0-9][0-9][0-9]"))]


def find_running_child(parent: Study, *, is_fresh: bool) -> Study | None:
    """Return the child whose locked tree this process runs; None in a working tree."""
    if (digest := locked_tree.locked_digest()) is None:
        return None
    for child in list_children(parent.registration, is_fresh=is_fresh):
        if child.has(lock.NAME) and child.lock.digest == digest:
            return open_study(child, parent.planned.home)
    raise Tampered(
        f"{replications_folder(parent.registration)}: no longer has a {name_kind(is_fresh)} of the lock "
        f"{digest[:12]}; start again"
    )


def find_unfinished(parent: Study, *, is_fresh: bool) -> Study | None:
    """Return the newest child, if it has no verdict yet and today's bytes still equal those that it locked."""
    for newest in list_children(parent.registration, is_fresh=is_fresh)[-1:]:
        if not newest.has(lock.NAME):
            return None
        if not newest.has_entries:
            register.register(newest.folder, parent.planned.home)  # completes an interrupted registration
        if ledger.closing_entry(newest.entries):
            return None
        child = open_study(newest, parent.planned.home)
        try:
            refuse_drift(child, with_weights=False, runs_here=False)
        except Drifted as drift_error:
            command.print_notice(f"leaving {newest.folder}: {drift_error}")
            return None
        return child if child.lock.content["parent"]["lock"] == parent.lock.digest else None
    return None


def register_child(parent: Study, *, is_fresh: bool) -> Study:
    """Register the next reproduction or replication. A refusal leaves no folder behind."""
    return open_study(write_child(parent.registration, parent.planned.home, is_fresh=is_fresh), parent.planned.home)


def write_child(parent: Registration, home: Path, *, is_fresh: bool) -> Registration:
    """Register the next child as `register_child` does. home: the folder of fetched files."""
    number = max((int(child.name[-3:]) for child in list_children(parent, is_fresh=is_fresh)), default=0) + 1
    folder = replications_folder(parent) / f"{name_children(parent, is_fresh=is_fresh)}-{number:03d}"
    reference = selection.cite_parent(parent, is_fresh=is_fresh)
    text = files.read(parent.folder / PROTOCOL).decode()
    if is_fresh:
        text = fresh_replication.complete_protocol(text, parent.lock)
    folder.mkdir(parents=True)
    try:
        files.create(folder / PROTOCOL, text.encode())
        for file in parent.task_files:
            shutil.copyfile(parent.folder / file, folder / file)
        reproduced = None if is_fresh else parent.lock.content
        register.register(folder, home, parent=register.Parent(reference, reproduced))
    except BaseException:
        if not (folder / lock.NAME).exists():
            shutil.rmtree(folder)
            with suppress(OSError):  # it contains other replications
                folder.parent.rmdir()
        raise
    return Registration(folder)


def compare_verdicts(parent: Registration, child: Registration, judged: dict[str, Any]) -> dict[str, Any]:
    """Compare the verdicts and the rule's results, and count the lanes with the same text and with the same
    grade. Lanes of a replication are not compared: it has other seeds and problems.

    A parent that predates gates may have a verdict that a study of its size can no longer get: then only the
    rule's results are compared.
    """
    parent_judged = parent.verdict.content["judged"]
    agrees = verdict_line.rule_verdict(parent_judged) == verdict_line.rule_verdict(judged)
    if "gate" in parent_judged:
        agrees = agrees and parent_judged["verdict"] == judged["verdict"]
    comparison = {
        "agrees": agrees,
        "parent_verdict": verdict_line.verdict_word(parent_judged),
        "rule_says": verdict_line.printed_rule_verdict(judged),
        "parent_rule_says": verdict_line.printed_rule_verdict(parent_judged),
    }
    if not child.reproduces:
        return comparison
    parent_lanes, child_lanes = (
        {records.body_key(record["body"]): record["body"] for record in study.own_records} for study in (parent, child)
    )
    return comparison | {
        "lanes": len(parent_lanes),
        "same_text": sum(parent_lanes[key]["text"] == child_lanes[key]["text"] for key in parent_lanes),
        "same_grade": sum(
            _grade_and_score(parent_lanes[key]) == _grade_and_score(child_lanes[key]) for key in parent_lanes
        ),
    }


def _grade_and_score(body: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the grade with its score, if it has one."""
    return body["grade"], body.get("score")


if __name__ == "__main__":
    sys.exit(locked_tree.run(main))
