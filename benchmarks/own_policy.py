"""What the confinement of an own policy costs: the policy of docs/your-own.md, confined and as one of this project.

    python -m benchmarks.own_policy [--pairs 9]

Batches of that page's protocol (`full`, `mine`, `random`) are decoded in this process, each once with the policy of
another distribution and once with the same source as a module of `policies`, in turn; the ratio is that of processor
times, pair by pair. Batches differ in their number of problems.
"""

import argparse
import contextlib
import importlib.util
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from protocol.plan import grid, toml_reader
from protocol.run.executors import Execute, Job, local, own_code
from protocol.workspace.planned_study import PlannedStudy
from splits import load

MODEL, TASK = "programs-llama", "programs"
PROBLEMS = (1, 4, 12, 36)  # of a batch: about .1, .3, 1 and 3 seconds
PAGE = Path(__file__).parents[1] / "docs" / "your-own.md"
POINTS = """[kv_prereg.policies]
small-vectors = my_policy:small_vectors
small-vectors-of-ours = policies.my_policy:small_vectors
"""


@contextmanager
def install_policy(folder: Path) -> Iterator[None]:
    """Install the page's policy in a folder of packages, and load it as a module of `policies` too."""
    source = re.search(r"```python my-policy/my_policy\.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert source is not None
    site = folder / "site-packages"
    (site / "my_policy-1.dist-info").mkdir(parents=True)
    for file in (site / "my_policy.py", folder / "of_ours.py"):  # own code is known by its file
        file.write_text(source[1])
    (site / "my_policy-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: my-policy\nVersion: 1\n")
    (site / "my_policy-1.dist-info" / "entry_points.txt").write_text(POINTS)
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()
    spec = importlib.util.spec_from_file_location("policies.my_policy", folder / "of_ours.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[spec.name])
    try:
        yield
    finally:
        sys.path.remove(str(site))


def make_executor(policy: str, folder: Path) -> tuple[Execute, tuple[grid.Cell, ...]]:
    """Return what runs a job of the page's protocol with this policy, and the protocol's cells."""
    text = re.search(r"```toml registrations/mine/protocol\.toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert text is not None
    written = text[1].replace('file = "questions.jsonl"', f'name = "{TASK}"').replace("path:my-model", MODEL)
    written = re.sub(r"^(grader|chance) .*\n", "", written, flags=re.MULTILINE).replace("small-vectors", policy)
    planned = PlannedStudy(toml_reader.parse(written.encode(), "protocol.toml"), folder)
    is_confined = policy == "small-vectors"
    with contextlib.nullcontext() if is_confined else mock.patch.object(own_code, "is_own_policy", return_value=False):
        return local.make_executor(planned, {}), tuple(grid.cells(planned.protocol))


def time_batch(execute: Execute, job: Job) -> float:
    start = time.process_time()
    execute(job)
    return time.process_time() - start


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9)
    pairs = parser.parse_args(argv).pairs
    dev = load(TASK).dev
    with tempfile.TemporaryDirectory() as folder, install_policy(Path(folder)):
        contenders = [make_executor(name, Path(folder)) for name in ("small-vectors-of-ours", "small-vectors")]
        print("| problems | ours, seconds | own, seconds | own to ours | of pairs |\n| --: | --: | --: | --: | --- |")
        for problems in PROBLEMS:
            rounds = []
            for number in range(pairs + 1):
                start = number * problems % (len(dev) - problems)
                batch = tuple(dev[start : start + problems])
                order = contenders if number % 2 else contenders[::-1]
                seconds = [time_batch(execute, Job(MODEL, TASK, batch, cells)) for execute, cells in order]
                rounds.append(seconds if number % 2 else seconds[::-1])
            ours, own = (statistics.median(each) for each in zip(*rounds[1:], strict=True))  # the first loads
            ratios = sorted(own / ours for ours, own in rounds[1:])
            span = f"[{ratios[0]:.3f}, {ratios[-1]:.3f}]"
            print(f"| {problems} | {ours:.2f} | {own:.2f} | {statistics.median(ratios):.3f} | {span} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
