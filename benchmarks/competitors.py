"""What a policy adds to a prefill in all: its signals and its first event, beside one that keeps everything.

Both go through the engine, one lane each, up to the slots that are kept: fed once, checked, scored, chosen.

    python -m benchmarks.competitors
    python -m benchmarks.competitors --model random-8b --device cuda --dtype bfloat16 --clock wall

With --clock processor seconds are those that the process was at work, all threads together: on a machine that
others use too they vary less than those of a clock on the wall, which --clock wall takes.
"""

import sys
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter, process_time

import torch

from benchmarks.pairs import Ratio, alternate, clocked
from benchmarks.report import at_most, header, percent, table
from benchmarks.setting import Subject, context, lane_of, open_subject, options, setting
from protocol.engine import Prompt, Request
from protocol.engine.observation import observe_forward
from protocol.engine.prefill_fan_out import fork_lanes

FULL, SHARE = "full", 0.3
TARGET = 10  # per cent
PROMISED = ("caote", "expected-attention")
CLOCKS = {"wall": perf_counter, "processor": process_time}  # the second: all threads of the process together


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = options("competitors", __doc__, repetitions=5)
    made.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096], metavar="N")
    made.add_argument("--clock", choices=tuple(CLOCKS), default="processor")
    made.add_argument(
        "--policies",
        nargs="+",
        default=["tova", "caote", "expected-attention", "defensivekv", "layer-defensivekv"],
        metavar="NAME",
    )
    arguments = made.parse_args(argv)
    chosen = setting(arguments)
    subject = open_subject(chosen)
    costs: dict[str, list[Ratio]] = {name: [] for name in arguments.policies}
    forwards = []
    for length in arguments.lengths:
        ids = context(subject, length)
        plain: list[float] = []
        with observe_forward(subject.network), torch.no_grad():
            acts = {name: forking(subject, ids, name) for name in (FULL, *costs)}
            timed = {name: clocked(act, chosen.device, CLOCKS[arguments.clock]) for name, act in acts.items()}
            for name in costs:
                times = alternate({FULL: timed[FULL], name: timed[name]}, arguments.repetitions)
                plain += times.seconds[FULL]
                costs[name].append(times.ratio(name, FULL).minus(1))
        forwards.append(median(plain))
    rows = [["every slot, seconds", *(f"{seconds:.2f}" for seconds in forwards), ""]]
    for name, ratios in costs.items():
        most = at_most(100 * ratios[-1].median, TARGET, "{:.1f} %") if name in PROMISED else ""
        rows.append([name, *map(percent, ratios), most])
    columns = [f"n = {length}" for length in arguments.lengths]
    print(header(chosen, "competitors", argv))
    print(table((f"{arguments.clock} time", *columns, f"target at n = {arguments.lengths[-1]}"), rows))
    return 0


def forking(subject: Subject, ids: tuple[int, ...], name: str) -> Callable[[], object]:
    prompt = Prompt(ids, ())
    request = Request("p", prompt, (lane_of(name, None if name == FULL else SHARE, prompt),))

    def act() -> object:
        forked = fork_lanes(subject, request, None)
        if forked.failures:
            raise SystemExit(f"lane {name} failed: {forked.failures[0].reason}")
        return forked

    return act


if __name__ == "__main__":
    raise SystemExit(main())
