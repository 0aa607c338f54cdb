"""Set what policies are chosen by beforehand against the accuracy that came out. Exploratory.

    kv-prereg proxies registrations/alpha-chain --limit 20

For every arm that evicts, at its first event that drops anything, on N development problems of each task
(those with the smallest MD5 of their ids) and along the text that the full cache writes there: how the arm's
scores agree with the attention that slots go on to receive (of `1d`: mean pre-RoPE queries), how much the
kept slots overlap with an oracle's, which keeps as many of those that receive most, what share of that
attention they and the oracle's (best) capture, and the cosine of the mean value of dropped slots to that of
kept ones. Beside it the accuracy of the arm: held out where there is a verdict, else of the probe. Then
Spearman's rho of each with accuracy, over the arms of a cell.

Today's code runs, and not the locked one; no held-out problem is read and nothing is written.

Exit status: 0 printed; 2 bad input, or no development problem in which an arm evicted; 3 drifted:
protocol.toml is not the file that was locked.
"""

from __future__ import annotations

import sys
from typing import Any

from protocol import command
from protocol.evidence.registration import Registration
from protocol.formats import files
from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput
from protocol.workspace.study import open_study

COLUMNS = ("agreement", "overlap", "captured", "best", "cosine")


class Options(command.Options):
    limit: int


def main(argv: list[str] | None = None) -> int:
    parser = command.make_parser("proxies", __doc__)
    command.add_folder(parser)
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="development problems a task (default: 20)")
    args = parser.parse_args(argv, namespace=Options())
    return command.execute(args.json, lambda: act(args))


def act(args: Options) -> int:
    if args.limit < 1:
        raise BadInput("--limit: write a whole number of at least 1")
    study = open_study(Registration(args.folder), files.cache_home())
    # Imported late: torch and scipy are slow, and --help and the refusals above do not need them.
    with phase("loading torch"):
        from protocol.instruments.proxies import measures

    with phase("reading the records"):
        split, accuracy = measures.read_accuracies(study.registration)
    with phase(f"running {args.limit} development problems of each task"):
        rows = measures.mean_rows(measures.measure_proxies(study, args.limit), accuracy)
    if not rows:
        raise BadInput(
            f"--limit: no arm dropped a slot in {args.limit} development problems of each task; raise the limit"
        )
    correlations = measures.correlate_with_accuracy(rows)
    values = {"exploratory": True, "accuracy": split if accuracy else None, "arms": rows, "ranked": correlations}
    command.print_result(args.json, format_proxies(values), values)
    return 0


def format_proxies(values: dict[str, Any]) -> str:
    split = values["accuracy"]
    accuracy_note = f"accuracy: {split}" if split else "no accuracy was recorded"
    lines = [f"exploratory, on development problems; {accuracy_note}; nothing may be concluded from this", ""]
    rows = values["arms"]
    width = max(len(row["arm"]) for row in rows)
    slots = max([6, *(len(row["budget"]) for row in rows)])
    head = f"{'model, task':<24} {'budget':>{slots}}  {'arm':<{width}} {'n':>4}"
    lines.append(head + "".join(f" {name:>9}" for name in (*COLUMNS, "accuracy")))
    for row in rows:
        label = f"{row['model']}, {row['task']}"
        line = f"{label:<24} {row['budget']:>{slots}}  {row['arm']:<{width}} {row['problems']:>4}"
        lines.append(line + "".join(_format_number(row[name]) for name in (*COLUMNS, "accuracy")))
    lines += ["", "Spearman's rho with accuracy over the arms of a cell, with 95 % limits by Fisher's z"]
    for correlation in values["ranked"]:
        label = f"{correlation['model']}, {correlation['task']}"
        summary = f"n = {correlation['n']}: too few arms, or all have the same value"
        if correlation["rho"] is not None:
            interval = f"[{correlation['low']:+.2f}, {correlation['high']:+.2f}]"
            summary = f"{correlation['rho']:+.2f} {interval}, n = {correlation['n']} arms"
        lines.append(f"{label:<24} {correlation['budget']:>{slots}}  {correlation['proxy']:<{width}} {summary}")
    return "\n".join(lines)


def _format_number(value: float | None) -> str:
    return f" {'-':>9}" if value is None else f" {value:>9.3f}"


if __name__ == "__main__":
    sys.exit(main())
