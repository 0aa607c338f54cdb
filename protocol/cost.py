"""Measure time and memory of every arm, as [cost] registers them: before the claim, separately from accuracy.

    kv-prereg cost registrations/001-mine

The locked sources run. The arms decode synthetic prompts of a fixed length, one arm at a time, after a
warm-up, repeatedly and in an order drawn by the registered seed; each repetition is one line of
cost/<machine>.jsonl. An interrupted run continues; a finished one prints its table again. Each machine
has its own file; measurements of two machines are never mixed. No verdict depends on it:
docs/machines.md.

Exit status: 0 done; 2 bad input, such as a study without [cost]; 3 drifted; 4 already claimed or closed
without a measurement, or another process is running it.
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
    measurement_file.INSTRUMENT,
    "protocol.instruments.cost.run.measurement:measure_study",
    _is_done,
    _print_result,
)

if __name__ == "__main__":
    sys.exit(locked_tree.run(main))
