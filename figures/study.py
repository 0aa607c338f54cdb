"""Draw everything that applies to a judged study.

    python -m figures.study registrations/quickstart

Writes figures/forest, accuracy, needle (where a needle task ran), levels (where the ids of problems name a
level), ablation (where the subject is compared with variants of itself) and, where arms were compressed
while decoding, trajectories and collapse (also as .md), each as .svg and .png, into the same folder. The
same verdict and records give the same bytes with one version of matplotlib.
Exit status: 0 drawn; 2 there is no verdict to draw, or its records cannot be read.
"""

import sys
from pathlib import Path
from typing import Any

from analysis.studies.study_files import RecordError, read
from figures.canvas import page
from figures.canvas.page import NoVerdict
from figures.canvas.traces import traces
from figures.command import command
from figures.forest import forest
from figures.plots import collapse
from figures.plots.ablation import ablation, variants
from figures.plots.accuracy import accuracy
from figures.plots.levels import levelled, levels
from figures.plots.needle import needle, placed
from figures.plots.trajectories import trajectories

__all__ = ["draw"]


def draw(folder: Path) -> tuple[Path, ...]:
    """Draw FOLDER/verdict.json and FOLDER/records into FOLDER/figures.

    Raises NoVerdict and `analysis.studies.study_files.RecordError`, before anything is written.
    """
    folder = Path(folder)
    judged, study = page.judged(folder), read(folder)
    drawings: dict[str, tuple[Any, ...]] = {
        "forest": (forest, judged),
        "accuracy": (accuracy, judged, study.lanes),
    }
    cells = placed(study.lanes)
    if cells:
        drawings["needle"] = needle, judged, cells
    by_level = levelled(study.lanes)
    if by_level:
        drawings["levels"] = levels, judged, by_level
    if variants(judged, study.lock):
        drawings["ablation"] = ablation, judged, study.lock
    held = traces(folder, study.lock)
    decoded = any(one.events for one in held)
    if decoded:
        drawings["trajectories"] = trajectories, judged, held
    target = folder / "figures"
    drawn = [
        path
        for name, (drawing, *data) in drawings.items()
        for path in page.write(target, name, drawing, *data)
    ]
    if decoded:
        drawn += collapse.write(target, judged, collapse.ended(study.lanes))
    return tuple(drawn)


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "a confirmed registration, e.g. registrations/quickstart"}
    return command("figures.study", __doc__, folder, draw, (NoVerdict, RecordError), argv)


if __name__ == "__main__":
    sys.exit(main())
