"""Compare finished result files: the first arm against every other, paired by problem; exploratory.

    kv-prereg compare full=out/full snapkv=out/snapkv
    kv-prereg compare full.eval snapkv.eval --cluster template
    kv-prereg compare scores.csv --method max-t --plot forest.svg

Reads samples of lm-eval (a file, or the folder of a run), logs of inspect_ai (.eval or .json), predictions of
kvpress's evaluation, CSV files with id, arm and score (task, cluster and seed too), and judged registrations.
An arm is a path, or NAME=PATH. In Python analysis.compare(frame) does the same with a data frame.
Exit status: 0 compared; 2 a file cannot be read, or what is in the files cannot be paired: one line says why.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from analysis.output import phases
from analysis.output.command import named, said
from analysis.output.phases import phase
from analysis.output.printed import dumps
from protocol.evidence.bytes.shown import print_bytes, put
from analysis.output.told import plain
from analysis.results import comparison, forest, reading
from analysis.results.rows import Wanted
from analysis.studies.plain_files import RecordError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    args = _parsed(argv)
    with phases.showing():
        return _compared(args)


def _compared(args: argparse.Namespace) -> int:
    try:
        wanted = Wanted(args.metric, args.filter, args.cluster, args.common)
        with phase(f"reading {len(args.paths)} results"):
            read = reading.read(args.paths, wanted)
        with phase("comparing"):
            found = comparison.compare(
                read.rows,
                subject=args.subject or read.subject,
                method=args.method,
                alpha=args.alpha,
                draws=args.draws,
                seed=args.seed,
                common=args.common,
                prompts_differ=args.prompts_differ,
                said=read.said,
            )
        if args.plot:
            with phase("drawing"):
                forest.write(args.plot, found)
    except (RecordError, OSError) as refusal:
        put(f"{type(refusal).__name__}: {said(refusal)}\n", sys.stderr)
        return 2
    printed = dumps(plain(found.data())) if args.json else "\n".join(comparison.text(found))
    print_bytes(printed)
    return 0


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = named("compare", __doc__)
    add = parser.add_argument
    add(
        "paths",
        nargs="+",
        metavar="[NAME=]PATH",
        help="a result file, the folder of a run, or a registration",
    )
    add("--subject", metavar="ARM", help="the arm that the others are compared with; the first without it")
    add("--metric", metavar="NAME", help="of files with several; a column of a CSV")
    add("--filter", metavar="NAME", help="of lm-eval samples with several, as strict-match")
    add("--cluster", metavar="FIELD", help="what is resampled: a field of the problem, with dots into it")
    add("--method", metavar="NAME", help="as docs/statistics.md has them; without it auto, or t of scores")
    add("--alpha", type=float, default=0.05, metavar="P", help="of the whole family (0.05)")
    add("--draws", type=int, default=10_000, metavar="N", help="of methods that draw (10000)")
    add("--seed", type=int, default=0, metavar="N", help="of methods that draw (0)")
    add("--common", action="store_true", help="leave out, and count, what not every arm has")
    add("--prompts-differ", action="store_true", help="the arms may have been given different texts")
    add("--plot", type=Path, metavar="FILE", help="a forest plot, .svg or .png")
    add("--json", action="store_true", help="print canonical JSON")
    return parser.parse_args(argv)


class _Callable(ModuleType):
    """Makes `analysis.compare` callable, whoever imported this module first."""

    def __call__(self, frame: Any, **options: Any) -> comparison.Comparison:
        """See `analysis.compare.comparison.of_frame`."""
        return comparison.of_frame(frame, **options)


sys.modules[__name__].__class__ = _Callable

if __name__ == "__main__":
    sys.exit(main())
