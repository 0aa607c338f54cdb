"""List the tasks, freeze the split of a new one, and bring published problems here.

    python -m protocol.tasks list
    python -m protocol.tasks freeze needle-768     writes splits/needle-768.json, once
    python -m protocol.tasks fetch math500         downloads the problems, or verifies them
    python -m protocol.tasks fetch math500 --from test.jsonl

Fetching is the only step that uses the network, and not with --from; problems are kept below
$KV_PREREG_HOME, or ~/.cache/kv-prereg. Exit status: 0 done, 2 refused, 3 not the pinned problems.
"""

import argparse
import sys
from pathlib import Path

import splits
from protocol import tasks
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
    args = parser.parse_args(argv)
    try:
        if args.act == "freeze":
            task = tasks.get(args.name)
            print(make.write(args.name, task.ids(), task.source()))
            return 0
        if args.act == "fetch":
            task = tasks.get(args.name)
            if not isinstance(task, Dataset):
                raise BadInput(f"task {args.name!r}: is generated; there is nothing to fetch")
            print(f"{args.name}: {task.fetch(args.file)}")
            return 0
        for name in tasks.names():
            frozen = splits.load(name)
            print(f"{name}  {len(frozen.dev)} dev, {len(frozen.confirm)} confirm")
    except (Refusal, splits.SplitError) as refusal:
        print(f"{type(refusal).__name__}: {refusal}", file=sys.stderr)
        return refusal.exit_status if isinstance(refusal, Refusal) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
