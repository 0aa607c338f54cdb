"""Show each registered contrast of a finished study by level, such as length, depth or difficulty.

    kv-prereg by-level registrations/mine
    kv-prereg by-level registrations/mine --json

The lock names the levels of the problems of a task. Prints, for each contrast at each level, the accuracies of both
arms, their difference and its 95 % interval, without a correction. It decides nothing.

Exit status: 0 printed; 2 no verdict yet, no task of the study has levels, or the folder cannot be read.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.exploratory.level_contrasts import contrasts_by_level
from analysis.judgement.judged_folder import read_judged
from analysis.judgement.study_files import read_study
from analysis.judgement.untrusted_files import RecordError
from protocol.formats import text_tables
from protocol.formats.reading_command import run_command
from protocol.formats.text_tables import format_points

HEADINGS = ("model", "task", "budget", "subject", "against", "level")


def read_levels(folder: Path) -> dict[str, Any]:
    """Return the report of FOLDER. Raises RecordError without a verdict or levels, or as `read_study` does."""
    folder = Path(folder)
    read_judged(folder)
    study = read_study(folder)
    rows = contrasts_by_level(study)
    if not rows:
        raise RecordError(f"{folder}: lock: items: no task has levels, so that there are no levels to compare")
    return {"name": study.lock["name"], "title": study.lock["protocol"]["content"]["title"], "contrasts": rows}


def _format_report(report: Mapping[str, Any]) -> list[str]:
    head = (*HEADINGS, "n", "gains", "losses", "subject, %", "other, %", "points", "95 % interval")
    lines = text_tables.format_columns(head, map(_row_cells, report["contrasts"]))
    return [
        report["title"],
        "Exploratory: each level is tested alone, without a correction for multiple comparisons.",
        "",
        *lines,
    ]


def _row_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    counts = (str(row[name]) for name in ("n", "gains", "losses"))
    shares = (f"{100 * float(row[name]):.1f}" for name in ("own", "other"))
    if row["difference"] is None:
        return (*(row[name] for name in HEADINGS), *counts, *shares, "", "")
    points, low, high = (format_points(float(row[name])) for name in ("difference", "low", "high"))
    return (*(row[name] for name in HEADINGS), *counts, *shares, points, f"[{low}, {high}]")


def main(argv: Sequence[str] | None = None) -> int:
    path = {"folder": "folder of a confirmed registration whose lock names levels"}
    return run_command("by-level", __doc__, path, read_levels, argv, text=_format_report)


if __name__ == "__main__":
    sys.exit(main())
