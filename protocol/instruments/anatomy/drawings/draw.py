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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from figures.drawing import page
from protocol.formats.reading_command import run_command
from protocol.instruments.anatomy.analysis.traces import NothingLabelled
from protocol.instruments.anatomy.drawings.curve import anatomy_curve, anatomy_curves
from protocol.instruments.anatomy.drawings.heat_map import anatomy_map, map_blocks
from protocol.instruments.anatomy.drawings.labels import anatomy_labels, label_panels
from protocol.instruments.anatomy.drawings.trace import anatomy_trace, select_trace
from protocol.instruments.anatomy.drawings.trace_report import AnatomyReport, read_report


def draw(
    folder: Path, model: str | None = None, problem: str | None = None, budget: str | None = None
) -> tuple[Path, ...]:
    """Draw FOLDER/anatomy into FOLDER/figures. Raises RecordError before anything is written."""
    folder = Path(folder)
    return page.write_drawings(folder / "figures", drawings(read_report(folder), model, problem, budget))


def drawings(
    summary: AnatomyReport, model: str | None = None, problem: str | None = None, budget: str | None = None
) -> list[tuple[Any, ...]]:
    """Return each applicable drawing with its data. Raises RecordError for an unknown trace or budget."""
    drawing_calls: list[tuple[Any, ...]] = []
    if blocks := map_blocks(summary):
        drawing_calls.append((anatomy_map, summary, blocks))
    if page_of := select_trace(summary, model, problem, budget):
        drawing_calls.append((anatomy_trace, summary, page_of))
    if panels := label_panels(summary.anatomy):
        drawing_calls.append((anatomy_labels, summary, panels))
    if places := anatomy_curves(summary.anatomy):
        drawing_calls.append((anatomy_curve, summary, places))
    if not drawing_calls:
        states = ", ".join(sorted({trace.state for trace in summary.anatomy.traces}))
        raise NothingLabelled(f"traces: none was labelled (they ended as {states}), so there is nothing to draw")
    return drawing_calls


def draw_with_study(folder: Path, judged: Mapping[str, Any], study: Any) -> list[tuple[Any, ...]]:
    """Return each applicable drawing of a judged study with its data; none if nothing was labelled."""
    try:
        return drawings(read_report(folder))
    except NothingLabelled:
        return []


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "a registration with labelled traces"}
    options = {
        "model": "of the trace that is drawn",
        "problem": "of the trace that is drawn",
        "budget": "budget at which arms are shown next to that trace",
    }
    return run_command("draw-anatomy", __doc__, folder, draw, argv, options=options)


if __name__ == "__main__":
    sys.exit(main())
