"""Each registered contrast of a finished study by level: by length, by depth, by difficulty.

    kv-prereg by-level registrations/mine
    kv-prereg by-level registrations/mine --json

Levels are those that the lock names for the problems of a task. Accuracies of both arms, their difference and
its 95 % interval, of each contrast at each level alone; nothing is corrected and nothing decided.

Exit status: 0 printed; 2 no verdict yet, no task of the study has levels, or the folder cannot be read.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.explored.by_level import by_level
from analysis.output import told
from analysis.output.command import UNREADABLE, command
from analysis.output.told import points
from analysis.studies.contrasts import verdict
from analysis.studies.study_files import RecordError, read

__all__ = ["found"]

HEAD = ("model", "task", "budget", "subject", "against", "level")


def found(folder: Path) -> dict[str, Any]:
    """Return the report of FOLDER. Raises RecordError without a verdict or levels, or as `read_study` does.
    """
    folder = Path(folder)
    verdict(folder)
    study = read(folder)
    rows = by_level(study)
    if not rows:
        raise RecordError(f"{folder}: lock: items: no task has levels; there is nothing to tell apart")
    return {
        "name": study.lock["name"],
        "title": study.lock["protocol"]["content"]["title"],
        "contrasts": rows,
    }


def _text(made: Mapping[str, Any]) -> list[str]:
    head = (*HEAD, "n", "gains", "losses", "subject, %", "other, %", "points", "95 % interval")
    told_rows = told.columns(head, map(_cells, made["contrasts"]))
    return [made["title"], "Exploratory: each level alone, nothing corrected.", "", *told_rows]


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    counts = (str(row[name]) for name in ("n", "gains", "losses"))
    shares = (f"{100 * float(row[name]):.1f}" for name in ("own", "other"))
    told_ = ("", "") if row["difference"] is None else (_points(row, "difference"), _within(row))
    return (*(row[name] for name in HEAD), *counts, *shares, *told_)


def _points(row: Mapping[str, Any], name: str) -> str:
    return points(float(row[name]))


def _within(row: Mapping[str, Any]) -> str:
    return f"[{_points(row, 'low')}, {_points(row, 'high')}]"


def main(argv: Sequence[str] | None = None) -> int:
    path = {"folder": "a confirmed registration whose lock names levels"}
    return command("by-level", __doc__, path, found, UNREADABLE, argv, text=_text)


if __name__ == "__main__":
    sys.exit(main())
