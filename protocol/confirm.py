"""Run a locked protocol on its held-out problems, once, and judge it by the committed rule.

    kv-prereg confirm registrations/001-mine
    kv-prereg confirm registrations/001-mine --value nonce.txt      with [randomness] (nonce, beacon)
    kv-prereg confirm registrations/001-mine --identity key.txt     with encrypted held-out problems
    kv-prereg confirm registrations/001-mine --outputs FOLDER       with [runner], after a first confirm

Runs the locked sources, unpacked into a temporary folder that is removed at the end (a killed run leaves it).
Writes the claim before the first held-out problem is opened, records every cell, checks the lock again
half-way and at the end, seals, then applies the rule, draws the forest plot and prints the verdict. With
[decision] looks it opens the problems block by block, and a judge in a process of its own says after each
whether to stop. Killed, it continues where it stopped; finished, it is refused: whoever wants to run it again
replicates it (kv-prereg replicate).

Exit status: 0 CONFIRMED; 10 REFUTED; 11 INCONCLUSIVE, SCREENED (too few problems) or RE-USED (problems that
were opened before); 12 DEVIATED; 2 bad input; 3 drifted or tampered; 4 already claimed, withdrawn or amended;
5 with --require-anchor, the lock is not anchored; 6 claimed, and the outputs of another harness are still to come.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from analysis.judgement import arm_text, eviction_counts
from analysis.judgement.untrusted_files import RecordError
from analysis.rules import verdict_line
from protocol import command, witnesses
from protocol.evidence import citations, claim, late_randomness, looks, seal, verdict
from protocol.evidence.external import anchors
from protocol.evidence.held_out_guard import HeldOutGuard
from protocol.evidence.registration import SEAL, Registration
from protocol.formats import files, programs
from protocol.formats.looks import GO_ON, STOP
from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput, Tampered
from protocol.formats.registry import load_attribute
from protocol.formats.runners import find_runner
from protocol.recompute import study_files
from protocol.run.executors import launchers
from protocol.run.executors.settings import LOCAL, ExecutorOptions, Settings, add_options, parse_settings
from protocol.tasks import held_out_guard
from protocol.witnesses import registered
from protocol.workspace import drift, locked_tree
from protocol.workspace.study import Study, open_study, refuse_drift

if TYPE_CHECKING:  # with torch
    from protocol.run.runner import RunUpdate


LOOK_SECONDS = 3600  # that the judge of a look may take
UNFINISHED = 6  # the exit status of a study that waits for the outputs of another harness


class Options(command.Trust, ExecutorOptions):
    outputs: Path | None
    value: Path | None
    identity: Path | None


class Judgement(NamedTuple):
    content: dict[str, Any]
    files: tuple[Path, ...]  # the judged records, the verdict, its drawings and the report


def main(argv: list[str] | None = None, *, enter: bool = False) -> int:
    parser = command.make_parser("confirm", __doc__)
    command.add_folder(parser)
    parser.add_argument(
        "--value", type=Path, metavar="FILE", help="file with the late value (see [randomness] of the protocol)"
    )
    parser.add_argument(
        "--outputs", type=Path, metavar="FOLDER", help="folder of the other harness's outputs (only with [runner])"
    )
    command.add_identity(parser)
    command.add_trust(parser)
    add_options(parser)
    return command.run(parser, argv, Options(), partial(act, enter=enter), resumes=True)


def act(args: Options, enter: bool) -> int:
    study, settings = Registration(args.folder), parse_settings(args)
    args.remote = args.remote or registered.find_remote(study)
    trusted = command.trusted_witnesses(args)
    block = partial(witnesses.find_randomness_block, study, args.headers)
    with phase(locked_tree.phase_label("checking the files of the study")):
        study_files.check_confirm(study, args.value, block, args.identity)
        runner = find_runner(study.protocol)
        if args.outputs is not None and (runner is None or study.has(SEAL)):
            reason = (
                "this study reads no outputs of another harness"
                if runner is None
                else "the outputs of this study have been read already"
            )
            raise BadInput(f"--outputs {args.outputs}: {study.folder}: {reason}; leave it out")
        if args.require_anchor:
            anchors.require_anchors(anchors.verify_anchors(study, trusted), ["lock"])
        if enter:
            locked_tree.enter(study, "protocol.confirm")
    # Imported late, here and below: --help and the refusals above need no torch, scipy or matplotlib.
    if not study.has(SEAL) and runner is None:
        confirm(open_study(study, files.cache_home()), args.value, block, args.identity, settings)
    elif (
        not study.has(SEAL)
        and runner is not None
        and (to_run := load_attribute(runner.confirm)(study, args.outputs, args.value, block))
    ):
        command.print_result(args.json, "\n".join(to_run), {"claimed": True, "next": to_run})
        return UNFINISHED
    result = judge_sealed(study)
    from figures.drawing import formatting
    from figures.table import verdict_table

    paths = [str(path) for path in result.files]
    proofs = anchors.verify_anchors(study, trusted)
    is_witnessed, anchoring = anchors.is_lock_witnessed(study.reopen(), proofs), anchors.format_anchoring(proofs)
    judged = verdict_line.witnessed(result.content) if is_witnessed else result.content
    prompt_notes, eviction_notes = format_prompt_differences(study, judged), format_unevicted(study)
    notes = [*format_selected(judged), *prompt_notes, *eviction_notes]
    lines = [verdict_table(judged, anchoring), "", *notes, format_ledger_head(study), *paths]
    values = {
        "verdict": verdict_line.verdict_word(judged),
        "said": formatting.verdict_text(judged),
        "anchors": anchoring,
        "files": paths,
        "never_evicted": eviction_notes,
        "lock": study.lock.digest,
    }
    values |= {"asked_apart": prompt_notes} if prompt_notes else {}
    values |= {"gate": judged["gate"]} if judged.get("gate") else {}
    if "rule_says" in judged and (rule_says := verdict_line.printed_rule_verdict(judged)):
        values["rule_says"] = rule_says
    if "selected" in judged:
        values["selected"] = judged["selected"]["arm"]
    command.print_result(args.json, "\n".join(lines), values)
    return command.EXIT_STATUS[judged["verdict"]]


def format_ledger_head(study: Registration) -> str:
    entries = study.reopen().entries
    return f"ledger: {len(entries)} lines, head {entries[-1].sha256[:12]}"


def confirm(
    study: Study,
    value: Path | None = None,
    block: Callable[[], late_randomness.Block] | None = None,
    identity: Path | None = None,
    settings: Settings = LOCAL,
) -> str:
    """Run or continue, then seal; return the sealed outcome digest. The files of the study have passed
    `study_files.check_confirm`, and it is not sealed.

    value, block: where the late value comes from, if one is registered; see `late_randomness.drawn`. identity: a file
    with the private key of held-out problems that are encrypted. settings: where it runs, which changes no outcome.

    Raises as `verify_before_claim.refuse_edited_lock`, Drifted when today's bytes differ from the lock (before,
    half-way or after the run: then nothing is sealed), BadInput when a model has seen a held-out prompt before,
    AlreadyClaimed when another process runs it.
    """
    with phase(locked_tree.phase_label("loading torch", "loading torch, compiling it afresh")):
        from protocol.preflight import sweep_selection, verify_before_claim
        from protocol.run import progress
        from protocol.run.executors import answers, held_out_problems, own_code
        from protocol.run.executors.held_out_problems import UnbuiltProblems

    launchers.refuse_unavailable(settings, study.protocol.generation.device)
    with phase("hashing sources, packages and weights"):
        refuse_drift(study, with_weights=True)
    with phase("rederiving the lock"):
        verify_before_claim.refuse_edited_lock(study, simulated=not locked_tree.was_derived())
    with claim.exclusive_run(study.registration):
        # Files that were read before the claim was locked may have changed.
        study = replace(study, registration=study.registration.reopen())
        planned = study.planned._replace(protocol=sweep_selection.confirmed_design(study))
        attempt = claim.take(study.registration, value, block)
        cells = [cell for cell in study.cells() if cell.arm not in (study.protocol.cite or ())]
        held_out = HeldOutGuard(study.lock, study.folder, identity)
        while not looks.has_stopped(study.registration):
            citations.copy_due(study.registration)
            problems = {}
            for name, task in planned.tasks.items():
                purpose = "confirm, decrypted" if held_out_guard.is_encrypted(task) else "confirm"
                problems[name] = held_out.ids(name, purpose)
            with phase("building the held-out problems"):
                probed = (record["body"] for record in study.registration.probe_records)
                exposed = held_out_problems.list_exposed_prompts(planned, probed)
                unbuilt = UnbuiltProblems(held_out, problems, exposed, answers.list_extra_prompts(planned))
                # Where an arm runs code of its own, the process that runs none builds them.
                opened = unbuilt if own_code.is_run(planned.protocol) else unbuilt.open_all(planned)
            progress.run_displayed(
                study,
                planned.protocol,
                cells,
                problems,
                phase="confirm",
                attempt=attempt,
                settings=settings,
                held_out_problems=opened,
                watch=partial(_check_drift_halfway, study),
            )
            study = replace(study, registration=study.registration.reopen())
            if not looks.is_due(study.registration):
                break
            with phase("a separate judging process looks at the records"):
                looks.enter(study.registration, _ask_judge(study.folder))
            study = replace(study, registration=study.registration.reopen())
        with phase("hashing everything again before the seal"):
            refuse_drift(study, with_weights=True)
        with phase("sealing"):
            if study.protocol.cite:
                citations.check(study.registration.reopen())
            return seal.write(study.registration)


def _ask_judge(folder: Path) -> str:
    """Return what a process of its own says after a look: stop or go on. This one computes no effect, and learns none.

    Raises Tampered for records that cannot be judged.
    """
    flags = ["-P"] if sys.flags.safe_path else []
    judged = programs.run_program(
        [sys.executable, *flags, "-m", "analysis.look", folder.resolve()],
        error=Tampered,
        environment={**os.environ, "PYTHONPATH": str(drift.ROOT)},
        timeout=LOOK_SECONDS,
    )
    word = judged.stdout.decode().strip()
    if judged.returncode or word not in (GO_ON, STOP):
        raise Tampered(f"{folder}: the judging process of this look failed: {programs.last_error_line(judged)}")
    return word


def _check_drift_halfway(study: Study, report: Callable[[RunUpdate], None]) -> Callable[[RunUpdate], None]:
    """Return `report` with a refusal of drift (weights left out) once half of the lanes are recorded."""
    from protocol.run.runner import Progress

    is_checked = False

    def report_and_check(event: RunUpdate) -> None:
        nonlocal is_checked
        report(event)
        if isinstance(event, Progress) and not is_checked and 2 * event.lanes >= event.all_lanes:
            is_checked = True
            with phase("hashing sources and packages again, half-way"):
                refuse_drift(study, with_weights=False)

    return report_and_check


def judge_sealed(study: Registration) -> Judgement:
    """Judge a sealed study. verdict.json is created once; an interrupted judging is completed, not done otherwise."""
    folder = study.folder
    try:
        with phase("judging"):
            from analysis.judgement.judged_folder import judge

            judged = judge(folder)
    except RecordError as problem:
        raise Tampered(f"{folder}: {problem}") from None
    verdict.write(study, judged)
    with phase("drawing"):
        from figures.report import report

        report_path = report(folder)
    return Judgement(judged, (study.phase_folder("confirm"), folder / verdict.NAME, folder / "figures", report_path))


def format_selected(judged: dict[str, Any]) -> list[str]:
    """Return lines that say which candidate of a sweep the subject is; none without a sweep."""
    if "selected" not in judged:
        return []
    subject, winner = judged["contrasts"][0]["subject"], judged["selected"]
    return [f"{subject} is {winner['arm']} ({arm_text.describe_arm(winner)}), selected on the development problems", ""]


def format_unevicted(study: Registration) -> list[str]:
    """Return warnings about arms that evicted nothing, in some lanes or in all."""
    bodies = [record["body"] for record in study.reopen().confirm_records]
    return eviction_counts.eviction_warnings(
        eviction_counts.count_arms(bodies, study.protocol), arm_text.altered_arms(study.lock.content)
    )


def format_prompt_differences(study: Registration, judged: dict[str, Any]) -> list[str]:
    """Return lines about compared arms whose prompts differ; none if all prompts are the same."""
    winner = judged["selected"]["arm"] if "selected" in judged else None
    return arm_text.differing_prompt_sentences(study.lock.content, winner)


if __name__ == "__main__":
    sys.exit(locked_tree.run(main))
