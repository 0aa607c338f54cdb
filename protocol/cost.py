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

from protocol import command
from protocol.evidence.registration import CLAIM, Registration
from protocol.formats.text_tables import to_plain
from protocol.instruments.attempt import MeasuringCommand, run_command
from protocol.instruments.cost import measurement_file
from protocol.instruments.cost import summary as explored
from protocol.workspace import locked_tree


def main(argv: list[str] | None = None, *, enter: bool = False) -> int:
    return run_command(MEASURING, __doc__, argv, enter=enter)


def _is_done(study: Registration) -> bool:
    """Return whether the study is claimed and has measurements, which are then printed without a run."""
    return study.has(CLAIM) and any(measurement.bodies for measurement in measurement_file.read_measurements(study))


def _print_result(study: Registration, as_json: bool) -> int:
    measurements = explored.read_costs(study.folder)
    command.print_result(as_json, "\n".join(explored.format_costs(measurements)), {"measured": to_plain(measurements)})
    return 0


MEASURING = MeasuringCommand(
    "protocol.cost",
    measurement_file.INSTRUMENT,
    "protocol.instruments.cost.run.measurement:measure_study",
    _is_done,
    _print_result,
)

if __name__ == "__main__":
    sys.exit(locked_tree.run(main))
