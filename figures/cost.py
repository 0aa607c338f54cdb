"""Draw measured time and memory.

    kv-prereg draw-cost registrations/001-mine

Writes figures/cost_throughput, cost_prefill, cost_memory and cost_concurrency, a projection, each as .svg and
.png, into the same folder; and, where the study is judged, cost_frontier: its accuracy against these seconds.
Of several machines one is drawn, for they are never mixed. docs/cost.md says what each shows.
Exit status: 0 drawn; 2 nothing was measured, or the files cannot be read.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.explored.cost import Measured, measured
from analysis.output.command import command
from analysis.studies.study_files import RecordError, read
from figures.canvas import page
from figures.canvas.measured import chosen
from figures.plots.cost_concurrency import cost_concurrency
from figures.plots.cost_frontier import cost_frontier, timed
from figures.plots.cost_memory import cost_memory
from figures.plots.cost_prefill import cost_prefill
from figures.plots.cost_throughput import cost_throughput

__all__ = ["draw", "drawings"]


def draw(folder: Path) -> tuple[Path, ...]:
    """Draw FOLDER/cost into FOLDER/figures. Raises RecordError before anything is written."""
    folder = Path(folder)
    found = measured(folder)
    judged = (page.judged(folder), read(folder)) if (folder / "verdict.json").exists() else ()
    drawn: list[Path] = []
    for drawing, *data in drawings(found, *judged):
        drawn += page.write(folder / "figures", drawing, *data)
    return tuple(drawn)


def drawings(
    found: Sequence[Measured], judged: Mapping[str, Any] | None = None, study: Any = None
) -> list[tuple[Any, ...]]:
    """Return each applicable drawing with its data. study: from `study_files.read_study`, if judged."""
    made: list[tuple[Any, ...]] = [(cost_throughput, found)]
    if any(row.seconds is not None for row in chosen(found).rows):
        made += [(cost_concurrency, found), (cost_prefill, found), (cost_memory, found)]
    if judged is not None and (places := timed(judged, study.lanes, found)):
        made.append((cost_frontier, judged, study.lock, places, found))
    return made


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "a registration with measured time and memory"}
    return command("draw-cost", __doc__, folder, draw, (page.NoVerdict, RecordError), argv)


if __name__ == "__main__":
    sys.exit(main())
