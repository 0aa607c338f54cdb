"""What the confinement of an own policy costs: the policy of docs/your-own.md, confined and as one of this project.

    python -m benchmarks.own_policy [--pairs 7]

Batches of docs/your-own.md's protocol (8 problems, `full`, `mine`, `random`) are decoded in this process, each once
confined and once as policies of this project are, in turn; the ratio is that of processor times, pair by pair. The
batches are of two tasks: of short answers (`chain`), and of a model that thinks (`programs`).
"""

import argparse
import importlib
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from protocol.engine import own_parts
from protocol.plan import grid, toml_reader
from protocol.run.executors import Execute, Job, local, own_code
from protocol.workspace.planned_study import PlannedStudy
from splits import load

MODELS = {"chain": "chain-llama", "programs": "programs-llama"}  # by task
PAGE = Path(__file__).parents[1] / "docs" / "your-own.md"


@contextmanager
def install_policy(folder: Path) -> Iterator[None]:
    """Install the page's policy in a folder of packages."""
    source = re.search(r"```python my-policy/my_policy\.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert source is not None
    site = folder / "site-packages"
    (site / "my_policy-1.dist-info").mkdir(parents=True)
    (site / "my_policy.py").write_text(source[1])
    (site / "my_policy-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: my-policy\nVersion: 1\n")
    points = "[kv_prereg.policies]\nsmall-vectors = my_policy:small_vectors\n"
    (site / "my_policy-1.dist-info" / "entry_points.txt").write_text(points)
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(site))


def make_executors(task: str, folder: Path) -> tuple[list[Job], Execute, Execute]:
    """Return the jobs of a task, and what runs one: confined, and not."""
    text = re.search(r"```toml registrations/mine/protocol\.toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert text is not None
    written = text[1].replace('file = "questions.jsonl"', f'name = "{task}"').replace("path:my-model", MODELS[task])
    written = re.sub(r"^(grader|chance) .*\n", "", written, flags=re.MULTILINE).replace("threads = 2", "threads = 1")
    planned = PlannedStudy(toml_reader.parse(written.encode(), "protocol.toml"), folder)
    cells = tuple(grid.cells(planned.protocol))
    dev = load(task).dev
    jobs = [Job(MODELS[task], task, tuple(dev[start : start + 8]), cells) for start in range(0, 64, 8)]
    confined = local.make_executor(planned, {})
    with mock.patch.object(own_code, "is_own_policy", return_value=False):
        plain = local.make_executor(planned, {})
    return jobs, confined, plain


def time_job(execute: Execute, job: Job) -> float:
    start = time.process_time()
    execute(job)
    return time.process_time() - start


def compare(jobs: list[Job], confined: Execute, plain: Execute, pairs: int) -> list[float]:
    """Return the ratios of processor times, confined to plain."""
    ratios = []
    for number in range(pairs + 1):
        job = jobs[number % len(jobs)]
        runs = {confined: 0.0, plain: 0.0}
        for execute in (confined, plain) if number % 2 else (plain, confined):
            with mock.patch.object(
                own_parts, "_is_ours", (lambda kind: True) if execute is plain else own_parts._is_ours
            ):
                runs[execute] = time_job(execute, job)
        if number:  # the first pair loads and compiles
            ratios.append(runs[confined] / runs[plain])
            print(f"{runs[confined]:.2f} s confined, {runs[plain]:.2f} s plain: {ratios[-1]:.3f}", flush=True)
    return ratios


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    pairs = parser.parse_args(argv).pairs
    with tempfile.TemporaryDirectory() as folder, install_policy(Path(folder)):
        for task in MODELS:
            ratios = compare(*make_executors(task, Path(folder)), pairs)
            print(f"{task}: median of {pairs} pairs: {statistics.median(ratios):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
