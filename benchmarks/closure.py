"""What it costs to verify the closure of a study, weights apart: sources, data and everything installed.

Files are read once before the first measurement, so that the numbers are those of a warm file cache; the
share of bytes that a disk delivers is its own matter.

    python -m benchmarks.closure
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date

from benchmarks.pairs import Ratio
from benchmarks.report import at_most, processor, span, table
from protocol import tasks
from protocol.lock import closure, installed_files
from protocol.tasks.dataset import Dataset, data_folder
from protocol.workspace.drift import ROOT

TARGET = 3.0  # seconds


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.closure",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--repetitions", type=int, default=5, help="default 5")
    arguments = made.parse_args(argv)
    read = {name: task for name, task in tasks.TASKS.items() if isinstance(task, Dataset) and there(name)}
    parts: dict[str, Callable[[], object]] = {
        "sources": lambda: closure.sources(ROOT),
        f"data of {len(read)} tasks": lambda: tasks.data_digests(read),
        "installed files": lambda: installed_files.scan_packages(closure.PACKAGES),
        "standard library": installed_files.hash_standard_library,
        "interpreter and all installed": closure.environment,
    }
    whole = "sources, data and environment"
    parts[whole] = lambda: (closure.sources(ROOT), tasks.data_digests(read), closure.environment())
    seconds = {name: repeated(act, arguments.repetitions) for name, act in parts.items()}
    print(f"{date.today().isoformat()}; {processor()}, {os.cpu_count()} cores, {platform.system()}; ", end="")
    print(f"python {platform.python_version()}, {len(installed_files.versions())} distributions.\n")
    print(table(["part", "seconds"], [[name, span(each)] for name, each in seconds.items()]))
    print(f"\n{whole}, seconds: {at_most(seconds[whole].median, TARGET)}")
    return 0


def there(name: str) -> bool:
    return (data_folder() / f"{name}.jsonl").is_file()


def repeated(act: Callable[[], object], repetitions: int) -> Ratio:
    """Median and range of seconds, after one run that is not counted."""
    act()
    taken = []
    for _ in range(repetitions):
        started = time.perf_counter()
        act()
        taken.append(time.perf_counter() - started)
    return Ratio(statistics.median(taken), min(taken), max(taken))


if __name__ == "__main__":
    sys.exit(main())
