"""Draw accuracy over two settings of a policy as a heat map, for each model, task and budget.

    kv-prereg settings-map registrations/lrfu-grid
    kv-prereg settings-map registrations/lrfu-grid --rows scoring.p --columns scoring.decay

The cells are the arms that differ only in two settings. The settings are detected, or given by their names in the
lock. For a judged study it draws the held-out problems, and before that the development problems of the probe.
Writes figures/settings_map.svg and .png into the folder.
Exit status: 0 drawn; 2 the arms form no grid (it says what varies), or there are no records to read.
"""

import sys
from pathlib import Path

from analysis.judgement.study_files import read_development, read_study
from figures.drawing import page
from figures.plots.settings_map import settings_map, settings_panels
from protocol.formats.reading_command import run_command


def draw(folder: Path, rows: str | None = None, columns: str | None = None) -> tuple[Path, ...]:
    """Draw FOLDER/figures/settings_map.svg and .png. rows, columns: paths of settings.

    Raises NoGrid, NoVerdict for a verdict that cannot be read, and RecordError.
    """
    folder = Path(folder)
    judged = page.read_judged(folder) if (folder / "verdict.json").exists() else None
    study = read_development(folder) if judged is None else read_study(folder)
    data = study.lock, *settings_panels(study.lock, study.lanes, rows, columns)
    return page.write_drawing(folder / "figures", settings_map, judged, *data)


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "folder of a probed or confirmed registration, e.g. registrations/lrfu-grid"}
    options = {
        "rows": "path of the setting whose values form the rows, e.g. scoring.p",
        "columns": "path of the setting whose values form the columns",
    }
    return run_command("settings-map", __doc__, folder, draw, argv, options=options)


if __name__ == "__main__":
    sys.exit(main())
