"""List the tasks, freeze the split of a new one, bring published problems here, seal those that are held out.

    python -m protocol.tasks list
    python -m protocol.tasks freeze needle-768     writes splits/needle-768.json, once
    python -m protocol.tasks fetch math500         downloads the problems, or verifies them
    python -m protocol.tasks fetch math500 --from test.jsonl
    python -m protocol.tasks seal math500 --to age1... --to "$(cat auditor.pub)"

Fetching is the only step that uses the network, and not with --from; problems are kept below
$KV_PREREG_HOME, or ~/.cache/kv-prereg. Sealing splits a data file into the development problems and the
held-out ones, these encrypted (age) so that each --to can open them with a private key: `confirm --identity`.
It hides nothing from those who have the plain file, which you then remove, or find the problems elsewhere.

Exit status: 0 done, 2 refused, 3 not the pinned problems.
"""

import argparse
import sys
from pathlib import Path

import splits
from protocol import tasks
from protocol.evidence.bytes.shown import put
from protocol.evidence.refusals import BadInput, Refusal
from protocol.tasks.dataset import Dataset
from splits import make


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m protocol.tasks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    acts = parser.add_subparsers(dest="act", required=True)
    acts.add_parser("list", help="the tasks by name, with the sizes of their splits")
    acts.add_parser("freeze", help="write the split manifest of one task").add_argument("name")
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
            frozen = splits.load(name)
            put(f"{name}  {len(frozen.dev)} dev, {len(frozen.confirm)} confirm", sys.stdout)
    except (Refusal, splits.SplitError, OSError) as refusal:
        put(f"{type(refusal).__name__}: {' '.join(str(refusal).split())}", sys.stderr)
        return refusal.exit_status if isinstance(refusal, Refusal) else Refusal.exit_status
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
