"""List the tasks, check a file of your own, bring published problems here, seal those that are held out.

    kv-prereg tasks list
    kv-prereg tasks graders
    kv-prereg tasks check mine.jsonl --grader f1
    kv-prereg tasks freeze needle-768     writes splits/needle-768.json, once
    kv-prereg tasks fetch math500         downloads the problems, or verifies them
    kv-prereg tasks fetch math500 --from test.jsonl
    kv-prereg tasks seal math500 --to age1... --to "$(cat auditor.pub)"

`check` says every line that is wrong, or how many problems are for development and how many are held out; it
checks each answer with the grader, and warns of one that the grader cannot tell from another line's. Of a
file of programs it runs the solutions that the file has, in a sandbox (docs/tasks.md, "Programs").
Fetching is the only step that uses the network, and not with --from; problems are kept below
$KV_PREREG_HOME, or ~/.cache/kv-prereg. Sealing splits a data file into the
development problems and the held-out ones, these encrypted (age) so that each --to can open them with a
private key: `confirm --identity`.
It hides nothing from those who have the plain file, which you then remove, or find the problems elsewhere.

Exit status: 0 done, 2 refused, 3 not the pinned problems.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import splits
from protocol import grading, tasks
from protocol.formats import command_line
from protocol.formats.escape import print_escaped
from protocol.formats.refusals import BadInput, Refusal
from protocol.lock import closure
from protocol.tasks import file_rows, registry
from protocol.tasks.dataset import Dataset
from protocol.tasks.file_task import find_confusable_golds, find_wrong_golds, reader_of
from splits import make

MAX_FAULTS = 20  # faulty lines that are printed


def main(argv: list[str] | None = None) -> int:
    parser = command_line.make_parser("kv-prereg tasks", __doc__)
    subparsers = parser.add_subparsers(dest="act", required=True)
    subparsers.add_parser("list", help="the tasks by name, with the sizes of their splits")
    subparsers.add_parser("freeze", help="write the file with the split of one task").add_argument("name")
    subparsers.add_parser("graders", help="list the graders for your own problem file")
    check_parser = subparsers.add_parser("check", help="check your own problem file, and show its split")
    check_parser.add_argument("file", type=Path)
    check_parser.add_argument("--grader", choices=grading.grader_names(), help="check every answer with this grader")
    fetch_parser = subparsers.add_parser("fetch", help="download the problems of one published task and verify them")
    fetch_parser.add_argument("name")
    fetch_parser.add_argument(
        "--from", dest="file", type=Path, help="use this copy of the published file, in JSON lines"
    )
    seal_parser = subparsers.add_parser("seal", help="encrypt the held-out problems of one published task")
    seal_parser.add_argument("name")
    seal_parser.add_argument(
        "--to", action="append", required=True, metavar="KEY", help="a public key: age1... or ssh-ed25519 ..."
    )
    args = parser.parse_args(argv)
    try:
        if args.act == "freeze":
            task = tasks.get(args.name)
            print_escaped(
                str(make.write_split(args.name, task.ids(), task.source(), units=registry.split_units(task))),
                sys.stdout,
            )
            return 0
        if args.act == "check":
            return check(args.file, args.grader)
        if args.act == "graders":
            print_escaped("\n".join(grading.grader_names()), sys.stdout)
            return 0
        if args.act in ("fetch", "seal"):
            task = tasks.get(args.name)
            if not isinstance(task, Dataset):
                raise BadInput(f"task {args.name!r}: is generated; there is nothing to {args.act}")
            if args.act == "fetch":
                print_escaped(f"{args.name}: {task.fetch(args.file)}", sys.stdout)
            else:
                print_escaped(seal(task, args.to), sys.stdout)
            return 0
        for name in tasks.names():
            split = registry.split_manifest(name, tasks.get(name))
            print_escaped(f"{name}  {len(split.dev)} dev, {len(split.confirm)} confirm", sys.stdout)
    except (Refusal, splits.SplitError, OSError) as refusal:
        return command_line.report_refusal(refusal)
    return 0


def _format_lines(lines: Sequence[int]) -> str:
    """Return "line 4", or "lines 4, 5, 6 and 57 more"."""
    more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines[:3]))}{more}"


def check(path: Path, grader: str | None) -> int:
    """Print what is wrong, the first MAX_FAULTS kinds of fault with their lines, or the split of the file."""
    rows_by_line, faults = file_rows.parse_rows(file_rows.read_file(path), reader_of(grader))
    if grader is not None:
        faults = tuple(
            sorted(
                {
                    **{fault.line: fault for fault in find_wrong_golds(grader, rows_by_line)},
                    **{fault.line: fault for fault in faults},
                }.values()
            )
        )
    alike: dict[str, list[int]] = {}
    for fault in faults:
        alike.setdefault(fault.message, []).append(fault.line)
    for message, numbers in list(alike.items())[:MAX_FAULTS]:
        print_escaped(f"{path}: {_format_lines(numbers)}: {message}", sys.stderr)
    if faults:
        hidden = sum(map(len, list(alike.values())[MAX_FAULTS:]))
        more = f" and {hidden} more" if hidden else ""
        verb = "line is" if len(faults) == 1 else "lines are"
        print_escaped(f"{path}: {len(faults)} {verb} wrong{': those above' if more else ''}{more}", sys.stderr)
        return Refusal.exit_status
    ids = [row.id for row in rows_by_line.values()]
    split = splits.make_manifest(path.stem, ids, closure.sha256_hex(file_rows.read_file(path)))
    print_escaped(f"{path}: {len(split.dev)} dev, {len(split.confirm)} confirm", sys.stdout)
    for kind in ("level", "cluster"):
        by_id = {row.id: getattr(row, kind) for row in rows_by_line.values() if getattr(row, kind)}
        if by_id:
            dev, confirm = ({by_id[item] for item in part} for part in (split.dev, split.confirm))
            print_escaped(f"{kind}s: {len(dev)} dev, {len(confirm)} confirm, {len(dev & confirm)} in both", sys.stdout)
    if grader == "program":
        with_solution = sum(bool(json.loads(str(row.gold))["solution"]) for row in rows_by_line.values())
        print_escaped(f"solutions: {with_solution} were run, and all pass their tests", sys.stdout)
        if without := len(rows_by_line) - with_solution:
            lines = "1 line has" if without == 1 else f"{without} lines have"
            print_escaped(f"warning: {lines} no solution, so nothing shows that the tests can be passed", sys.stdout)
    elif grader is None:
        print_escaped("answers: not checked with a grader; name one with --grader", sys.stdout)
    else:
        confusable = [*find_confusable_golds(grader, rows_by_line)]
        for fault in confusable[:MAX_FAULTS]:
            print_escaped(f"warning: {path}: line {fault.line}: {fault.message}", sys.stdout)
        if confusable:
            advice = ", or choose the grader contains (whole words) or equals" if grader == "exact" else ""
            lines = "1 line has an answer" if len(confusable) == 1 else f"{len(confusable)} lines have answers"
            print_escaped(
                f"warning: {lines} that {grader} confuses with another line's answer; reword it{advice}", sys.stdout
            )
    return 0


def seal(task: Dataset, recipients: list[str]) -> str:
    sealed, split = task.encrypt(recipients), splits.load(task.name)
    plain_path = sealed.dev.with_name(f"{task.name}.jsonl")
    return (
        f"{len(split.dev)} development problems: {sealed.dev}\n{len(split.confirm)} held-out problems, "
        f"encrypted: {sealed.confirm}\nnow remove {plain_path}; until then the task is refused"
    )


if __name__ == "__main__":
    sys.exit(main())
