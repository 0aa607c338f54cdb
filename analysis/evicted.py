"""Did it evict? What every arm of a study held, and by which of the ratios that papers print.

    kv-prereg evicted registrations/lossless-chain
    kv-prereg evicted registrations/lossless-chain --json

For each arm: events a lane that removed something, lanes that never evicted (there an arm is the full cache,
and its answers are no result about its policy), what it held by its registered budget, and each common
definition of a "ratio" side by side, sums over lanes by sums over lanes. Of a judged study it counts the
held-out problems, before that the development problems of its probe. Nothing of it decides anything.

Exit status: 0 printed, whatever was found; 2 there are no records to read, or the folder cannot be read.
"""

import sys
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from analysis.output import told
from analysis.output.command import UNREADABLE, command
from analysis.studies import arms, evicted
from analysis.studies.study_files import development, read

__all__ = ["found"]

PLACE = ("model", "task", "budget", "arm")


def found(folder: Path) -> dict[str, Any]:
    """Return the report of FOLDER. Raises RecordError as `study_files.read_study` does or, without a verdict,
    `study_files.read_development`.
    """
    folder = Path(folder)
    held_out = (folder / "verdict.json").exists()
    study = read(folder) if held_out else development(folder)
    content = study.lock["protocol"]["content"]
    recorded = evicted.bodies(folder / ("records" if held_out else "probe"))
    rows = evicted.counted(recorded, content)
    return {
        "name": study.lock["name"],
        "title": content["title"],
        "problems": "held out" if held_out else "development",
        "arms": [_decimals(row) for row in rows],
        "ratios": {name: ratio.words for name, ratio in evicted.RATIOS.items()},
        "warnings": evicted.warnings(rows, arms.unlike(study.lock)),
    }


def _decimals(value: Any) -> Any:
    """Convert fractions to floats, which are printed as decimals."""
    if isinstance(value, Mapping):
        return {name: _decimals(one) for name, one in value.items()}
    return float(value) if isinstance(value, Fraction) else value


def _text(made: Mapping[str, Any]) -> list[str]:
    arms = made["arms"]
    head = (
        *PLACE,
        "lanes",
        "never evicted",
        "events a lane",
        "least, most",
        "slots",
        *_spaced(evicted.OF_BUDGET),
    )
    lines = [made["title"], f"{made['problems']} problems; exploratory", "", *made["warnings"], ""]
    lines += told.columns(head, map(_counted, arms))
    lines += [
        "",
        "Events are those that removed something; shares are of the budget in slots. As ratios:",
        "",
    ]
    lines += told.columns((*PLACE, *made["ratios"]), map(_ratios, arms))
    return [*lines, "", *told.columns(("ratio", "is"), made["ratios"].items())]


def _counted(row: Mapping[str, Any]) -> tuple[str, ...]:
    events = row["events"]
    share = f"{100 * row['never'] / row['lanes']:.0f} %"
    return (
        *(row[name] for name in PLACE),
        str(row["lanes"]) + (f" ({row['failed']} failed)" if row["failed"] else ""),
        "by design" if row["slots"] is None else f"{row['never']} ({share})",
        f"{float(events['mean']):.1f}",
        f"{events['least']}, {events['most']}",
        "" if row["slots"] is None else f"{float(row['slots']):.1f}",
        *map(_share, row["of_budget"].values()),
    )


def _ratios(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (*(row[name] for name in PLACE), *map(_share, row["ratios"].values()))


def _share(decimal: str | None) -> str:
    return "" if decimal is None else f"{float(decimal):.3f}"


def _spaced(names: Mapping[str, Any]) -> list[str]:
    return [name.replace("_", " ") for name in names]


def main(argv: Sequence[str] | None = None) -> int:
    path = {"folder": "a probed or confirmed registration, e.g. registrations/lossless-chain"}
    return command("evicted", __doc__, path, found, UNREADABLE, argv, text=_text)


if __name__ == "__main__":
    sys.exit(main())
