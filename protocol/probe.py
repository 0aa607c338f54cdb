"""Run a locked protocol on its development problems: look as often as you like, nothing is decided here.

    kv-prereg probe registrations/001-mine

The locked sources run, unpacked into a temporary folder. Every registered cell runs on the dev split; the
first comparator runs twice (A/A), so that what varies without any change of policy is known. With a sweep its
candidates and its baseline run instead, and the committed rule selects which candidate confirm will run:
selection.json, written once; from then on nothing is run again. Interrupted, it continues; finished, it
prints the same table again: what each arm answered, where the full cache would not pass the gate,
and where an arm evicted nothing.

Exit status: 0 done; 2 bad input, or a lane of a sweep has no grade (nothing is selected); 3 drifted; 4
another process is running it.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, NamedTuple

from analysis.judgement import arm_text, eviction_counts
from protocol import command
from protocol.evidence import claim, probe_attempts
from protocol.evidence.registration import Registration
from protocol.formats import files
from protocol.formats.progress_display import phase
from protocol.plan import grid
from protocol.preflight import development_results
from protocol.preflight.development_results import AlikeArms
from protocol.recompute import study_files
from protocol.run.executors import launchers
from protocol.run.executors.settings import LOCAL, ExecutorOptions, Settings, add_options, parse_settings
from protocol.workspace import locked_tree
from protocol.workspace.study import Study, open_study, refuse_drift


class Options(command.Options, ExecutorOptions):
    pass


def main(argv: list[str] | None = None, *, enter: bool = False) -> int:
    parser = command.make_parser("probe", __doc__)
    command.add_folder(parser)
    add_options(parser)
    return command.run(parser, argv, Options(), partial(act, enter=enter), resumes=True)


def act(args: Options, enter: bool) -> int:
    study, settings = Registration(args.folder), parse_settings(args)
    with phase(locked_tree.phase_label("checking the files of the study")):
        study_files.check_probe(study)
        if enter:
            locked_tree.enter(study, "protocol.probe")
    rows, selected, alike, gate, eviction_notes = probe(open_study(study, files.cache_home()), settings)
    parts = [format_table(rows)]
    parts += [] if selected is None else ["", format_selection(selected)]
    parts += [*(format_alike(*pair) for pair in alike), *gate, *eviction_notes]
    values = {
        "arms": rows,
        "selected": selected,
        "alike": [pair._asdict() for pair in alike],
        "gate": gate,
        "never_evicted": eviction_notes,
    }
    command.print_result(args.json, "\n".join(parts), values)
    return 0


def format_alike(arms: tuple[str, str], same: int, lanes: int) -> str:
    return (
        f"arms {arms[0]} and {arms[1]} gave the same text with the same memory on {same} of {lanes} "
        "development lanes: are these two contrasts really one experiment?"
    )


def format_table(rows: list[dict[str, Any]]) -> str:
    lines = ["development split: for exploration, not for claims", ""]
    width = max([6, *(len(row["budget"]) for row in rows)])
    for row in rows:
        note = f"  {row['discordant']} texts differ from the first run" if "discordant" in row else ""
        label = f"{row['model']}  {row['task']:<22} {row['budget']:>{width}}  {row['arm']:<22}"
        lines.append(f"{label} {development_results.format_shares(row)}{note}")
    return "\n".join(lines)


class ProbeResult(NamedTuple):
    rows: list[dict[str, Any]]  # from `summarize_cells`
    selected: dict[str, Any] | None  # the content of a sweep's selection.json
    alike_arms: list[AlikeArms]
    gate_warnings: list[str]  # about models and tasks whose full cache would fail its gate
    unevicted_warnings: list[str]  # about arms that evicted nothing


def probe(study: Study, settings: Settings = LOCAL) -> ProbeResult:
    """Run the lanes that have no record yet, unless a sweep has its selection; then select. settings: where
    it runs. Raises Drifted, and as `study_files.check_probe`, `verify_before_claim.refuse_edited_lock` and
    `sweep_selection.select_winner` do.
    """
    with phase(locked_tree.phase_label("loading torch", "loading torch, compiling it afresh")):
        from protocol.preflight import sweep_selection, verify_before_claim

    study_files.check_probe(study.registration)
    launchers.refuse_unavailable(settings, study.protocol.generation.device)
    with phase("hashing sources, packages and weights"):
        refuse_drift(study, with_weights=True)
    with phase("rederiving the lock"):
        verify_before_claim.refuse_edited_lock(study, simulated=False)
    with claim.exclusive_run(study.registration):
        if not study_files.has_selection(study.registration):
            run_probe(study, settings)
        with phase("selecting"):
            selected = sweep_selection.select_winner(study) if study.protocol.sweep else None
    with phase("counting correct answers"):
        return _summarize_probe(study, selected)


def _summarize_probe(study: Study, selected: dict[str, Any] | None) -> ProbeResult:
    recorded = study.registration.reopen().probe_records
    bodies = [record["body"] for record in recorded]
    gate_warnings = development_results.gate_warnings(study.protocol, bodies)
    unevicted_warnings = eviction_counts.eviction_warnings(
        eviction_counts.count_arms(bodies, study.registration.protocol),
        arm_text.altered_arms(study.registration.lock.content),
    )
    return ProbeResult(
        development_results.summarize_cells(recorded),
        selected,
        development_results.find_alike_arms(recorded),
        gate_warnings,
        unevicted_warnings,
    )


def run_probe(study: Study, settings: Settings = LOCAL) -> None:
    from protocol.run import progress

    probed = study.protocol.probe_design()
    attempt = probe_attempts.begin_attempt(study.registration)
    cells, problems = grid.cells(probed), study.development()
    progress.run_displayed(study, probed, cells, problems, phase="probe", attempt=attempt, settings=settings)
    probe_attempts.end_attempt(study.registration)


def format_selection(selected: dict[str, Any]) -> str:
    """Return a table of every candidate in every cell, with its mean, the winner and the rule that selected it."""
    head = f"candidate - {selected['baseline']} in points of 100, exploratory 95 % bootstrap interval"
    lines = [head, ""]
    width = max([6, *(len(cell["budget"]) for cell in selected["cells"])])
    for name, mean in selected["means"].items():
        for cell in selected["cells"]:
            if cell["candidate"] == name:
                cell_text = f"{cell['model']}  {cell['task']:<22} {cell['budget']:>{width}}  {name:<22}"
                low, high = format_points(cell["low"]), format_points(cell["high"])
                lines.append(f"{cell_text} {format_points(cell['difference'])}  [{low}, {high}]  n={cell['problems']}")
        mark = "  <- selected" if name == selected["winner"] else ""
        lines.append(f"mean over cells: {name:<22} {format_points(mean)}{mark}")
    return "\n".join([*lines, "", format_winner(selected), format_repeat(selected)])


def format_winner(selected: dict[str, Any]) -> str:
    winner, best = selected["winner"], selected["best"]
    if winner == best:
        return f"selected: {winner}, the largest mean difference"
    tolerance = format_points(selected["tolerance"]).strip().lstrip("+")
    return f"selected: {winner}, the first within {tolerance} points of the largest mean difference, {best}"


def format_repeat(selected: dict[str, Any]) -> str:
    repeat = selected["again"]
    return f"{selected['baseline']} twice: {repeat['differ']} of {repeat['lanes']} grades differ"


def format_points(share: str) -> str:
    return f"{100 * float(share):+6.2f}"


if __name__ == "__main__":
    sys.exit(locked_tree.run(main))
