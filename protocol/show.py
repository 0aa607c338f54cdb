"""Look at one problem: what eviction did to its answers, arm by arm.

    kv-prereg show registrations/alpha-chain                 the problems on which arms differ most
    kv-prereg show registrations/alpha-chain --problem chain/14/001                  one of them
    kv-prereg show registrations/alpha-chain --problem chain/14/001 --arm 1d --kept  what 1d kept
    kv-prereg show registrations/alpha-chain --problem chain/14/001 --html problem.html

The prompt, the full cache's answer, and beside it that of every arm from the word at which the two part, its
grade, its tokens and its slots over time. All of this is read from the records. Which tokens an arm kept is
not in them: --kept decodes the lanes again, and says whether they gave the recorded text. Held-out problems
are shown once the study is judged; those of its probe are shown with --phase probe. Nothing is verified but
the lines that are read: kv-prereg audit verifies.

Of several models, seeds and budgets the first is shown, and the others are named; with --arm all budgets.

Exit status: 0 shown; 2 refused: no verdict, no such problem, or what --kept needs is not here; 3 the records
do not verify.
"""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Literal

from analysis.explored.differing import Differing
from protocol import command
from protocol.acts import show
from protocol.acts.show import Asked
from protocol.evidence.refusals import BadInput
from protocol.evidence.run.registration import Registration
from protocol.models import sources

MOST = 20  # problems in the list


class Options(command.Options):
    phase: str | None
    problem: str | None
    model: str | None
    task: str | None
    budget: str | None
    arm: str | None
    seed: int | None
    kept: bool
    event: int | Literal["last"] | None
    html: Path | None
    identity: Path | None


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("protocol.show", __doc__)
    command.folder(parser)
    parser.add_argument("--problem", metavar="ID", help="the problem; without it, which ones to look at")
    for name, what in (("model", "model"), ("task", "task"), ("budget", "budget"), ("arm", "arm")):
        parser.add_argument(f"--{name}", metavar="NAME", help=f"lanes of this {what} alone")
    parser.add_argument("--seed", type=int, metavar="N", help="lanes of this seed alone")
    parser.add_argument(
        "--phase", choices=("confirm", "probe"), help="default: the judged, held-out problems"
    )
    parser.add_argument("--kept", action="store_true", help="decode again: which tokens each arm kept")
    parser.add_argument(
        "--event",
        type=number,
        metavar="N",
        help="with --kept: after the N-th event, or the last (default: the last one before the texts part)",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one page of HTML as well")
    command.identity(parser)
    args = parser.parse_args(argv, namespace=Options())
    return command.answer(args.json, lambda: act(args))


def number(text: str) -> int | Literal["last"]:
    """Parse the number of an eviction, or "last"."""
    if text == "last":
        return "last"
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!a}: write a number from 1 on, or last")
    return int(text)


def act(args: Options) -> int:
    study = Registration(args.folder)
    cell = (args.model, args.task, args.budget, args.arm, args.seed)
    asked = Asked(args.phase, *cell, args.kept, args.event, args.identity)
    refuse(args)
    return listed(args, study, asked) if args.problem is None else looked_at(args, study, args.problem, asked)


def refuse(args: Options) -> None:
    """Raise BadInput for options that contradict each other or need another one."""
    if args.problem is None:
        for name in ("kept", "html", "event"):
            if getattr(args, name):
                raise BadInput(f"--{name}: is of one problem; name it with --problem")
    if args.event is not None and not args.kept:
        raise BadInput("--event: says after which event tokens are kept; write --kept as well")
    if args.html is not None and (args.html.is_dir() or not args.html.parent.is_dir()):
        raise BadInput(f"--html {args.html}: name a file in a folder that is there")
    if args.html is not None and args.folder.resolve() in args.html.resolve().parents:
        raise BadInput(
            f"--html {args.html}: lies in the registration, which holds evidence alone; write elsewhere"
        )


def listed(args: Options, study: Registration, asked: Asked) -> int:
    found, problems, beside = show.differing(study, asked, command.tell)
    values = {"problems": problems, "beside": beside, "differing": [each._asdict() for each in found]}
    command.say(args.json, "\n".join(table(args, found, problems, beside)), values)
    return 0


def table(args: Options, found: list[Differing], problems: int, beside: str) -> list[str]:
    if not found:
        return [f"on each of {problems} problems every lane is graded like {beside}"]
    width = max(len(each.problem) for each in found[:MOST])
    rows = [f"{'problem':<{width}}  worse  better  lanes   most at"]
    for each in found[:MOST]:
        place = f"{each.model}, {each.task}, budget {each.budget}, seed {each.seed}"
        rows.append(f"{each.problem:<{width}}  {each.lost:>5}  {each.gained:>6}  {each.lanes:>5}   {place}")
    first, written = found[0], shlex.quote(str(args.folder))
    cell = {"problem": first.problem, "model": first.model, "task": first.task, "budget": first.budget}
    options = " ".join(f"--{name} {shlex.quote(value)}" for name, value in cell.items())
    more = f" --seed {first.seed}{' --phase probe' if args.phase == 'probe' else ''}"
    return [
        f"{len(found)} of {problems} problems have lanes that are graded worse or better than {beside}:",
        "",
        *rows,
        *([f"... and {len(found) - MOST} more (--json has all)"] if len(found) > MOST else []),
        "",
        f"next: kv-prereg show {written} {options}{more}",
    ]


def looked_at(args: Options, study: Registration, name: str, asked: Asked) -> int:
    from protocol.texts import problem as texts

    seen = show.problem(study, sources.home(), name, asked, command.tell)
    if args.html is not None:
        from figures.html import problem_page  # imports matplotlib

        problem_page.write(args.html, seen)
    if args.json:
        command.say(True, "", seen.content())
        return 0
    colours = texts.coloured(sys.stdout)
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    texts.write(texts.lines(seen, colours=colours, plain=plain(encoding)), sys.stdout, colours=colours)
    if args.html is not None:
        command.tell(str(args.html))
    return 0


def plain(encoding: str) -> bool:
    """Return whether an encoding lacks the block characters of the view."""
    try:
        "▁█░»".encode(encoding)
    except UnicodeEncodeError:
        return True
    return False


if __name__ == "__main__":
    sys.exit(main())
