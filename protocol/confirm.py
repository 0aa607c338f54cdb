"""Run a locked protocol on its held-out problems, once, and judge it by the committed rule.

    kv-prereg confirm registrations/001-mine
    kv-prereg confirm registrations/001-mine --value nonce.txt      with [randomness] (nonce, beacon)
    kv-prereg confirm registrations/001-mine --identity key.txt     with encrypted held-out problems

Runs the locked sources, unpacked into a temporary folder that is removed at the end (a killed run leaves it).
Writes the claim before the first held-out problem is opened, records every cell, checks the lock again
half-way and at the end, seals, then applies the rule, draws the forest plot and prints the verdict. Killed,
it continues where it stopped; finished, it is refused: whoever wants to run it again replicates it
(kv-prereg replicate).

Exit status: 0 CONFIRMED; 10 REFUTED; 11 INCONCLUSIVE, or SCREENED (too few problems); 12 DEVIATED; 2 bad
input; 3 drifted or tampered; 4 already claimed, withdrawn or amended; 5 with --require-anchor, the lock is
not anchored.
"""

import sys
from functools import partial
from pathlib import Path

from analysis.output.phases import phase
from protocol import command, witnesses
from protocol.acts import beforehand
from protocol.evidence.outside import anchors
from protocol.evidence.run.registration import SEAL, Registration
from protocol.locked import tree
from protocol.models import sources
from protocol.running.executors.settings import Place, chosen, options


class Options(command.Trust, Place):
    value: Path | None
    identity: Path | None


def main(argv: list[str] | None = None, *, enter: bool = False) -> int:
    parser = command.parser("protocol.confirm", __doc__)
    command.folder(parser)
    parser.add_argument(
        "--value", type=Path, metavar="FILE", help="the late value that the protocol registers"
    )
    command.identity(parser)
    command.trust(parser)
    options(parser)
    args = parser.parse_args(argv, namespace=Options())
    return command.answer(args.json, lambda: act(args, enter), resumes=True)


def act(args: Options, enter: bool) -> int:
    study, believed, settings = Registration(args.folder), command.trusted(args), chosen(args)
    block = partial(witnesses.drawn_from, study, args.headers)
    with phase(tree.words("checking the files of the study")):
        beforehand.confirm(study, args.value, block, args.identity)
        if args.require_anchor:
            anchors.require(anchors.verified(study, believed), ["lock"])
        if enter:
            tree.enter(study, "protocol.confirm")
    # Imported late: torch is slow, and --help and the refusals above do not need it.
    with phase(tree.words("loading torch", "loading torch, compiled anew")):
        from figures.canvas import numbers
        from figures.table import verdict_table
        from protocol.acts import confirm, judge
        from protocol.locked.study import open_study

    if not study.has(SEAL):
        confirm.confirm(open_study(study, sources.home()), args.value, block, args.identity, settings)
    result = judge.judge_sealed(study)
    judged = result.judged
    paths = [str(path) for path in result.files]
    word = anchors.word(anchors.verified(study, believed))
    apart, kept = judge.asked_apart(study, judged), judge.kept(study)
    beside = [*judge.selected(judged), *apart, *kept]
    lines = [verdict_table(judged, word), "", *beside, head(study), *paths]
    said = numbers.word(judged)
    values = {
        "verdict": judged["verdict"],
        "said": said,
        "anchors": word,
        "files": paths,
        "never_evicted": kept,
    }
    values["lock"] = study.lock.digest
    values |= {"asked_apart": apart} if apart else {}
    values |= {name: judged[name] for name in ("rule_says", "gate") if judged.get(name)}
    if "selected" in judged:
        values["selected"] = judged["selected"]["arm"]
    command.say(args.json, "\n".join(lines), values)
    return command.STATUS[judged["verdict"]]


def head(study: Registration) -> str:
    entries = study.anew().entries
    return f"ledger: {len(entries)} lines, head {entries[-1].sha256[:12]}"


if __name__ == "__main__":
    sys.exit(tree.run(main))
