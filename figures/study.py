"""Draw everything that applies to a judged study.

    kv-prereg draw registrations/quickstart

Writes figures/forest, accuracy, budget_curve (where arms ran at two budgets or more), settings_map (where
arms form a grid over two settings), needle (where a needle task ran), levels (where the ids of problems name
a level), ablation (where the subject is compared with variants of itself) and, where arms were compressed
while decoding, cost_curve, trajectories and collapse (also as .md); what `kv-prereg draw-cost` draws of
measured time and memory, and `kv-prereg draw-anatomy` of labelled traces: each as .svg and .png, into the
same folder; and forest-narrow.svg, the forest for a screen of 390 pixels. The same verdict and records give
the same bytes with one version of matplotlib.
Exit status: 0 drawn; 2 there is no verdict to draw, or its records cannot be read.
"""

import contextlib
import sys
from pathlib import Path
from typing import Any

from analysis.anatomy.reading import NothingLabelled
from analysis.explored.cost import NothingMeasured, measured
from analysis.explored.settings_grid import NoGrid
from analysis.output.command import command
from analysis.output.phases import phase
from analysis.studies.study_files import RecordError, read
from figures.anatomy import drawings as of_anatomy
from figures.canvas import numbers, page
from figures.canvas.anatomies import told
from figures.canvas.traces import traces
from figures.cost import drawings as of_cost
from figures.plots.ablation import ablation, variants
from figures.plots.accuracy import accuracy
from figures.plots.budget_curve import budget_curve, curves
from figures.plots.collapse import collapse, endings, markdown
from figures.plots.cost_curve import cost_curve, costs
from figures.plots.forest import forest
from figures.plots.forest_narrow import forest_narrow
from figures.plots.levels import levelled, levels
from figures.plots.needle import needle, placed
from figures.plots.settings_map import mapped, settings_map
from figures.plots.trajectories import trajectories

__all__ = ["draw"]


def draw(folder: Path, witness: str = numbers.WITNESS, to: Path | None = None) -> tuple[Path, ...]:
    """Draw FOLDER/verdict.json and FOLDER/records into FOLDER/figures, or into `to`/figures.

    witness: as for `page.judged`.

    Raises NoVerdict and `analysis.judgement.study_files.RecordError`, before anything is written.
    """
    folder = Path(folder)
    judged, study = page.judged(folder, witness), read(folder)
    drawings: list[tuple[Any, ...]] = [(accuracy, study.lanes)]
    if places := curves(judged, study.lock, study.lanes):
        drawings.append((budget_curve, study.lock, places))
    arms = traces(folder, study.lock)
    answers = endings(study.lanes) if any(arm.events for arm in arms) else []
    if answers:
        drawings.append((cost_curve, study.lock, costs(judged, study.lanes)))
    with contextlib.suppress(NoGrid):
        drawings.append((settings_map, study.lock, *mapped(study.lock, study.lanes)))
    if depths := placed(study.lanes):
        drawings.append((needle, depths))
    if cells := levelled(study.lanes):
        drawings.append((levels, cells))
    if variants(judged, study.lock):
        drawings.append((ablation, study.lock))
    if answers:
        drawings += [(trajectories, arms), (collapse, answers)]
    target = (to or folder) / "figures"
    with phase("drawing forest"):
        drawn = [*page.write(target, forest, judged)]
        drawn += page.write(target, forest_narrow, judged, name="forest-narrow", png=False)
    for drawing, *data in drawings:
        with phase(f"drawing {drawing.__name__}"):
            drawn += page.write(target, drawing, judged, *data)
    with contextlib.suppress(NothingMeasured):
        for drawing, *data in of_cost(measured(folder), judged, study):
            with phase(f"drawing {drawing.__name__}"):
                drawn += page.write(target, drawing, *data)
    with contextlib.suppress(NothingLabelled):
        for drawing, *data in of_anatomy(told(folder)):
            with phase(f"drawing {drawing.__name__}"):
                drawn += page.write(target, drawing, *data)
    if answers:
        drawn.append(target / "collapse.md")
        drawn[-1].write_text(markdown(judged, answers), "utf-8")
    return tuple(drawn)


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "a confirmed registration, e.g. registrations/quickstart"}
    return command("draw", __doc__, folder, draw, (page.NoVerdict, RecordError), argv)


if __name__ == "__main__":
    sys.exit(main())
