"""Draw everything that applies to a judged study.

    kv-prereg draw registrations/quickstart

Writes figures/forest, accuracy, budget_curve (if arms ran at two budgets or more), settings_map (if arms
form a grid over two settings), needle (if a needle task ran), looks (if any are registered), levels (if
the lock names the level of each problem), divergence (if the outcome is agreement), ablation (if the subject
is compared with variants of itself) and, if arms were compressed while decoding, cost_curve, trajectories and
collapse (also as .md); and the drawings of instruments, such as measured time and memory: each as .svg and .png,
into the same folder. The same verdict and records give the same bytes with one version of matplotlib.
Exit status: 0 drawn; 2 there is no verdict to draw, or its records cannot be read.
"""

import contextlib
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from analysis.exploratory.settings_grid import NoGrid
from analysis.judgement import outside_runs
from analysis.judgement.study_files import read_study
from analysis.judgement.study_table import Study
from figures.drawing import formatting, page
from figures.drawing.memory_traces import read_traces
from figures.plots.ablation import ablation, is_ablation
from figures.plots.accuracy import accuracy
from figures.plots.budget_curve import budget_curve, budget_curves
from figures.plots.collapse import collapse, count_endings, format_markdown
from figures.plots.cost_curve import cost_curve, decoding_costs
from figures.plots.divergence import divergence, read_divergences
from figures.plots.forest import forest
from figures.plots.levels import accuracy_by_level, levels
from figures.plots.looks import looks
from figures.plots.needle import needle, needle_cells
from figures.plots.settings_map import settings_map, settings_panels
from figures.plots.trajectories import trajectories
from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.progress_display import phase
from protocol.formats.reading_command import run_command
from protocol.formats.registry import load_attribute


def draw(folder: Path, witness: str = formatting.WITNESS, to: Path | None = None) -> tuple[Path, ...]:
    """Draw FOLDER/verdict.json and FOLDER/records into FOLDER/figures, or into `to`/figures.

    witness: as for `page.judged`.

    Raises NoVerdict and `analysis.judgement.untrusted_files.RecordError`, before anything is written.
    """
    folder = Path(folder)
    judged, study = page.read_judged(folder, witness), read_study(folder)
    drawings = list_drawings(folder, judged, study)
    target = (to or folder) / "figures"
    written = list[Path]()
    for drawing, *data in [(forest, judged), *drawings]:
        with phase(f"drawing {drawing.__name__}"):
            written += page.write_drawing(target, drawing, *data)
    if answers := [data for drawing, _, *data in drawings if drawing is collapse]:
        written.append(target / "collapse.md")
        written[-1].write_text(format_markdown(judged, *answers[0]), "utf-8")
    return tuple(written)


def list_drawings(folder: Path, judged: Mapping[str, Any], study: Study) -> list[tuple[Any, ...]]:
    """Return every drawing that applies beside the forest, each with its data."""
    drawings: list[tuple[Any, ...]] = [(accuracy, judged, study.lanes)]
    if any(look["contrasts"] for look in judged.get("looks", {}).get("path", ())):
        drawings.append((looks, judged))
    if outside_runs.is_outside(study.lock):  # the others are of budgets, memory and texts
        return drawings
    if curve_points := budget_curves(judged, study.lock, study.lanes):
        drawings.append((budget_curve, judged, study.lock, curve_points))
    arms = read_traces(folder, study.lock)
    answers = count_endings(study.lanes) if any(arm.events for arm in arms) else []
    if answers:
        drawings.append((cost_curve, judged, study.lock, decoding_costs(judged, study.lanes)))
    with contextlib.suppress(NoGrid):
        drawings.append((settings_map, judged, study.lock, *settings_panels(study.lock, study.lanes)))
    if depths := needle_cells(study.lock, study.lanes):
        drawings.append((needle, judged, depths))
    if cells := accuracy_by_level(study.lock, study.lanes):
        drawings.append((levels, judged, cells))
    if divergences := read_divergences(folder, study.lock):
        drawings.append((divergence, judged, divergences))
    if is_ablation(judged, study.lock):
        drawings.append((ablation, judged, study.lock))
    if answers:
        drawings.append((trajectories, judged, arms))
        if not formatting.compares_agreement(judged["contrasts"]):
            drawings.append((collapse, judged, answers))
    for instrument in INSTRUMENTS:
        drawings += load_attribute(instrument.draw)(folder, judged, study) if instrument.draw else ()
    return drawings


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "folder of a confirmed registration, e.g. registrations/quickstart"}
    return run_command("draw", __doc__, folder, partial(page.draw_supported, draw), argv)


if __name__ == "__main__":
    sys.exit(main())
