"""Compare finished result files: the first arm against every other, paired by problem; exploratory.

    kv-prereg compare full=out/full snapkv=out/snapkv
    kv-prereg compare full.eval snapkv.eval --cluster template
    kv-prereg compare scores.csv --method max-t --plot forest.svg

Reads samples of lm-eval (a file, or the folder of a run), logs of inspect_ai (.eval or .json), predictions of
kvpress's evaluation, CSV files with id, arm and score (task, cluster and seed too), and judged registrations.
An arm is a path, or NAME=PATH. In Python kv_prereg.compare(frame) does the same with a data frame.
Exit status: 0 compared; 2 a file cannot be read, or what is in the files cannot be paired: one line says why.
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
        with phase(f"reading {len(args.paths)} results"):
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
    add("--margin", type=float, metavar="POINTS", help="say which arms differ by less, as 0.02; exploratory")
    add("--plot", type=Path, metavar="FILE", help="a forest plot, .svg or .png")
    add("--json", action="store_true", help="print canonical JSON")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
