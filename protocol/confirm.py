"""Run a locked protocol on its held-out problems, once, and judge it by the committed rule.

    python -m protocol.confirm registrations/001-mine
    python -m protocol.confirm registrations/001-mine --value nonce.txt      with [randomness] (nonce, beacon)
    python -m protocol.confirm registrations/001-mine --identity key.txt     with encrypted held-out problems

Runs the locked sources, unpacked into a temporary folder that is removed at the end (a killed run leaves it).
Writes the claim before the first held-out problem is opened, records every cell, checks the lock again
half-way and at the end, seals, then applies the rule, draws the forest plot and prints the verdict. Killed,
it continues where it stopped; finished, it is refused: whoever wants to run it again replicates it
(python -m protocol.replicate).

Exit status: 0 CONFIRMED; 10 REFUTED; 11 INCONCLUSIVE; 12 DEVIATED; 2 bad input; 3 drifted or tampered; 4
already claimed, withdrawn or amended; 5 with --require-anchor, the lock is not anchored.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from figures.table import verdict_table
from protocol import command
from protocol.evidence.audit import amendment
from protocol.evidence.lock import lock
from protocol.evidence.outside import anchors
from protocol.evidence.run import ledger, seal
from protocol.locked import tree
from protocol.models import sources


def main(argv: list[str] | None = None, *, enter: bool = False) -> int:
    parser = command.parser("protocol.confirm", __doc__)
    command.folder(parser)
    parser.add_argument(
        "--value", type=Path, metavar="FILE", help="the late value that the protocol registers"
    )
    parser.add_argument(
        "--identity", type=Path, metavar="FILE", help="the private key (age, ssh) of encrypted problems"
    )
    command.trust(parser)
    args = parser.parse_args(argv)
    return command.answer(args.json, lambda: act(args, enter=enter))


def act(args: argparse.Namespace, *, enter: bool = False) -> int:
    folder, believed = args.folder, command.trusted(args)
    locked = lock.read(folder)
    ledger.refuse_closed(folder)
    amendment.refuse_open(folder, locked)
    if args.require_anchor:
        anchors.require(anchors.verified(folder, believed), ["lock"])
    if enter:
        tree.enter(folder, locked, "protocol.confirm")
    # With torch, which --help and every refusal above do without.
    from protocol.acts import confirm, judge
    from protocol.locked.study import open_study
    from protocol.running import progress

    study = open_study(folder)
    if not (folder / seal.NAME).exists():
        with progress.display(f"confirm {folder.name}") as report:
            confirm.confirm(
                study,
                sources.home(),
                report,
                args.value,
                partial(confirm.block, folder, args.headers),
                args.identity,
            )
    result = judge.judge_sealed(folder, study.lock)
    judged = result.judged
    paths = [str(path) for path in result.files]
    word = anchors.word(anchors.verified(folder, believed))
    text = "\n".join([verdict_table(judged, word), "", *judge.selected(judged), head(folder), *paths])
    values = {"verdict": judged["verdict"], "anchors": word, "files": paths, "lock": study.lock.digest}
    if "selected" in judged:
        values["selected"] = judged["selected"]["arm"]
    command.say(args.json, text, values)
    return command.STATUS[judged["verdict"]]


def head(folder: Path) -> str:
    tip = ledger.head(folder)
    return f"ledger: {tip['count']} lines, head {tip['head'][:12]}"


if __name__ == "__main__":
    sys.exit(tree.run(main))
