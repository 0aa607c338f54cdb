"""Run a locked protocol on its held-out problems, once, and judge it by the committed rule.

    kv-prereg confirm registrations/001-mine
    kv-prereg confirm registrations/001-mine --value nonce.txt      with [randomness] (nonce, beacon)
    kv-prereg confirm registrations/001-mine --identity key.txt     with encrypted held-out problems

Runs the locked sources, unpacked into a temporary folder that is removed at the end (a killed run leaves it).
Writes the claim before the first held-out problem is opened, records every cell, checks the lock again
half-way and at the end, seals, then applies the rule, draws the forest plot and prints the verdict. Killed,
it continues where it stopped; finished, it is refused: whoever wants to run it again replicates it
(kv-prereg replicate).

Exit status: 0 CONFIRMED; 10 REFUTED; 11 INCONCLUSIVE, or SCREENED (too few problems); 12 DEVIATED; 2 bad
input; 3 drifted or tampered; 4 already claimed, withdrawn or amended; 5 with --require-anchor, the lock is
not anchored.
"""

import sys
from functools import partial
from pathlib import Path

from protocol import command, witnesses
from protocol.acts import preflight
from protocol.evidence.external import anchors
from protocol.evidence.registration import SEAL, Registration
from protocol.formats.progress_display import phase
from protocol.models import sources
from protocol.run.executors.settings import ExecutorOptions, add_options, parse_settings
from protocol.workspace import locked_tree


class Options(command.Trust, ExecutorOptions):
    value: Path | None
    identity: Path | None


def main(argv: list[str] | None = None, *, enter: bool = False) -> int:
    parser = command.make_parser("protocol.confirm", __doc__)
    command.add_folder(parser)
    parser.add_argument("--value", type=Path, metavar="FILE", help="the late value that the protocol registers")
    command.add_identity(parser)
    command.add_trust(parser)
    add_options(parser)
    args = parser.parse_args(argv, namespace=Options())
    return command.execute(args.json, lambda: act(args, enter), resumes=True)


def act(args: Options, enter: bool) -> int:
    study, trusted, settings = Registration(args.folder), command.trusted_witnesses(args), parse_settings(args)
    block = partial(witnesses.find_randomness_block, study, args.headers)
    with phase(locked_tree.phase_label("checking the files of the study")):
        preflight.check_confirm(study, args.value, block, args.identity)
        if args.require_anchor:
            anchors.require_anchors(anchors.verify_anchors(study, trusted), ["lock"])
        if enter:
            locked_tree.enter(study, "protocol.confirm")
    # Imported late: torch is slow, and --help and the refusals above do not need it.
    with phase(locked_tree.phase_label("loading torch", "loading torch, compiled anew")):
        from figures.drawing import formatting
        from figures.table import verdict_table
        from protocol.acts import confirm, judge
        from protocol.workspace.study import open_study

    if not study.has(SEAL):
        confirm.confirm(open_study(study, sources.cache_home()), args.value, block, args.identity, settings)
    result = judge.judge_sealed(study)
    judged = result.content
    paths = [str(path) for path in result.files]
    anchoring = anchors.format_anchoring(anchors.verify_anchors(study, trusted))
    prompt_notes, eviction_notes = judge.format_prompt_differences(study, judged), judge.format_unevicted(study)
    notes = [*judge.format_selected(judged), *prompt_notes, *eviction_notes]
    lines = [verdict_table(judged, anchoring), "", *notes, format_ledger_head(study), *paths]
    verdict_line = formatting.verdict_text(judged)
    values = {
        "verdict": judged["verdict"],
        "said": verdict_line,
        "anchors": anchoring,
        "files": paths,
        "never_evicted": eviction_notes,
    }
    values["lock"] = study.lock.digest
    values |= {"asked_apart": prompt_notes} if prompt_notes else {}
    values |= {name: judged[name] for name in ("rule_says", "gate") if judged.get(name)}
    if "selected" in judged:
        values["selected"] = judged["selected"]["arm"]
    command.print_result(args.json, "\n".join(lines), values)
    return command.EXIT_STATUS[judged["verdict"]]


def format_ledger_head(study: Registration) -> str:
    entries = study.reopen().entries
    return f"ledger: {len(entries)} lines, head {entries[-1].sha256[:12]}"


if __name__ == "__main__":
    sys.exit(locked_tree.run(main))
