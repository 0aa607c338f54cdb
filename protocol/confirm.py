"""Run a locked protocol on its held-out problems, once, and judge it by the committed rule.

    python -m protocol.confirm registrations/001-mine

Writes the claim before the first held-out problem is opened, records every cell, checks the lock again,
seals, then applies the rule, draws the forest plot and prints the verdict. Killed, it continues where it
stopped; finished, it is refused: whoever wants to run it again replicates it (python -m protocol.replicate).

Exit status: 0 CONFIRMED; 10 REFUTED; 11 INCONCLUSIVE; 12 DEVIATED; 2 bad input; 3 drifted or tampered; 4
already claimed.
"""

import sys
from pathlib import Path

from figures.table import verdict_table
from protocol import command, confirmation, judgement, progress
from protocol.evidence import seal, verdict
from protocol.evidence.refusals import AlreadyClaimed
from protocol.models import catalogue
from protocol.study import open_study


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("protocol.confirm", __doc__)
    command.folder(parser)
    args = parser.parse_args(argv)
    return command.answer(args.json, lambda: act(args.folder, args.json))


def act(folder: Path, as_json: bool) -> int:
    study = open_study(folder)
    if (folder / verdict.NAME).exists():
        raise AlreadyClaimed(
            f"{folder}: confirmed before; to run it again: python -m protocol.replicate {folder}"
        )
    if not (folder / seal.NAME).exists():
        with progress.display(f"confirm {folder.name}") as report:
            confirmation.confirm(study, catalogue.home(), report)
    result = judgement.judge_sealed(folder, study.lock)
    judged = result.judged
    paths = [str(path) for path in result.files]
    text = "\n".join([verdict_table(judged), "", *judgement.selected(judged), *paths])
    values = {"verdict": judged["verdict"], "files": paths, "lock": study.lock.digest}
    if "selected" in judged:
        values["selected"] = judged["selected"]["arm"]
    command.say(as_json, text, values)
    return command.STATUS[judged["verdict"]]


if __name__ == "__main__":
    sys.exit(main())
