"""Compare the arms in finished result files: the first against every other, paired by problem; exploratory.

    kv-prereg compare full=out/full snapkv=out/snapkv
    kv-prereg compare full.eval snapkv.eval --cluster template
    kv-prereg compare scores.csv --method max-t --plot forest.svg

Reads samples of lm-eval (a file, or the folder of a run), logs of inspect_ai (.eval or .json), predictions of
kvpress's evaluation, CSV files with id, arm and score (task, cluster and seed too), and judged registrations.
An arm is a path, or NAME=PATH. In Python kv_prereg.compare(frame) does the same with a data frame.
Exit status: 0 compared; 2 a file cannot be read, or the problems cannot be paired: one line says why.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.compare import comparison, forest, result_files
from analysis.compare.scored_answers import ReadOptions
from analysis.judgement.untrusted_files import RecordError
from protocol.formats import progress_display
from protocol.formats.command_line import format_refusal, make_parser
from protocol.formats.escape import print_bytes, print_escaped
from protocol.formats.json_text import dumps
from protocol.formats.progress_display import phase
from protocol.formats.text_tables import to_plain


def main(argv: Sequence[str] | None = None) -> int:
    args = _parse_args(argv)
    with progress_display.show_phases():
        return _compare_files(args)


def _compare_files(args: argparse.Namespace) -> int:
    try:
        wanted = ReadOptions(args.metric, args.filter, args.cluster, args.common)
        with phase(f"reading {len(args.paths)} result files"):
            loaded = result_files.read_results(args.paths, wanted)
        with phase("comparing"):
            result = comparison.compare(
                loaded.rows,
                subject=args.subject or loaded.subject,
                method=args.method,
                alpha=args.alpha,
                draws=args.draws,
                seed=args.seed,
                common=args.common,
                prompts_differ=args.prompts_differ,
                margin=args.margin,
                notes=loaded.notes,
            )
        if args.plot:
            with phase("drawing"):
                forest.write_forest(args.plot, result)
    except (RecordError, OSError) as refusal:
        print_escaped(f"{type(refusal).__name__}: {format_refusal(refusal)}", sys.stderr)
        return 2
    printed = dumps(to_plain(result.data())) if args.json else "\n".join(comparison.format_text(result))
    print_bytes(printed)
    return 0


def _parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser("kv-prereg compare", __doc__)
    add = parser.add_argument
    add("paths", nargs="+", metavar="[NAME=]PATH", help="a result file, the folder of a run, or a registration")
    add("--subject", metavar="ARM", help="the arm that is compared with each of the others; by default the first one")
    add("--metric", metavar="NAME", help="which metric to read, in files with several; in a CSV, a column")
    add(
        "--filter",
        metavar="NAME",
        help="which filter of lm-eval samples to read if there are several, e.g. strict-match",
    )
    add(
        "--cluster",
        metavar="FIELD",
        help="resample groups of problems: a field of the problem, with dots for nested fields",
    )
    add("--method", metavar="NAME", help="a method of docs/statistics.md; by default auto, and t for graded scores")
    add("--alpha", type=float, default=0.05, metavar="P", help="error rate of the whole family (default 0.05)")
    add(
        "--draws",
        type=int,
        default=10_000,
        metavar="N",
        help="number of draws, for methods that resample (default 10000)",
    )
    add("--seed", type=int, default=0, metavar="N", help="random seed, for methods that resample (default 0)")
    add("--common", action="store_true", help="compare only what all arms have, and count what is left out")
    add("--prompts-differ", action="store_true", help="allow prompts that differ between the arms")
    add(
        "--margin",
        type=float,
        metavar="POINTS",
        help="also report which contrasts are smaller than this difference, e.g. 0.02; exploratory",
    )
    add("--plot", type=Path, metavar="FILE", help="write a forest plot to this file, .svg or .png")
    add("--json", action="store_true", help="print canonical JSON")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
