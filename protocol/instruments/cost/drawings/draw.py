"""Draw measured time and memory.

    kv-prereg draw-cost registrations/001-mine

Writes figures/cost_throughput, cost_prefill, cost_memory and cost_concurrency, a projection, each as .svg and
.png, into the same folder; and, where the study is judged, cost_frontier: its accuracy against these seconds.
If several machines were measured, one of them is drawn. docs/machines.md explains each drawing. Exit status:
0 drawn; 2 nothing was measured, or the files cannot be read.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.judgement.study_files import read_study
from figures.drawing import page
from protocol.formats.reading_command import run_command
from protocol.instruments.cost.drawings.concurrency import cost_concurrency
from protocol.instruments.cost.drawings.frontier import cost_frontier, timed_curves
from protocol.instruments.cost.drawings.labels import choose_measurement
from protocol.instruments.cost.drawings.memory import cost_memory
from protocol.instruments.cost.drawings.prefill import cost_prefill
from protocol.instruments.cost.drawings.throughput import cost_throughput
from protocol.instruments.cost.summary import MachineCosts, NothingMeasured, read_costs


def draw(folder: Path) -> tuple[Path, ...]:
    """Draw FOLDER/cost into FOLDER/figures. Raises RecordError before anything is written."""
    folder = Path(folder)
    measurements = read_costs(folder)
    judged = (page.read_judged(folder), read_study(folder)) if (folder / "verdict.json").exists() else ()
    return page.write_drawings(folder / "figures", drawings(measurements, *judged))


def drawings(
    measurements: Sequence[MachineCosts], judged: Mapping[str, Any] | None = None, study: Any = None
) -> list[tuple[Any, ...]]:
    """Return each applicable drawing with its data. study: from `study_files.read_study`, if judged."""
    drawing_calls: list[tuple[Any, ...]] = [(cost_throughput, measurements)]
    if any(row.seconds is not None for row in choose_measurement(measurements).rows):
        drawing_calls += [(cost_concurrency, measurements), (cost_prefill, measurements), (cost_memory, measurements)]
    if judged is not None and (places := timed_curves(judged, study.lanes, measurements)):
        drawing_calls.append((cost_frontier, judged, study.lock, places, measurements))
    return drawing_calls


def draw_with_study(folder: Path, judged: Mapping[str, Any], study: Any) -> list[tuple[Any, ...]]:
    """Return each applicable drawing of a judged study with its data; none if nothing was measured."""
    try:
        return drawings(read_costs(folder), judged, study)
    except NothingMeasured:
        return []


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "a registration with measured time and memory"}
    return run_command("draw-cost", __doc__, folder, draw, argv)


if __name__ == "__main__":
    sys.exit(main())
