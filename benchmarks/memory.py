"""What measuring and evicting do to memory.

First table: peak memory of the engine's prefill with all signals and without any, against the length n. The
peak counts what the allocator of torch handed out during the prefill and had not got back: on the CPU the
profiler's account of it, which is exact and repeats (the resident set of a process also counts what the C
library keeps for later), on CUDA torch.cuda.max_memory_allocated. The largest allocation is the largest of
a size that the prefill without signals never asks for; it can exceed the extra at the peak, since the peak
may lie elsewhere, in an MLP. Exponents are slopes of log(bytes) over log(n); up to 1.1 is taken as linear.

Second table: bytes allocated for the slots of a lane right after the first event, against those of a lane
that keeps everything, both with room for the new tokens.

    python -m benchmarks.memory
    python -m benchmarks.memory --model random-8b --device cuda --dtype bfloat16 --lengths 4096 16384 32768
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile

from benchmarks.report import at_least, at_most, exponent, header, table
from benchmarks.setting import (
    Subject,
    context,
    every_signal,
    hidden_layers,
    lane_of,
    open_subject,
    options,
    outcomes,
    setting,
)
from policies import MeasuredSignal
from protocol import engine
from protocol.engine import Prompt, Request, prefill
from protocol.engine.observation import observe_forward

MIB = 2**20
SHARE = 0.3
EVICTING = ("snapkv", "ada-snapkv")  # heads of one size, and heads of sizes of their own
NEW_TOKENS = 16


class Account(NamedTuple):
    """Bytes: the most that was held at once beyond what was held before, and every size asked for."""

    peak: int
    sizes: frozenset[int]


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = options("memory", __doc__)
    made.add_argument("--lengths", type=int, nargs="+", default=[2048, 4096, 8192], metavar="N")
    arguments = made.parse_args(argv)
    chosen = setting(arguments)
    subject = open_subject(chosen)
    signals = every_signal(subject)
    plain, extra, largest, freed = [], [], [], []
    for length in arguments.lengths:
        ids = context(subject, length)
        without = account(feeding(subject, ids, ()), chosen.device)
        measured = account(feeding(subject, ids, signals), chosen.device)
        plain.append(without.peak)
        extra.append(measured.peak - without.peak)
        largest.append(max(measured.sizes - without.sizes))
        freed.append(shares_freed(subject, ids))
        print(
            f"n = {length}: peak of {without.peak} bytes without signals, {measured.peak} with all",
            file=sys.stderr,
            flush=True,
        )
    columns = [f"n = {length}" for length in arguments.lengths]
    print(header(chosen, "memory", argv))
    rows = [
        growth(name, sizes, arguments.lengths)
        for name, sizes in (
            ("peak of the forward alone", plain),
            ("extra at the peak with all signals", extra),
            ("largest allocation that signals add", largest),
        )
    ]
    print(table(("MiB", *columns, "exponent", "target"), rows))
    print()
    print(
        table(
            (f"bytes freed at kept share {SHARE}, of nominal {1 - SHARE:.0%}", *columns, "target"),
            [freed_by(name, [shares[name] for shares in freed]) for name in EVICTING],
        )
    )
    return 0


def feeding(subject: Subject, ids: tuple[int, ...], signals: Iterable[MeasuredSignal]) -> Callable[[], object]:
    signals = tuple(signals)

    def act() -> object:
        with observe_forward(subject.network, hidden_layers(subject, signals)), torch.no_grad():
            return prefill.feed(subject, ids, signals, chunk=None)

    return act


def account(act: Callable[[], object], device: str) -> Account:
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        act()
    kind = DeviceType.CUDA if device == "cuda" else DeviceType.CPU
    results: Any = profiled.profiler
    changes = [
        event.nbytes()
        for event in sorted(results.kineto_results.events(), key=lambda event: event.start_ns())
        if event.name() == "[memory]" and event.device_type() == kind
    ]
    peak = torch.cuda.max_memory_allocated() - before if device == "cuda" else max(accumulate(changes))
    return Account(peak, frozenset(size for size in changes if size > 0))


def shares_freed(subject: Subject, ids: tuple[int, ...]) -> dict[str, float]:
    """Of each evicting policy: the share of the full lane's bytes that it does without."""
    prompt = Prompt(ids, ())
    lanes = (lane_of("full", None, prompt), *(lane_of(name, SHARE, prompt) for name in EVICTING))
    ran = engine.run(subject, [Request("memory", prompt, lanes)], max_new_tokens=NEW_TOKENS)
    full, *others = (outcome.allocated[0] for outcome in outcomes(ran, lanes))
    return {name: 1 - size / full for name, size in zip(EVICTING, others, strict=True)}


def growth(name: str, sizes: Sequence[int], lengths: Sequence[int]) -> list[str]:
    shown, slope = [f"{size / MIB:.1f}" for size in sizes], exponent(lengths, sizes)
    if slope is None:
        return [name, *shown, "", ""]
    return [name, *shown, f"{slope:.2f}", "" if name.startswith("peak") else at_most(slope, 1.1)]


def freed_by(name: str, shares: Sequence[float]) -> list[str]:
    of_nominal = [100 * share / (1 - SHARE) for share in shares]
    return [name, *(f"{share:.1f} %" for share in of_nominal), at_least(min(of_nominal), 95, "{:.1f} %")]


if __name__ == "__main__":
    raise SystemExit(main())
