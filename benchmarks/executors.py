"""What handing batches to workers costs: lanes a second that a driver takes from a spool and records.

    python -m benchmarks.executors

A lane here is a record of the usual size whose result lies in the spool already: reading it, checking it,
and one write and one fsync a batch are all that is left.
"""

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from protocol.evidence import records
from protocol.formats import canonical
from protocol.plan.grid import Cell
from protocol.run import runner
from protocol.run.executors import Job, JobResult
from protocol.run.executors.spool import Spool

LOCK = "a" * 64
TOKENS = 320  # new ones of a lane, about as many moments
TEXT = "The value of a is 7492, so that of b is 12 more. " * 20


def lane(cell: Cell, problem: str, cited: str, batch: Sequence[str]) -> dict[str, Any]:
    cache = {"mean": "64.000000", "peak": "80.000000", "prefill_end": "64.000000", "mean_bytes": 65536}
    cache |= {"peak_bytes": 81920, "state_bytes": 0, "granted": [64] * 16}
    events = [[16 * number, 320, 256] for number in range(16)]
    answered = {"text": TEXT, "tokens": TOKENS, "stop": "length", "answer": "12", "grade": "correct"}
    return {
        "cell": cell._asdict(),
        "problem": problem,
        "state": "ok",
        "reason": "",
        "prompt": "0" * 64,
        "prompt_tokens": 300,
        "slots": 64,
        **answered,
        "grade_reason": "",
        "cache": {**cache, "events": events},
        "trajectory": cited,
        "batch": {"problems": list(batch), "lanes": 126, "joined": 0},
    }


def produced(job: Job) -> JobResult:
    sides = tuple({"held": [64] * TOKENS, "allocated": [65536 + arm] * TOKENS, "heads": 4} for arm in range(21))
    name = canonical.digest(list(sides))
    costs = {"prefill_seconds": "0.1", "decode_seconds": "1.5"}
    found = {
        (cell, problem): (lane(cell, problem, records.make_citation(name, place % 21), job.problems), costs)
        for place, (problem, cell) in enumerate((problem, cell) for problem in job.problems for cell in job.cells)
    }
    return JobResult(found, sides, 1.0)


def jobs(batches: int, together: int, arms: int) -> list[Job]:
    cells = tuple(Cell("a-model", "chain", "64", f"arm-{arm}", 0) for arm in range(arms))
    return [
        Job("a-model", "chain", tuple(f"p/{batch:06d}/{each}" for each in range(together)), cells)
        for batch in range(batches)
    ]


def committed(folder: Path, work: Sequence[Job]) -> tuple[float, float]:
    """Lanes a second of the clock, and of this process's processors."""
    own = Spool.for_phase(folder, LOCK, "confirm")
    own.prepare()
    for number, job in enumerate(work):
        own.enqueue(number, own.job_name(job), job)
        asked = own.take("a-worker")
        assert asked is not None
        own.write_result(asked, produced(job))
    lanes = sum(len(job.cells) * len(job.problems) for job in work)

    def execute(coming: Any) -> Any:
        for job in coming:
            result = own.read_result(own.job_name(job), job)
            assert isinstance(result, JobResult)
            yield result
            own.delete_result(own.job_name(job))

    began, used = time.perf_counter(), time.process_time()
    written = runner.record_units(
        folder,
        [runner.Unit(*job) for job in work],
        execute,
        phase="confirm",
        registration=LOCK,
        attempt=1,
        report=lambda event: None,
    )
    assert written == lanes
    return lanes / (time.perf_counter() - began), lanes / (time.process_time() - used)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--folder", type=Path, help="on the disk that is asked about")
    args = parser.parse_args(argv)
    print(f"{date.today()}; {platform.machine()}, {os.cpu_count()} cores; python {platform.python_version()}\n")
    print("| problems a batch | lanes a batch | lanes a second | of processor time |")
    print("| ---: | ---: | ---: | ---: |")
    for together in (1, 6, 24):
        work = jobs(max(2, args.batches // together), together, 21)
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            clock, processor = committed(Path(folder), work)
        print(f"| {together} | {21 * together} | {clock:,.0f} | {processor:,.0f} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
