"""What measuring costs: the prefill with the signals that a policy needs, on top of the prefill without any.

A line for every signal and for all of them together; policies that need just this signal are named beside
it, those that need several have a line of their own. Both prefills go through the engine; the one without
signals attends by the fused kernel alone.

    python -m benchmarks.signals
    python -m benchmarks.signals --model random-8b --device cuda --dtype bfloat16 --lengths 4096 16384
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from statistics import median
from typing import Any

import torch

from benchmarks.pairs import Ratio, alternate, clocked
from benchmarks.report import at_most, header, percent, table
from benchmarks.setting import (
    Subject,
    context,
    every_signal,
    hidden_layers,
    needs_by_policy,
    open_subject,
    options,
    setting,
)
from policies import MeasuredSignal
from protocol.engine import prefill
from protocol.engine.observation import observe_forward

NONE, ALL = "none", "all"


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = options("signals", __doc__, repetitions=5)
    made.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096], metavar="N")
    arguments = made.parse_args(argv)
    chosen = setting(arguments)
    subject = open_subject(chosen)
    needed = needs_by_policy(subject)
    measured = contenders(every_signal(subject), needed)
    users = {
        name: [policy for policy, needs in needed.items() if needs == signals] for name, signals in measured.items()
    }
    costs: dict[str, list[Ratio]] = {name: [] for name in measured if name != NONE}
    forwards = []
    for length in arguments.lengths:
        ids = context(subject, length)
        plain: list[float] = []
        with observe_forward(subject.network, hidden_layers(subject, measured[ALL])), torch.no_grad():
            acts = {name: clocked(feeding(subject, ids, signals), chosen.device) for name, signals in measured.items()}
            for name in costs:
                # Each beside its own forward: a share of a few percent is lost over a longer time.
                times = alternate({NONE: acts[NONE], name: acts[name]}, arguments.repetitions)
                plain += times.seconds[NONE]
                costs[name].append(times.ratio(name, NONE).minus(1))
        forwards.append(median(plain))
    rows = [["the forward alone, seconds", "", *(f"{seconds:.2f}" for seconds in forwards), ""]]
    for name in costs:
        target = ""
        if name == ALL or users[name]:
            target = at_most(100 * costs[name][-1].median, 25 if name == ALL else 10, "{:.1f} %")
        rows.append([name, ", ".join(users[name]), *map(percent, costs[name]), target])
    columns = [f"n = {length}" for length in arguments.lengths]
    print(header(chosen, "signals", argv))
    print(table(("signal", "needed by", *columns, f"target at n = {arguments.lengths[-1]}"), rows))
    return 0


def contenders(
    signals: Iterable[MeasuredSignal], needed: Mapping[str, frozenset[MeasuredSignal]]
) -> dict[str, frozenset[MeasuredSignal]]:
    """The sets of signals to measure: none, each alone, those of each policy, all."""
    signals = tuple(signals)
    found: dict[str, frozenset[MeasuredSignal]] = {NONE: frozenset()}
    found |= {label(signal): frozenset({signal}) for signal in signals}
    for needs in needed.values():
        if needs not in found.values():
            found[" + ".join(sorted(map(label, needs)))] = needs
    return {**found, ALL: frozenset(signals)}


def label(signal: Any) -> str:
    """The signal with the settings that are not its defaults."""
    settings = ((field, getattr(signal, field.name)) for field in fields(signal))
    changed = (f"{field.name}={value}" for field, value in settings if value != field.default)
    return f"`{type(signal).__name__}({', '.join(changed)})`"


def feeding(subject: Subject, ids: tuple[int, ...], signals: frozenset[MeasuredSignal]) -> Callable[[], object]:
    return lambda: prefill.feed(subject, ids, signals, chunk=None)


if __name__ == "__main__":
    raise SystemExit(main())
