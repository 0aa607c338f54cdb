"""Show whether each arm evicted, how much memory it used, and the ratios that papers print for that.

    kv-prereg evicted registrations/lossless-chain
    kv-prereg evicted registrations/lossless-chain --json

Prints for each arm: eviction steps per lane that removed a slot; lanes that never evicted (in these the arm is the
full cache, so that its answers are not a result about its policy); its memory relative to the registered budget; and
each common definition of a "ratio" side by side, as a sum over lanes divided by a sum over lanes. For a judged study
it counts the held-out problems, and before that the development problems of the probe. It decides nothing.

Exit status: 0 printed, whatever the result; 2 there are no records to read, or the folder cannot be read.
"""

import sys
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from analysis.judgement import arm_text, eviction_counts, untrusted_files
from analysis.judgement.outside_runs import refuse_outside
from analysis.judgement.study_files import read_development, read_study
from protocol.formats import text_tables
from protocol.formats.reading_command import run_command

CELL_COLUMNS = ("model", "task", "budget", "arm")


def read_evictions(folder: Path) -> dict[str, Any]:
    """Return the report of FOLDER. Raises RecordError as `study_files.read_study` does or, without a verdict,
    `study_files.read_development`.
    """
    folder = Path(folder)
    is_judged = (folder / "verdict.json").exists()
    study = read_study(folder) if is_judged else read_development(folder)
    refuse_outside(folder, study.lock)
    content = study.lock["protocol"]["content"]
    recorded = untrusted_files.read_bodies(folder / ("records" if is_judged else "probe"))
    rows = eviction_counts.count_arms(recorded, content)
    return {
        "name": study.lock["name"],
        "title": content["title"],
        "problems": "held out" if is_judged else "development",
        "arms": [_fractions_to_floats(row) for row in rows],
        "ratios": {name: ratio.text for name, ratio in eviction_counts.RATIOS.items()},
        "warnings": eviction_counts.eviction_warnings(rows, arm_text.altered_arms(study.lock)),
    }


def _fractions_to_floats(value: Any) -> Any:
    """Convert fractions to floats, which are printed as decimals."""
    if isinstance(value, Mapping):
        return {name: _fractions_to_floats(member) for name, member in value.items()}
    return float(value) if isinstance(value, Fraction) else value


def _format_report(report: Mapping[str, Any]) -> list[str]:
    arms = report["arms"]
    head = (
        *CELL_COLUMNS,
        "lanes",
        "never evicted",
        "events per lane",
        "least, most",
        "slots",
        *(name.replace("_", " ") for name in eviction_counts.OF_BUDGET),
    )
    lines = [report["title"], f"{report['problems']} problems; exploratory", "", *report["warnings"], ""]
    lines += text_tables.format_columns(head, map(_count_cells, arms))
    lines += [
        "",
        ("Only events that removed a slot are counted; shares are fractions of the budget in slots. As ratios:"),
        "",
    ]
    ratios = [(*(row[name] for name in CELL_COLUMNS), *map(_format_share, row["ratios"].values())) for row in arms]
    lines += text_tables.format_columns((*CELL_COLUMNS, *report["ratios"]), ratios)
    return [*lines, "", *text_tables.format_columns(("ratio", "is"), report["ratios"].items())]


def _count_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    events = row["events"]
    share = f"{100 * row['never'] / row['lanes']:.0f} %"
    return (
        *(row[name] for name in CELL_COLUMNS),
        str(row["lanes"]) + (f" ({row['failed']} failed)" if row["failed"] else ""),
        "by design" if row["slots"] is None else f"{row['never']} ({share})",
        f"{float(events['mean']):.1f}",
        f"{events['least']}, {events['most']}",
        "" if row["slots"] is None else f"{float(row['slots']):.1f}",
        *map(_format_share, row["of_budget"].values()),
    )


def _format_share(decimal: str | None) -> str:
    return "" if decimal is None else f"{float(decimal):.3f}"


def main(argv: Sequence[str] | None = None) -> int:
    path = {"folder": "folder of a probed or confirmed registration, e.g. registrations/lossless-chain"}
    return run_command("evicted", __doc__, path, read_evictions, argv, text=_format_report)


if __name__ == "__main__":
    sys.exit(main())
