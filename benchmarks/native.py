"""How fast the native kernel decodes alpha-chain, beside the network's own forward.

One batch of the confirmation's cells on development problems, run by both kernels in turn, in one process on one
thread: prefill, events, sampling and grading are part of it. Tokens a second of processor time, medians of the rounds;
the ratio is that of each round's pair. "the same texts" counts records whose text, slots and events are equal.

    python -m benchmarks.native
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import torch

from benchmarks.report import header, table
from benchmarks.setting import Setting, options
from protocol.formats import files
from protocol.plan import grid
from protocol.run.executors import Job
from protocol.run.executors.local import make_executor
from protocol.workspace.planned_study import PlannedStudy, read_protocol
from splits import CONFIRM, assign_bucket

REGISTRATIONS = Path(__file__).resolve().parent.parent / "registrations"
KERNELS = ("eager", "native")


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = options("native", __doc__, repetitions=3)
    made.add_argument("--problems", type=int, nargs="+", default=[1, 6, 24], help="of a batch; default 1 6 24")
    made.add_argument("--lanes", type=int, default=126, help="that decode at once; default 126")
    arguments = made.parse_args(argv)
    rows = []
    for model in ("chain-llama", "chain-qwen2"):
        for problems in arguments.problems:
            rows.append([model, *compare(model, problems, arguments.lanes, arguments.repetitions)])
            print(rows[-1], file=sys.stderr, flush=True)
    print(header(Setting("models as named", "cpu", "float32", 1), "native", argv))
    columns = ("model", "lanes", "at once", *(f"{kernel}, tokens/s" for kernel in KERNELS), "ratio", "the same texts")
    print(table(columns, rows))
    return 0


def compare(model: str, problems: int, at_once: int, repetitions: int) -> list[str]:
    """Return the columns of one row, after the model."""
    folder = REGISTRATIONS / "alpha-chain"
    design = read_protocol(folder)[1].designs_by_phase()["confirm"]
    cells = tuple(cell for cell in grid.cells(design) if cell.model == model)
    every = PlannedStudy(design, files.cache_home(), folder=folder).tasks["chain"].ids()
    dev = [each for each in every if assign_bucket(each) not in CONFIRM]
    ids = [dev[place * len(dev) // problems] for place in range(problems)]  # from all over the list
    job = Job(model, "chain", tuple(ids), cells)
    execute, seconds = {}, {kernel: list[float]() for kernel in KERNELS}
    for kernel in KERNELS:
        generation = design.generation._replace(kernel=kernel, threads=1)
        planned = PlannedStudy(replace(design, generation=generation), files.cache_home(), folder=folder)
        execute[kernel] = make_executor(planned, {model: at_once})
    records: dict[str, Any] = {}
    for number in range(repetitions + 1):
        for kernel in KERNELS:
            torch.set_num_threads(1)
            start = process_time()
            records[kernel] = execute[kernel](job).records
            if number:  # the first one loads the model and builds the kernel
                seconds[kernel].append(process_time() - start)
    tokens = {kernel: sum(body["tokens"] for body, _ in records[kernel].values()) for kernel in KERNELS}
    rates = {kernel: [tokens[kernel] / value for value in seconds[kernel]] for kernel in KERNELS}
    ratio = median(native / eager for eager, native in zip(rates["eager"], rates["native"], strict=True))
    equal = sum(
        all(records["eager"][key][0][name] == records["native"][key][0][name] for name in ("text", "cache"))
        for key in records["eager"]
    )
    lanes = len(records["eager"])
    shown = (f"{median(rates[kernel]):,.0f}" for kernel in KERNELS)
    return [str(lanes), str(min(at_once, lanes)), *shown, f"{ratio:.2f}", f"{equal} of {lanes}"]


if __name__ == "__main__":
    raise SystemExit(main())
