"""How fast the native kernel decodes a registered study, beside the network's own forward.

One batch of the confirmation's cells on development problems, run in turn by the network ("eager"), by the kernel where
every lane is computed ("each lane"), and as it is: equal lanes of a problem are computed once until they part. These
decode `--lanes` at once, as the study registered; "all at once" is the kernel as a study meets it that leaves the
number out, since no record depends on it. In one process on one thread; prefill, events, sampling and grading are part
of it. Tokens per second of processor time, medians of the rounds; ratios are of each round's pairs. "computed" is the
share of lanes times steps that were computed. "of the limit" is the least time that the processor allows for the
kernel's products, attention and slots of "all at once" (`limits.py`), as a share of what they took. "the same texts"
counts records whose text, slots and events are equal under all four.

    python -m benchmarks.native
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import torch

from benchmarks.limits import count_work, measure_limits
from benchmarks.report import header, table
from benchmarks.setting import Setting, options
from protocol.engine import batch_rows
from protocol.engine.batch_rows import BatchRow
from protocol.engine.native.network import Numbers
from protocol.formats import files
from protocol.plan import grid
from protocol.run.executors import Job
from protocol.run.executors.local import make_executor
from protocol.workspace.planned_study import PlannedStudy, read_protocol
from splits import CONFIRM, assign_bucket

REGISTRATIONS = Path(__file__).resolve().parent.parent / "registrations"
ALL = "all at once"
WAYS = {"eager": "eager", "each lane": "native", "native": "native", ALL: "native"}
"""The kernel of each contender."""


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = options("native", __doc__, repetitions=3)
    made.add_argument("--study", default="alpha-chain", help="a folder of registrations/; default alpha-chain")
    made.add_argument("--models", nargs="+", default=["chain-llama", "chain-qwen2"], help="of the study; default two")
    made.add_argument("--problems", type=int, nargs="+", default=[1, 6, 24], help="of a batch; default 1 6 24")
    made.add_argument("--lanes", type=int, default=126, help="that decode at once; default 126")
    arguments = made.parse_args(argv)
    rows = []
    for model in arguments.models:
        for problems in arguments.problems:
            rows.append([model, *compare(arguments.study, model, problems, arguments.lanes, arguments.repetitions)])
            print(rows[-1], file=sys.stderr, flush=True)
    print(header(Setting("models as named", "cpu", "float32", 1), "native", argv))
    rates = (*(f"{way}, tokens/s" for way in WAYS), "native : eager", "native : each lane", f"{ALL} : eager")
    columns = ("model", "lanes", "at once", *rates, "computed", "of the limit", "the same texts")
    print(table(columns, rows))
    return 0


def compare(study: str, model: str, problems: int, at_once: int, repetitions: int) -> list[str]:
    """Return the columns of one row, after the model."""
    folder = REGISTRATIONS / study
    design = read_protocol(folder)[1].designs_by_phase()["confirm"]
    task = design.tasks[0].name
    cells = tuple(cell for cell in grid.cells(design) if (cell.model, cell.task) == (model, task))
    every = PlannedStudy(design, files.cache_home(), folder=folder).tasks[task].ids()
    dev = [each for each in every if assign_bucket(each) not in CONFIRM]
    ids = [dev[place * len(dev) // problems] for place in range(problems)]  # from all over the list
    job = Job(model, task, tuple(ids), cells)
    execute, seconds = {}, {way: list[float]() for way in WAYS}
    for way, kernel in WAYS.items():
        generation = replace(design.generation, kernel=kernel, threads=1)
        planned = PlannedStudy(replace(design, generation=generation), files.cache_home(), folder=folder)
        execute[way] = make_executor(planned, {model: problems * len(cells) if way == ALL else at_once})
    records: dict[str, Any] = {}
    find, counts = batch_rows.find_equal_lanes, [0, 0]

    def count(rows: Sequence[BatchRow], *, is_sampled: bool) -> tuple[Numbers, Numbers]:
        owners, places = find(rows, is_sampled=is_sampled)
        counts[:] = counts[0] + len(owners), counts[1] + len(rows)
        return owners, places

    def find_none(rows: Sequence[BatchRow], *, is_sampled: bool) -> tuple[Numbers, Numbers]:
        return np.arange(len(rows)), np.arange(len(rows))

    shares = list[float]()
    try:
        for number in range(repetitions + 1):
            for way in WAYS:
                torch.set_num_threads(1)
                batch_rows.find_equal_lanes = find_none if way == "each lane" else count
                start = process_time()
                with count_work() as work:
                    records[way] = execute[way](job).records
                if number:  # the first one loads the model and builds the kernel
                    seconds[way].append(process_time() - start)
                    if way == ALL:
                        shares.append(measure_limits().seconds(work) / work.seconds)
    finally:
        batch_rows.find_equal_lanes = find
    tokens = sum(body["tokens"] for body, _ in records["native"].values())
    ratios = [
        median(slow / fast for slow, fast in zip(seconds[way], seconds[other], strict=True))
        for way, other in (("eager", "native"), ("each lane", "native"), ("eager", ALL))
    ]
    equal = sum(
        all(records[way][key][0][name] == records["native"][key][0][name] for way in WAYS for name in ("text", "cache"))
        for key in records["native"]
    )
    lanes = len(records["native"])
    shown = (f"{tokens / median(seconds[way]):,.0f}" for way in WAYS)
    share = f"{counts[0] / counts[1]:.0%}"
    return [
        str(lanes),
        str(min(at_once, lanes)),
        *shown,
        *(f"{each:.2f}" for each in ratios),
        share,
        f"{median(shares):.0%}",
        f"{equal} of {lanes}",
    ]


if __name__ == "__main__":
    raise SystemExit(main())
