"""What it costs to audit the studies that are shipped: processor time and peak memory, start-up included.

    python -m benchmarks.auditing

Each audit is a process of its own, without --replay, --run-locked or --draw.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from benchmarks.report import processor, table
from protocol.workspace.drift import ROOT

# Run in a process of its own, which prints what it used: seconds of processor time and KiB at most.
MEASURED = """
import contextlib, io, resource, sys
from protocol import audit
with contextlib.redirect_stdout(io.StringIO()):
    status = audit.main([sys.argv[1]])
used = resource.getrusage(resource.RUSAGE_SELF)
with open("/proc/self/status") as state:  # what getrusage says begins with the peak of the parent
    peak = next(line.split()[1] for line in state if line.startswith("VmHWM"))
print(status, used.ru_utime + used.ru_stime, peak)
"""


def main(argv: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.auditing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--repetitions", type=int, default=3, help="default 3")
    repetitions = made.parse_args(argv).repetitions
    rows = []
    for folder in sorted(path.parent for path in (ROOT / "registrations").glob("*/verdict.json")):
        runs = [measured(folder) for _ in range(repetitions)]
        status = {run[0] for run in runs}
        seconds, memory = (statistics.median(run[place] for run in runs) for place in (1, 2))
        records = sum(len(path.read_bytes().splitlines()) for path in folder.glob("*/shard-*.jsonl"))
        exits = ", ".join(f"{each:.0f}" for each in sorted(status))
        rows.append([folder.name, str(records), exits, f"{seconds:.1f}", f"{memory / 1024:.0f}"])
    print(f"{date.today().isoformat()}; {processor()}, {os.cpu_count()} cores, {platform.system()}; ", end="")
    print(f"python {platform.python_version()}; medians of {repetitions}.\n")
    print(table(["study", "records", "exit", "processor seconds", "MiB at most"], rows))
    return 0


def measured(folder: Path) -> tuple[float, float, float]:
    """Exit status, seconds and KiB of one audit."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(folder)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    status, seconds, memory = map(float, done.stdout.split())
    return status, seconds, memory


if __name__ == "__main__":
    sys.exit(main())
