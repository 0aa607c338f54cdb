"""Measure time and memory of every registered arm, as [cost] has them: before the claim, apart from accuracy.

    kv-prereg cost registrations/001-mine

The locked sources run. One arm at a time decodes made-up prompts of a fixed length, warm, repeated, in an
order drawn by the registered seed; each repetition is one line of cost/<machine>.jsonl. Interrupted, it
continues; finished, it prints the same table again. On another machine it is another measurement, in another
file, and the two are never mixed. No verdict depends on it: docs/machines.md.

Exit status: 0 done; 2 bad input, such as a study without [cost]; 3 drifted; 4 claimed or closed already and
nothing was measured, or another process is running it.
"""

import sys
from pathlib import Path

from protocol import command
from protocol.evidence.registration import CLAIM, Registration
from protocol.formats.progress_display import phase
from protocol.formats.text_tables import to_plain
from protocol.instruments.cost import measurement_file
from protocol.instruments.cost import summary as explored
from protocol.models import sources
from protocol.recompute import study_files
from protocol.workspace import locked_tree


def main(argv: list[str] | None = None, *, enter: bool = False) -> int:
    parser = command.make_parser("protocol.cost", __doc__)
    command.add_folder(parser)
    args = parser.parse_args(argv)
    return command.execute(args.json, lambda: act(Registration(args.folder), args.json, enter), resumes=True)


def act(study: Registration, as_json: bool, enter: bool) -> int:
    with phase(locked_tree.phase_label("checking the files of the study")):
        if _is_done(study):
            return _print_result(study.folder, as_json)
        study_files.check_instrument(study, measurement_file.INSTRUMENT)
        if enter:
            locked_tree.enter(study, "protocol.cost")
    # Imported late: torch is slow, and --help and the refusals above do not need it.
    with phase(locked_tree.phase_label("loading torch", "loading torch, compiled anew")):
        from protocol.instruments.cost.run import measurement
        from protocol.workspace.study import open_study

    measurement.measure_study(open_study(study, sources.cache_home()))
    return _print_result(study.folder, as_json)


def _is_done(study: Registration) -> bool:
    """Return whether the study is claimed and has measurements, which are then printed without a run."""
    return study.has(CLAIM) and any(measurement.bodies for measurement in measurement_file.read_measurements(study))


def _print_result(folder: Path, as_json: bool) -> int:
    measurements = explored.read_costs(folder)
    command.print_result(as_json, "\n".join(explored.format_costs(measurements)), {"measured": to_plain(measurements)})
    return 0


if __name__ == "__main__":
    sys.exit(locked_tree.run(main))
