"""How fast lanes decode, and what events on the way cost.

First table: new tokens a second, all lanes together, against lanes and slots of each lane. Streaming chooses
the slots, so that the kept slots cost nothing to find; the prefill is not counted.

Second table: 12 lanes with events every 64 tokens, of 256 slots each after one. The share is the engine's
own clock: seconds spent on events and on looking for them, of the seconds of decoding. The ratio compares
with the same lanes without events, whose budget is chosen so that both hold as many slots on average; it
includes what the policy measures at every token.

Third table: a step whose slots are packed, to the same step of slots as computed: lanes that hold the whole context.
Processor time from the first step to the last, since wall time of so short a step follows what else runs.

    python -m benchmarks.decode
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import mean, median
from time import process_time
from typing import NamedTuple

import policies
from benchmarks.pairs import Ratio, alternate
from benchmarks.report import at_most, header, percent, span, table
from benchmarks.setting import Subject, context, open_subject, options, outcomes, setting
from policies import Cadence, Policy
from protocol import engine
from protocol.engine import Lane, Prompt, Request

INTERVAL = 64
EVENTS = 2
LANES = 12
BUDGET = 256
PACKED = ("verbatim", "f16", "q8_0", "q5_0", "q4_0", "fp8", "kivi-4", "kivi-2")
EVENTFUL = ("streaming", "snapkv", "ada-snapkv", "h2o")


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = options("decode", __doc__, repetitions=3)
    made.add_argument("--length", type=int, default=1536, help="tokens of the first table's context; default 1536")
    made.add_argument("--new-tokens", type=int, default=32, help="of the first table; default 32")
    made.add_argument("--lanes", type=int, nargs="+", default=[1, 4, 12, 24, 48], metavar="N")
    made.add_argument("--budgets", type=int, nargs="+", default=[64, 256, 1024], metavar="SLOTS")
    arguments = made.parse_args(argv)
    chosen = setting(arguments)
    subject = open_subject(chosen)
    prompt = Prompt(context(subject, arguments.length), ())
    print(header(chosen, "decode", argv))
    print(rates(subject, prompt, arguments.lanes, arguments.budgets, arguments.new_tokens, arguments.repetitions))
    print()
    print(events(subject, arguments.repetitions))
    print()
    print(packed(subject, prompt, arguments.new_tokens, arguments.repetitions))
    return 0


class Decoded(NamedTuple):
    """seconds: without the prefill and the first events. in_events: the share spent on the others. slots:
    that a KV head of a lane held, on average over lanes and forwards.
    """

    seconds: float
    in_events: float
    slots: float


def decoded(subject: Subject, prompt: Prompt, lanes: Sequence[Lane], new_tokens: int) -> Decoded:
    """A run in which all lanes decode from the first step to the last."""
    request, config = Request("decode", prompt, tuple(lanes)), subject.network.config
    ran = engine.run(subject, [request], max_new_tokens=new_tokens, max_concurrent=len(lanes))
    seconds = ran.seconds - ran.answers[0].prefill_seconds
    held = mean(mean(outcome.slots) for outcome in outcomes(ran, lanes))
    heads: int = config.num_hidden_layers * config.num_key_value_heads
    return Decoded(seconds, ran.event_seconds / seconds, held / heads)


def copies(policy: Policy, budget: int | None, count: int) -> list[Lane]:
    return [Lane(f"lane {number}", policy, budget, seed=number) for number in range(count)]


def rates(
    subject: Subject, prompt: Prompt, counts: Sequence[int], budgets: Sequence[int], new_tokens: int, repetitions: int
) -> str:
    columns = {f"{budget} slots": copies(policies.get("streaming"), budget, max(counts)) for budget in budgets}
    columns[f"full ({len(prompt.context)})"] = copies(policies.get("full"), None, max(counts))

    def contender(lanes: list[Lane]) -> Callable[[], float]:
        return lambda: decoded(subject, prompt, lanes, new_tokens).seconds

    times = alternate(
        {f"{count} lanes, {column}": contender(lanes[:count]) for count in counts for column, lanes in columns.items()},
        repetitions,
    )
    # The first of the new tokens comes from the prefill's logits.
    rows = [
        [str(count)]
        + [f"{count * (new_tokens - 1) / times.median(f'{count} lanes, {column}'):.1f}" for column in columns]
        for count in counts
    ]
    return table(("lanes", *(f"tokens/s at {column}" for column in columns)), rows)


def events(subject: Subject, repetitions: int) -> str:
    prompt = Prompt(context(subject, 2 * BUDGET), ())
    steps = EVENTS * INTERVAL
    runs: dict[str, list[Decoded]] = {}

    def contender(name: str, policy: Policy, budget: int) -> Callable[[], float]:
        lanes = copies(policy, budget, LANES)
        runs[name] = []

        def act() -> float:
            runs[name].append(decoded(subject, prompt, lanes, steps + 1))
            return runs[name][-1].seconds

        return act

    contenders = {}
    for name in EVENTFUL:
        quiet = policies.get(name)
        loud = replace(quiet, cadence=Cadence(interval=INTERVAL))
        contenders[name] = contender(name, loud, BUDGET)
        contenders[twin(name)] = contender(twin(name), quiet, BUDGET + INTERVAL // 2 - steps // 2)
    times = alternate(contenders, repetitions)
    rows = []
    for name in EVENTFUL:
        shares = [run.in_events for run in runs[name][1:]]  # the first one warmed up
        share = Ratio(median(shares), min(shares), max(shares))
        held = f"{runs[name][-1].slots:.0f} / {runs[twin(name)][-1].slots:.0f}"
        ratio = span(times.ratio(name, twin(name)))
        rows.append([name, percent(share), at_most(100 * share.median, 3, "{:.1f} %"), ratio, held])
    columns = ("policy", "in events", "target", "time to without events", "mean slots with / without")
    return table(columns, rows)


def packed(subject: Subject, prompt: Prompt, new_tokens: int, repetitions: int) -> str:
    """The same lanes in each state, one after the other in every round."""

    def contender(state: str) -> Callable[[], float]:
        request = Request("packed", prompt, tuple(copies(policies.get("full", {"state": state}), None, LANES)))

        def act() -> float:
            clock: list[float] = []
            engine.run(
                subject,
                [request],
                max_new_tokens=new_tokens,
                max_concurrent=LANES,
                report=lambda doing: clock.append(process_time()) if doing.steps else None,
            )
            return clock[-1] - clock[0]

        return act

    times = alternate({state: contender(state) for state in PACKED}, repetitions)
    ratios = {state: times.ratio(state, PACKED[0]) for state in PACKED}
    rows = [
        [state, span(ratio), at_most(ratio.median, 1.5, "{:.2f}") if state == "q8_0" else ""]
        for state, ratio in ratios.items()
    ]
    return table(("state", f"step of {LANES} lanes to one of slots as computed", "target"), rows)


def twin(name: str) -> str:
    return f"{name} without events"


if __name__ == "__main__":
    raise SystemExit(main())
