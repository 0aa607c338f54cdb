"""Run a confirmed study again, as a new registration of your own.

    python -m protocol.replicate registrations/quickstart

Registers a child in replications/ (parent's digest, your environment, your claim), confirms it on the same
held-out problems (with [randomness]: drawn anew), from the sources that it locked, and says whether it
agrees with its parent. The winner of a sweep is the parent's: a replication does not probe again. An
interrupted replication is continued by the same command.

Exit status: that of the child's verdict: 0 CONFIRMED; 10 REFUTED; 11 INCONCLUSIVE; 2 bad input; 3 drifted or
tampered.
"""

import argparse
import shutil
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from figures.table import verdict_table
from protocol import command
from protocol.acts import confirm, judge
from protocol.acts.register import register
from protocol.evidence.audit.standing import PROTOCOL
from protocol.evidence.lock import lock
from protocol.evidence.refusals import BadInput, Drifted, Tampered
from protocol.evidence.run import late_randomness, ledger, records, seal, selection, verdict
from protocol.locked import tree
from protocol.locked.study import Study, open_study, refuse_drift
from protocol.models import sources
from protocol.running import progress


def main(argv: list[str] | None = None, *, enter: bool = False) -> int:
    parser = command.parser("protocol.replicate", __doc__)
    command.folder(parser)
    parser.add_argument(
        "--value", type=Path, metavar="FILE", help="the late value of the replication, if one is registered"
    )
    parser.add_argument(
        "--identity", type=Path, metavar="FILE", help="the private key (age, ssh) of encrypted problems"
    )
    parser.add_argument("--headers", type=Path, metavar="FOLDER", help="more headers of Bitcoin blocks")
    args = parser.parse_args(argv)
    return command.answer(args.json, lambda: act(args, enter=enter))


def act(args: argparse.Namespace, *, enter: bool = False) -> int:
    folder: Path = args.folder
    parent = open_study(folder)
    if not (folder / verdict.NAME).exists():
        raise BadInput(f"{folder}: has no verdict to agree with; first: python -m protocol.confirm {folder}")
    if verdict.word(verdict.read(folder)) == "DEVIATED":
        raise BadInput(f"{folder}: DEVIATED from what was registered; register its question anew instead")
    home = sources.home()
    child = standing(parent) or unfinished(parent, home) or new(parent, home)
    if child.protocol.sweep is not None:
        selection.adopt(child.folder, parent.folder, child.lock)
    if enter:
        tree.enter(child.folder, child.lock, "protocol.replicate")
    if not (child.folder / seal.NAME).exists():
        block = partial(confirm.block, child.folder, args.headers)
        with progress.display(f"replicate {parent.folder.name}") as report:
            confirm.confirm(child, home, report, args.value, block, args.identity)
    result = judge.judge_sealed(child.folder, child.lock)
    compared = compare(parent.folder, child.folder, result.judged)
    paths = [str(path) for path in result.files]
    text = "\n".join(
        [
            verdict_table(result.judged),
            "",
            words(parent, compared),
            "",
            *judge.selected(result.judged),
            *paths,
        ]
    )
    values = {"verdict": result.judged["verdict"], "files": paths, "parent": parent.lock.digest, **compared}
    command.say(args.json, text, values)
    return command.STATUS[result.judged["verdict"]]


def shelf(parent: Study) -> Path:
    """Where the replications of `parent` stand: beside the folder that holds it."""
    return parent.folder.resolve().parent.parent / "replications"


def children(parent: Study) -> list[Path]:
    """Earlier replications of `parent`, oldest first."""
    return sorted(shelf(parent).glob(f"{parent.folder.resolve().name}-[0-9][0-9][0-9]"))


def standing(parent: Study) -> Study | None:
    """The replication whose locked tree this process runs; None in a working tree."""
    if (digest := tree.held()) is None:
        return None
    for folder in children(parent):
        if (folder / lock.NAME).exists() and lock.read(folder).digest == digest:
            return open_study(folder)
    raise Tampered(f"{shelf(parent)}: has no replication of the lock {digest[:12]} any more; start again")


def unfinished(parent: Study, home: Path) -> Study | None:
    """The newest replication, if it has no verdict yet and today's bytes are still those it locked."""
    for folder in children(parent)[-1:]:
        if (folder / lock.NAME).exists() and not (folder / ledger.NAME).exists():
            register(folder, home)  # completes what a crash cut off
        ended = (folder / ledger.NAME).exists() and ledger.closing(ledger.read(folder))
        if (folder / lock.NAME).exists() and not ended:
            child = open_study(folder)
            try:
                refuse_drift(child, home, with_weights=False)
            except Drifted as drift:
                print(f"leaving {folder}: {drift}", file=sys.stderr)
                return None
            return child if child.lock.content["parent"]["lock"] == parent.lock.digest else None
    return None


def new(parent: Study, home: Path) -> Study:
    """Register the next replication. A refusal leaves no folder behind."""
    name = parent.folder.resolve().name
    number = max((int(path.name[-3:]) for path in children(parent)), default=0) + 1
    folder = shelf(parent) / f"{name}-{number:03d}"
    chosen = selection.digest(parent.folder, parent.lock)
    folder.mkdir(parents=True)
    try:
        shutil.copyfile(parent.folder / PROTOCOL, folder / PROTOCOL)
        register(folder, home, parent={"name": name, "lock": parent.lock.digest, **chosen})
    except BaseException:
        if not (folder / lock.NAME).exists():
            shutil.rmtree(folder)
            with suppress(OSError):  # other replications stand there
                folder.parent.rmdir()
        raise
    return open_study(folder)


def compare(parent: Path, child: Path, judged: dict[str, Any]) -> dict[str, Any]:
    """Same verdict? How many lanes gave the same text, and how many the same grade? With late randomness
    these are not asked: the child's seeds and generated problems are its own.
    """
    before = verdict.read(parent).content["judged"]["verdict"]
    agreed = {"agrees": before == judged["verdict"], "parent_verdict": before}
    if late_randomness.FIELD in lock.read(child).content["protocol"]["content"]:
        return agreed
    first, again = (
        {
            records.key(record["body"]): record["body"]
            for record in records.read(folder / records.FOLDERS["confirm"])
        }
        for folder in (parent, child)
    )
    return agreed | {
        "lanes": len(first),
        "same_text": sum(first[key]["text"] == again[key]["text"] for key in first),
        "same_grade": sum(first[key]["grade"] == again[key]["grade"] for key in first),
    }


def words(parent: Study, compared: dict[str, Any]) -> str:
    verb = "agrees with" if compared["agrees"] else "DISAGREES with"
    if "lanes" not in compared:
        return (
            f"This replication {verb} {parent.folder.name} ({compared['parent_verdict']}), with seeds and "
            "generated problems drawn anew: single answers are not compared."
        )
    return (
        f"This replication {verb} {parent.folder.name} ({compared['parent_verdict']}): "
        f"{compared['same_text']} of {compared['lanes']} lanes gave the same text, "
        f"{compared['same_grade']} the same grade."
    )


if __name__ == "__main__":
    sys.exit(tree.run(main))
