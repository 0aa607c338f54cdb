"""List the tasks, check a file of your own, bring published problems here, seal those that are held out.

    kv-prereg tasks list
    kv-prereg tasks graders
    kv-prereg tasks check mine.jsonl --grader f1
    kv-prereg tasks freeze needle-768     writes splits/needle-768.json, once
    kv-prereg tasks fetch math500         downloads the problems, or verifies them
    kv-prereg tasks fetch math500 --from test.jsonl
    kv-prereg tasks seal math500 --to age1... --to "$(cat auditor.pub)"

`check` says every line that is wrong, or how many problems are for development and how many are held out; it
holds each answer to the grader. Fetching is the only step that uses the network, and not with --from;
problems are kept below $KV_PREREG_HOME, or ~/.cache/kv-prereg. Sealing splits a data file into the
development problems and the held-out ones, these encrypted (age) so that each --to can open them with a
private key: `confirm --identity`.
It hides nothing from those who have the plain file, which you then remove, or find the problems elsewhere.

Exit status: 0 done, 2 refused, 3 not the pinned problems.
"""

import sys
from pathlib import Path

import splits
from protocol import grading, tasks
from protocol.evidence.bytes import usage
from protocol.evidence.bytes.shown import put
from protocol.evidence.lock import closure
from protocol.evidence.mistakes import of_system
from protocol.evidence.refusals import BadInput, Refusal
from protocol.tasks import file_rows, registry
from protocol.tasks.dataset import Dataset
from protocol.tasks.file_task import wrong_golds
from splits import make

SHOWN = 20  # faulty lines that are printed


def main(argv: list[str] | None = None) -> int:
    parser = usage.parser("kv-prereg tasks", __doc__)
    acts = parser.add_subparsers(dest="act", required=True)
    acts.add_parser("list", help="the tasks by name, with the sizes of their splits")
    acts.add_parser("freeze", help="write the split manifest of one task").add_argument("name")
    acts.add_parser("graders", help="what may grade a file of yours")
    checking = acts.add_parser("check", help="what is wrong with a file of yours, or how it is split")
    checking.add_argument("file", type=Path)
    checking.add_argument("--grader", choices=grading.names(), help="hold every answer to this grader")
    fetching = acts.add_parser("fetch", help="bring the problems of one published task here, checked")
    fetching.add_argument("name")
    fetching.add_argument("--from", dest="file", type=Path, help="the published file, in JSON lines")
    sealing = acts.add_parser("seal", help="encrypt the held-out problems of one published task")
    sealing.add_argument("name")
    sealing.add_argument(
        "--to", action="append", required=True, metavar="KEY", help="a public key: age1... or ssh-ed25519 ..."
    )
    args = parser.parse_args(argv)
    try:
        if args.act == "freeze":
            task = tasks.get(args.name)
            put(str(make.write(args.name, task.ids(), task.source())), sys.stdout)
            return 0
        if args.act == "check":
            return check(args.file, args.grader)
        if args.act == "graders":
            put("\n".join(grading.names()), sys.stdout)
            return 0
        if args.act in ("fetch", "seal"):
            task = tasks.get(args.name)
            if not isinstance(task, Dataset):
                raise BadInput(f"task {args.name!r}: is generated; there is nothing to {args.act}")
            if args.act == "fetch":
                put(f"{args.name}: {task.fetch(args.file)}", sys.stdout)
            else:
                put(encrypted(task, args.to), sys.stdout)
            return 0
        for name in tasks.names():
            frozen = registry.manifest(name, tasks.get(name))
            put(f"{name}  {len(frozen.dev)} dev, {len(frozen.confirm)} confirm", sys.stdout)
    except (Refusal, splits.SplitError, OSError) as refusal:
        said = of_system(refusal) if isinstance(refusal, OSError) else str(refusal)
        put(f"{type(refusal).__name__}: {' '.join(said.split())}", sys.stderr)
        return refusal.exit_status if isinstance(refusal, Refusal) else Refusal.exit_status
    return 0


def check(path: Path, grader: str | None) -> int:
    """Print the faulty lines, the first MAX_FAULTS of them, or the split of the file."""
    found, wrong = file_rows.told(file_rows.read(path))
    if grader is not None:
        wrong = tuple(
            sorted(
                {
                    **{one.line: one for one in wrong_golds(grader, found)},
                    **{one.line: one for one in wrong},
                }.values()
            )
        )
    for one in wrong[:SHOWN]:
        put(f"{path}: line {one.line}: {one.says}", sys.stderr)
    if wrong:
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        lines = "line is" if len(wrong) == 1 else "lines are"
        put(f"{path}: {len(wrong)} {lines} wrong{': those above' if more else ''}{more}", sys.stderr)
        return Refusal.exit_status
    ids = [row.id for row in found.values()]
    split = splits.made(path.stem, ids, closure.digest_of(file_rows.read(path)))
    put(f"{path}: {len(split.dev)} dev, {len(split.confirm)} confirm", sys.stdout)
    for kind in ("level", "cluster"):
        by_id = {row.id: getattr(row, kind) for row in found.values() if getattr(row, kind)}
        if by_id:
            dev, confirm = ({by_id[item] for item in part} for part in (split.dev, split.confirm))
            put(f"{kind}s: {len(dev)} dev, {len(confirm)} confirm, {len(dev & confirm)} in both", sys.stdout)
    if grader is None:
        put("answers: held to no grader; --grader names one", sys.stdout)
    return 0


def encrypted(task: Dataset, recipients: list[str]) -> str:
    parts, frozen = task.encrypt(recipients), splits.load(task.name)
    plain = parts.dev.with_name(f"{task.name}.jsonl")
    return (
        f"{len(frozen.dev)} development problems: {parts.dev}\n"
        f"{len(frozen.confirm)} held-out problems, encrypted: {parts.confirm}\n"
        f"now remove {plain}: until then the task is refused"
    )


if __name__ == "__main__":
    sys.exit(main())
