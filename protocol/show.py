"""Look at one problem: what eviction did to its answers, arm by arm.

    kv-prereg show registrations/alpha-chain                 the problems on which arms differ most
    kv-prereg show registrations/alpha-chain --problem chain/14/001                  one of them
    kv-prereg show registrations/alpha-chain --problem chain/14/001 --arm 1d --kept  what 1d kept
    kv-prereg show registrations/alpha-chain --problem chain/14/001 --html problem.html

The prompt, the full cache's answer, and beside it that of every arm from the word at which the two part, its
grade, its tokens and its slots over time. All of this is read from the records. Which tokens an arm kept is
not in them: --kept decodes the lanes again, and says whether they gave the recorded text. Held-out problems
are shown once the study is judged; those of its probe are shown with --phase probe. A folder that a rehearsal wrote
is shown like a probe. Nothing is verified but the lines that are read: kv-prereg audit verifies.

Of several models, seeds and budgets the first is shown, and the others are named; with --arm all budgets.

Exit status: 0 shown; 2 refused: no verdict, no such problem, or what --kept needs is not here; 3 the records
do not verify.
"""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Literal

from analysis.exploratory.changed_grades import ChangedProblem
from protocol import command
from protocol.evidence.registration import Registration
from protocol.formats import files, runners
from protocol.formats.refusals import BadInput
from protocol.formats.terminal import supports_colour
from protocol.instruments.show import problem_reader, rehearsal_folder
from protocol.instruments.show.problem_reader import LaneFilter

MOST_LISTED = 20  # problems in the list


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
    parser = command.make_parser("show", __doc__)
    command.add_folder(parser)
    parser.add_argument(
        "--problem", metavar="ID", help="the problem; without it, a list of problems that are worth a look"
    )
    for name, what in (("model", "model"), ("task", "task"), ("budget", "budget"), ("arm", "arm")):
        parser.add_argument(f"--{name}", metavar="NAME", help=f"only lanes of this {what}")
    parser.add_argument("--seed", type=int, metavar="N", help="only lanes of this seed")
    parser.add_argument("--phase", choices=("confirm", "probe"), help="default: held-out problems, as judged")
    parser.add_argument("--kept", action="store_true", help="decode again to show which tokens each arm kept")
    parser.add_argument(
        "--event",
        type=parse_event,
        metavar="N",
        help="with --kept: after the N-th event, or the last (default: the last one before the texts differ)",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write an HTML page")
    command.add_identity(parser)
    args = parser.parse_args(argv, namespace=Options())
    return command.execute(args.json, lambda: act(args))


def parse_event(text: str) -> int | Literal["last"]:
    """Parse the number of an eviction, or "last"."""
    if text == "last":
        return "last"
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!a}: write a number of at least 1, or last")
    return int(text)


def act(args: Options) -> int:
    rehearsed = rehearsal_folder.open_rehearsal(args.folder)
    if rehearsed is not None and (args.kept or args.phase == "confirm"):
        raise BadInput(
            f"{args.folder}: is a rehearsal, without a lock or held-out problems; leave out --kept and --phase confirm"
        )
    study, args.phase = rehearsed or Registration(args.folder), "probe" if rehearsed else args.phase
    if rehearsed is None and runners.find_runner(study.protocol) is not None:
        raise BadInput(runners.describe_refusal(study.folder))
    cell = (args.model, args.task, args.budget, args.arm, args.seed)
    lane_filter = LaneFilter(args.phase, *cell, args.kept, args.event, args.identity)
    refuse_contradictions(args)
    return (
        list_problems(args, study, lane_filter)
        if args.problem is None
        else show_problem(args, study, args.problem, lane_filter)
    )


def refuse_contradictions(args: Options) -> None:
    """Raise BadInput for options that contradict each other or need another one."""
    if args.problem is None:
        for name in ("kept", "html", "event"):
            if getattr(args, name):
                raise BadInput(f"--{name}: needs one problem; name it with --problem")
    if args.event is not None and not args.kept:
        raise BadInput("--event: chooses the event for --kept; add --kept")
    if args.html is not None and (args.html.is_dir() or not args.html.parent.is_dir()):
        raise BadInput(f"--html {args.html}: name a file in an existing folder")
    if args.html is not None and args.folder.resolve() in args.html.resolve().parents:
        raise BadInput(f"--html {args.html}: is in the registration, which may contain only evidence; write elsewhere")


def list_problems(args: Options, study: Registration, lane_filter: LaneFilter) -> int:
    differing, problems, reference = problem_reader.find_differing(study, lane_filter, command.print_notice)
    values = {"problems": problems, "beside": reference, "differing": [row._asdict() for row in differing]}
    command.print_result(args.json, "\n".join(format_table(args, differing, problems, reference)), values)
    return 0


def format_table(args: Options, differing: list[ChangedProblem], problems: int, reference: str) -> list[str]:
    if not differing:
        return [f"on all {problems} problems every lane has the same grade as {reference}"]
    width = max(len(row.problem) for row in differing[:MOST_LISTED])
    rows = [f"{'problem':<{width}}  worse  better  lanes   most at"]
    for row in differing[:MOST_LISTED]:
        label = f"{row.model}, {row.task}, budget {row.budget}, seed {row.seed}"
        rows.append(f"{row.problem:<{width}}  {row.lost:>5}  {row.gained:>6}  {row.lanes:>5}   {label}")
    first, folder = differing[0], shlex.quote(str(args.folder))
    cell = {"problem": first.problem, "model": first.model, "task": first.task, "budget": first.budget}
    options = " ".join(f"--{name} {shlex.quote(value)}" for name, value in cell.items())
    more = f" --seed {first.seed}{' --phase probe' if args.phase == 'probe' else ''}"
    return [
        f"{len(differing)} of {problems} problems have lanes with a worse or better grade than {reference}:",
        "",
        *rows,
        *([f"... and {len(differing) - MOST_LISTED} more (--json has all)"] if len(differing) > MOST_LISTED else []),
        "",
        f"next: kv-prereg show {folder} {options}{more}",
    ]


def show_problem(args: Options, study: Registration, name: str, lane_filter: LaneFilter) -> int:
    from protocol.instruments.show import terminal_view as texts

    view = problem_reader.read_problem(study, files.cache_home(), name, lane_filter, command.print_notice)
    if args.html is not None:
        from protocol.instruments.show import problem_page  # imports matplotlib

        problem_page.write_page(args.html, view)
    if args.json:
        command.print_result(True, "", view.to_json())
        return 0
    colours = supports_colour(sys.stdout)
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    texts.write_lines(
        texts.format_problem(view, colours=colours, plain=lacks_blocks(encoding)), sys.stdout, colours=colours
    )
    if args.html is not None:
        command.print_notice(str(args.html))
    return 0


def lacks_blocks(encoding: str) -> bool:
    """Return whether an encoding lacks the block characters of the view."""
    try:
        "▁█░»".encode(encoding)
    except UnicodeEncodeError:
        return True
    return False


if __name__ == "__main__":
    sys.exit(main())
