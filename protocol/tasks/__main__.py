"""List the generated tasks, and freeze the split of a new one.

    python -m protocol.tasks list
    python -m protocol.tasks freeze needle-768     writes splits/needle-768.json, once

Exit status: 0 done, 2 refused.
"""

import argparse
import sys

import splits
from protocol import tasks
from protocol.evidence.refusals import Refusal
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
    args = parser.parse_args(argv)
    try:
        if args.act == "freeze":
            task = tasks.get(args.name)
            print(make.write(args.name, task.ids(), task.source()))
            return 0
        for name in tasks.names():
            frozen = splits.load(name)
            print(f"{name}  {len(frozen.dev)} dev, {len(frozen.confirm)} confirm")
    except (Refusal, splits.SplitError) as refusal:
        print(f"{type(refusal).__name__}: {refusal}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
