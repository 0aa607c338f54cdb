"""Run a locked protocol on its development problems: look as often as you like, nothing is decided here.

    python -m protocol.probe registrations/001-mine

The locked sources run, unpacked into a temporary folder. Every registered cell runs on the dev split; the
first comparator runs twice (A/A), so that what varies without any change of policy is known. With a sweep its
candidates and its baseline run instead, and the committed rule selects which candidate confirm will run:
selection.json, written once; from then on nothing is run again. Interrupted, it continues; finished, it
prints the same table again.

Exit status: 0 done; 2 bad input, or a lane of a sweep has no grade (nothing is selected); 3 drifted; 4
another process is running it.
"""

import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protocol import command
from protocol.acts import select
from protocol.evidence.run import claim, ledger, probing, records
from protocol.locked import tree
from protocol.locked.study import Study, open_study, refuse_drift
from protocol.models import sources
from protocol.plan import grid
from protocol.plan.design import AGAIN
from protocol.running import phase, progress
from protocol.running.runner import Progress


def main(argv: list[str] | None = None, *, enter: bool = False) -> int:
    parser = command.parser("protocol.probe", __doc__)
    command.folder(parser)
    args = parser.parse_args(argv)

    def act() -> int:
        study, home = open_study(args.folder), sources.home()
        select.refuse_inherited(study)
        if not select.made(study):
            ledger.refuse_closed(study.folder)
        if enter:
            tree.enter(study.folder, study.lock, "protocol.probe")
        refuse_drift(study, home, with_weights=True)
        with claim.running(study.folder):
            if not select.made(study):
                with progress.display(f"probe {study.folder.name}") as report:
                    run(study, home, report)
            selected = select.select(study) if study.protocol.sweep else None
        bodies = [record["body"] for record in records.read(study.folder / records.FOLDERS["probe"])]
        rows = summary(bodies)
        parts, values = [table(rows)], {"arms": rows, "selected": selected}
        if selected is not None:
            parts += ["", select.table(selected)]
        command.say(args.json, "\n".join(parts), values)
        return 0

    return command.answer(args.json, act)


def run(study: Study, home: Path, report: Callable[[Progress], None]) -> None:
    probed = study.protocol.probed()
    attempt = probing.begin(study.folder)
    cells, problems = grid.cells(probed), study.development()
    phase.run(study, probed, cells, problems, home, phase="probe", attempt=attempt, report=report)
    probing.end(study.folder)


def summary(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per (model, task, budget, arm): problems, correct, failed, and for a repeat its discordance."""
    groups: dict[tuple[str, ...], dict[tuple[str, int], dict[str, Any]]] = defaultdict(dict)
    for body in bodies:
        cell = body["cell"]
        where = (cell["model"], cell["task"], cell["budget"], cell["arm"])
        groups[where][body["problem"], cell["seed"]] = body
    rows = []
    for (model, task, budget, arm), found in sorted(groups.items()):
        row: dict[str, Any] = {
            "model": model,
            "task": task,
            "budget": budget,
            "arm": arm,
            "lanes": len(found),
        }
        row["correct"] = sum(body["grade"] == "correct" for body in found.values())
        row["failed"] = sum(body["state"] == "failed" for body in found.values())
        if arm.endswith(AGAIN):
            first = groups[model, task, budget, arm.removesuffix(AGAIN)]
            row["discordant"] = sum(first[key]["text"] != body["text"] for key, body in found.items())
        rows.append(row)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["development split: for looking, not for claiming", ""]
    for row in rows:
        note = f"  {row['discordant']} texts differ from the first run" if "discordant" in row else ""
        note += f"  {row['failed']} failed" if row["failed"] else ""
        share = f"{row['correct']:>4}/{row['lanes']:<4} {row['correct'] / row['lanes']:>6.1%}"
        lines.append(f"{row['model']}  {row['task']:<22} {row['budget']:>6}  {row['arm']:<22} {share}{note}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(tree.run(main))
