"""Draw the anatomy of a study: which tokens its answers needed, and what signals and arms knew of it.

    kv-prereg draw-anatomy registrations/anatomy-chain
    kv-prereg draw-anatomy registrations/anatomy-chain --problem chain/06/003 --budget 96

Writes figures/anatomy_map (correlation of every signal of every layer with the labels), anatomy_trace (one
trace, and what each arm kept of it), anatomy_labels (where needed tokens lie) and anatomy_curve (accuracy at
the cut, with the oracle), each as .svg and .png, into the same folder. The trace is the first whose labels
vary, at the smallest budget, unless another is named. docs/anatomy.md says what each may be taken for.
Exit status: 0 drawn; 2 no trace was labelled, no such trace, or the files cannot be read.
"""

import sys
from pathlib import Path
from typing import Any

from analysis.anatomy.reading import NothingLabelled
from analysis.output.command import command
from analysis.studies.study_files import RecordError
from figures.canvas import page
from figures.canvas.anatomies import Told, told
from figures.plots.anatomy.curve import anatomy_curve, curves
from figures.plots.anatomy.heat_map import anatomy_map, mapped
from figures.plots.anatomy.labels import anatomy_labels, placed
from figures.plots.anatomy.trace import anatomy_trace, traced

__all__ = ["draw", "drawings"]


def draw(
    folder: Path, model: str | None = None, problem: str | None = None, budget: str | None = None
) -> tuple[Path, ...]:
    """Draw FOLDER/anatomy into FOLDER/figures. Raises RecordError before anything is written."""
    folder = Path(folder)
    drawn: list[Path] = []
    for drawing, *data in drawings(told(folder), model, problem, budget):
        drawn += page.write(folder / "figures", drawing, *data)
    return tuple(drawn)


def drawings(
    one: Told, model: str | None = None, problem: str | None = None, budget: str | None = None
) -> list[tuple[Any, ...]]:
    """Return each applicable drawing with its data. Raises RecordError for an unknown trace or budget."""
    made: list[tuple[Any, ...]] = []
    if blocks := mapped(one):
        made.append((anatomy_map, one, blocks))
    if page_of := traced(one, model, problem, budget):
        made.append((anatomy_trace, one, page_of))
    if panels := placed(one.anatomy):
        made.append((anatomy_labels, one, panels))
    if places := curves(one.anatomy):
        made.append((anatomy_curve, one, places))
    if not made:
        states = ", ".join(sorted({trace.state for trace in one.anatomy.traces}))
        raise NothingLabelled(
            f"traces: none was labelled (they ended as {states}), so that there is nothing to draw"
        )
    return made


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "a registration with labelled traces"}
    options = {
        "model": "of the trace that is drawn",
        "problem": "of the trace that is drawn",
        "budget": "at which arms are shown beside that trace",
    }
    return command("draw-anatomy", __doc__, folder, draw, RecordError, argv, options=options)


if __name__ == "__main__":
    sys.exit(main())
