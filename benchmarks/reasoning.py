"""What the reasoning protocol costs: decoded tokens a second with the embedded models; the selector alone.

First table: batches of development problems as registrations/alpha-chain runs them, with all arms, budgets
and seeds, each model by itself; prefill, events and grading are counted.

Second table: Algorithm 1 of "Minimal-Intervention KV Retention" read plainly, with its n x n matrix, beside
the selector that the policies use, on random scores and signatures of 128 numbers.

Third table: the selector in every head by itself, beside the one set of all heads, and the largest tensor
that either makes, beside what n x n float32 would take.

    python -m benchmarks.reasoning

With --before, one table alone: the engine of another tree and of this one, in turn, each in a process of its
own, by process time; texts, events, slots held and bytes have to be the same.

    git worktree add /tmp/before COMMIT; python -m benchmarks.reasoning --before /tmp/before
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from benchmarks.pairs import alternate, clocked
from benchmarks.plain_selector import plain_diverse
from benchmarks.report import at_least, header, span, table
from benchmarks.setting import Setting
from policies import CacheSignal, Diverse, Scores, Signal, View
from policies.selection import select_diverse
from policies.signals import MeanValues
from policies.signatures import DiverseEach, UnitValues
from protocol.models import sources
from protocol.plan import grid
from protocol.plan.design import Design
from protocol.run import runner
from protocol.run.executors import Executor, Job, process_pool
from protocol.workspace import planned_study
from protocol.workspace.planned_study import PlannedStudy
from splits import load

REGISTRATION = Path("registrations/alpha-chain")
TOKENS_A_SECOND, TIMES_FASTER = 5000, 3
SIZES = ((144, 128), (1024, 256), (4096, 1024))  # slots, and how many of them are kept
WIDTH, WEIGHT = 128, 0.5
HEADS, LONG, LEFT = 8, 8192, 1024  # KV heads of one layer, slots, and how many of them are kept


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.reasoning",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--repetitions", type=int, default=5, help="measured rounds; default 5")
    made.add_argument("--batches", type=int, default=4, help="of each model and round; default 4")
    made.add_argument("--before", type=Path, help="a tree whose engine is run in alternation with this one")
    made.add_argument("--problems", type=int, default=24, help="of the paired run; default 24")
    arguments = made.parse_args(argv)
    _, registered = planned_study.read_protocol(REGISTRATION)
    assert registered.sweep is not None
    protocol = registered.confirm_design(registered.sweep.candidates[0])
    settings = protocol.generation
    cores = settings.threads * (settings.workers or 1)
    chosen = Setting(" and ".join(protocol.models), settings.device, settings.dtype, cores)
    print(header(chosen, "reasoning", argv))
    lanes = dict.fromkeys(protocol.models, settings.lanes_per_batch or 1)
    if arguments.before is not None:
        print(paired(protocol.models, arguments.before, arguments.problems, arguments.repetitions))
        return 0
    with process_pool.open_executor(PlannedStudy(protocol, sources.cache_home()), lanes) as execute:
        print(rates(protocol, execute, arguments.batches, arguments.repetitions))
    print()
    print(selectors(arguments.repetitions))
    print()
    print(each_head(arguments.repetitions))
    return 0


def rates(protocol: Design, execute: Executor, batches: int, repetitions: int) -> str:
    """Every round runs other development problems."""
    problems = {task.name: load(task.name).dev for task in protocol.tasks}
    units = runner.split_into_units(grid.cells(protocol), problems, protocol.generation.problems_per_batch)
    tokens: dict[str, list[int]] = {model: [] for model in protocol.models}

    def contender(model: str) -> Callable[[], float]:
        own = [unit for unit in units if unit.model == model]

        def act() -> None:
            first = len(tokens[model]) * batches
            jobs = [own[place % len(own)] for place in range(first, first + batches)]
            made = execute(Job(*unit) for unit in jobs)
            tokens[model].append(sum(body["tokens"] for one in made for body, _ in one.records.values()))

        return clocked(act, protocol.generation.device)

    times = alternate({model: contender(model) for model in protocol.models}, repetitions)
    rows = []
    for model in protocol.models:
        made = tokens[model][1:]  # the first round warmed up
        each = sorted(count / spent for count, spent in zip(made, times.seconds[model], strict=True))
        middle = each[len(each) // 2]
        rows.append(
            [
                model,
                f"{protocol.generation.workers} x {protocol.generation.lanes_per_batch}",
                f"{middle:,.0f} [{each[0]:,.0f}, {each[-1]:,.0f}]",
                at_least(middle, TOKENS_A_SECOND, "{:,.0f}"),
            ]
        )
    return table(("model", "lanes at once", "tokens/s", "target"), rows)


def paired(models: Sequence[str], before: Path, problems: int, repetitions: int) -> str:
    """Process time of both trees, a ratio a round. Raises RuntimeError where they do not say the same."""
    rows = []
    for model in models:
        trees = {"before": Asked(before, model, problems), "now": Asked(Path.cwd(), model, problems)}
        times = alternate({name: tree.seconds for name, tree in trees.items()}, repetitions)
        if len({tree.said for tree in trees.values()}) > 1:
            raise RuntimeError(f"{model}: the two trees do not make the same texts")
        _, tokens = trees["now"].said
        rates = [f"{tokens / times.median(name):,.0f}" for name in trees]
        ratio = times.ratio("before", "now")
        rows.append([model, f"{tokens:,}", *rates, span(ratio), at_least(ratio.median, TIMES_FASTER)])
    return table(("model", "tokens", "before: tokens/s", "now: tokens/s", "before / now", "target"), rows)


class Asked:
    """The engine of a tree, in a process of its own: benchmarks/decoded.py. said: digest and tokens."""

    def __init__(self, tree: Path, model: str, problems: int) -> None:
        script = Path(__file__).with_name("decoded.py").resolve()
        self.said = ("", 0)
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(script), model, str(problems)],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree.resolve()), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        made = json.loads(self.process.stdout.readline())
        self.said = (made["digest"], made["tokens"])
        return float(made["seconds"])


def selectors(repetitions: int) -> str:
    source = torch.Generator().manual_seed(0)
    contenders = {}
    for n, k in SIZES:
        scores = torch.randn(n, generator=source)
        unit = torch.nn.functional.normalize(torch.randn(n, WIDTH, generator=source), dim=-1)
        for name, select in (("plain", plain_diverse), ("ours", select_diverse)):
            contenders[f"{name} {n}"] = selecting(select, scores, unit, k)
    times = alternate(contenders, repetitions)
    rows = []
    for n, k in SIZES:
        ratio = times.ratio(f"plain {n}", f"ours {n}")
        each = [f"{1000 * times.median(f'{name} {n}'):.1f} ms" for name in ("plain", "ours")]
        target = at_least(ratio.median, TIMES_FASTER) if n == SIZES[-1][0] else ""
        rows.append([f"{k} of {n}", *each, span(ratio), target])
    return table(("kept", "plain", "ours", "plain / ours", "target"), rows)


def each_head(repetitions: int) -> str:
    source = torch.Generator().manual_seed(0)
    values = torch.randn(HEADS, LONG, WIDTH, generator=source)
    drawn = torch.randn(1, HEADS, LONG, generator=source)
    filled = torch.ones(HEADS, LONG, dtype=torch.bool)
    measured: tuple[CacheSignal, ...] = (MeanValues(), UnitValues())
    signals: dict[Signal, Any] = {one: (one.summarise(0, values, values, filled),) for one in measured}
    view = View(torch.arange(LONG), 1, HEADS, frozenset(), 0, signals)
    none, counts = torch.zeros(1, 1, LONG, dtype=torch.bool), torch.full((1, HEADS), LEFT)
    rows: dict[str, tuple[Diverse, Tensor]] = {
        "one set": (Diverse(WEIGHT), drawn[:, :1].expand_as(drawn)),
        f"{HEADS} sets": (DiverseEach(WEIGHT), drawn),
    }

    def act(selection: Diverse, scores: Tensor) -> Callable[[], object]:
        return lambda: selection.select(view, Scores(scores), none, counts)

    acts = {name: act(*parts) for name, parts in rows.items()}
    times = alternate({name: clocked(one, "cpu") for name, one in acts.items()}, repetitions)
    last = f"{HEADS} sets"
    found = [
        [
            f"{LEFT} of {LONG}, {name}",
            f"{1000 * times.median(name):.0f} ms",
            span(times.ratio(name, "one set")) if name == last else "",
            f"{largest(act) / 2**20:.0f} MiB",
            f"{4 * LONG**2 / 2**20:.0f} MiB",
        ]
        for name, act in acts.items()
    ]
    return table(("kept", "time", "to one set", "largest tensor", "n x n"), found)


def largest(act: Callable[[], object]) -> int:
    """Bytes of the largest tensor that is made meanwhile."""
    sizes = [0]

    class Watching(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = function(*args, **(kwargs or {}))
            if isinstance(made, Tensor):
                sizes.append(made.numel() * made.element_size())
            return made

    with Watching():
        act()
    return max(sizes)


def selecting(
    select: Callable[[torch.Tensor, torch.Tensor, int, float], torch.Tensor],
    scores: torch.Tensor,
    unit: torch.Tensor,
    k: int,
) -> Callable[[], float]:
    return clocked(lambda: select(scores, unit, k, WEIGHT), "cpu")


if __name__ == "__main__":
    raise SystemExit(main())
