"""What the confinement of an own policy costs: the policy of docs/your-own.md, confined and as one of this project.

    python -m benchmarks.own_policy [--pairs 9]

Series of batches of that page's protocol (`full`, `mine`, `random`) are decoded in this process as a worker decodes
them, once with the policy of another distribution and once with the same source as a module of `policies`, in turn; the
ratio is that of processor times, pair by pair. A series lasts some checks of the own policy, from the end of one to the
end of the last. Batches differ in their number of problems.
"""

import argparse
import contextlib
import importlib.util
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from protocol.models.load import tokenizer
from protocol.plan import grid, toml_reader
from protocol.run.executors import Decoder, Job, JobPrompts, answers, local, own_code
from protocol.run.executors.answers import AnswerKeeper
from protocol.workspace.planned_study import PlannedStudy
from splits import load

MODEL, TASK = "programs-llama", "programs"
PROBLEMS = (1, 2, 4, 16, 48)  # of a batch: about .1, .2, .3, 1 and 3 seconds
CHECKS = 2  # of a series
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


class Contender(NamedTuple):
    decoder: Decoder
    keeper: AnswerKeeper
    cells: tuple[grid.Cell, ...]

    def render(self, batch: tuple[str, ...]) -> tuple[Job, JobPrompts]:
        job = Job(MODEL, TASK, batch, self.cells)
        return job, self.keeper.render(job)

    def time_series(self, batches: Sequence[tuple[Job, JobPrompts]], checks: int) -> tuple[float, int]:
        """Decode these batches until so many checks have passed, all if 0; return processor seconds and batches."""
        start, count = time.process_time(), 0
        for batch in batches:
            self.decoder.decode(*batch)
            count += 1
            if self.decoder.is_due():
                self.decoder.check()
                checks -= 1
            if not checks:
                break
        return time.process_time() - start, count


def make_contender(policy: str, folder: Path) -> Contender:
    """Return what runs jobs of the page's protocol with this policy."""
    text = re.search(r"```toml registrations/mine/protocol\.toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert text is not None
    written = text[1].replace('file = "questions.jsonl"', f'name = "{TASK}"').replace("path:my-model", MODEL)
    written = re.sub(r"^(grader|chance) .*\n", "", written, flags=re.MULTILINE).replace("small-vectors", policy)
    planned = PlannedStudy(toml_reader.parse(written.encode(), "protocol.toml"), folder)
    is_confined = policy == "small-vectors"
    with contextlib.nullcontext() if is_confined else mock.patch.object(own_code, "is_own_policy", return_value=False):
        decoder = local.make_decoder(planned, {})
    keeper = answers.AnswerKeeper(
        planned, answers.list_extra_prompts(planned), None, cache(lambda model: tokenizer(model, folder))
    )
    return Contender(decoder, keeper, tuple(grid.cells(planned.protocol)))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9)
    pairs = parser.parse_args(argv).pairs
    dev = load(TASK).dev
    with tempfile.TemporaryDirectory() as folder, install_policy(Path(folder)):
        contenders = [make_contender(name, Path(folder)) for name in ("small-vectors-of-ours", "small-vectors")]
        print("| problems | batches | ours, seconds | own, seconds | own to ours | of pairs |")
        print("| --: | --: | --: | --: | --: | --- |")
        for problems in PROBLEMS:
            starts = [number * problems % (len(dev) - problems) for number in range(len(dev))]
            ours, own = ([each.render(tuple(dev[start : start + problems])) for start in starts] for each in contenders)
            for contender, batches in zip(contenders, (ours, own), strict=True):
                contender.time_series(batches[:2], checks=2)  # the first loads, and is checked alone
            rounds, count = [], 0
            for number in range(pairs):
                if number % 2:
                    our_seconds, our_count = contenders[0].time_series(ours[:count], checks=0)
                contenders[1].time_series(own, checks=1)  # so that a window begins
                own_seconds, count = contenders[1].time_series(own, CHECKS)
                if number % 2 == 0:
                    our_seconds, our_count = contenders[0].time_series(ours[:count], checks=0)
                rounds.append((our_seconds / our_count, own_seconds / count))
            our_median, own_median = (statistics.median(each) for each in zip(*rounds, strict=True))
            ratios = sorted(own / ours for ours, own in rounds)
            numbers = f"{problems} | {count} | {our_median:.2f} | {own_median:.2f} | {statistics.median(ratios):.3f}"
            print(f"| {numbers} | [{ratios[0]:.3f}, {ratios[-1]:.3f}] |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
