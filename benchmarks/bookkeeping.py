"""What each decode-time method's bookkeeping costs beside `1d`, which measures nothing between its events.

Lanes of equal context, budget and length decode under a method and under `1d`, in turn, with the same
interval; the ratio of their times holds all that the method folds at every token and all of its events. State
is what the method carries beside the slots, at its most, as a share of the keys and values that a lane holds
on average. Statistics that a model lacks are measured on the context first.

    python -m benchmarks.bookkeeping
    python -m benchmarks.bookkeeping --model chain-llama --methods r-kv crystal-kv-lite
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import mean

import policies
from benchmarks.decode import copies, decoded
from benchmarks.pairs import alternate
from benchmarks.report import at_most, header, span, table
from benchmarks.setting import Subject, context, open_subject, options, outcomes, setting
from policies import Cadence
from protocol import engine
from protocol.engine import Prompt, Request
from protocol.models import query_statistics

BASE = "1d"
METHODS = (
    *("r-kv", "snapkv-rkv", "streamingllm-rkv", "raas", "longflow", "lagkv", "ahakv", "thinkv"),
    *("crystal-kv-lite", "crystal-kv", "hs-variance", "epikv", "band-adaptive", "kv-key", "kv-val"),
    *("lagkv-causal", "attn-x-hs", "segment-hs"),
)
# Ratios of which more is a miss, by interval.
TARGETS = {16: 1.15, 1: 1.40}


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = options("bookkeeping", __doc__, repetitions=3)
    made.add_argument("--methods", nargs="+", default=METHODS, metavar="POLICY", help="default: all of them")
    made.add_argument("--lanes", type=int, default=12, help="that decode together; default 12")
    made.add_argument("--budget", type=int, default=256, help="slots of a KV head; default 256")
    made.add_argument("--context", type=int, default=192, help="tokens of the prompt; default 192")
    made.add_argument("--new-tokens", type=int, default=144, help="of each lane; default 144")
    arguments = made.parse_args(argv)
    chosen = setting(arguments)
    subject = open_subject(chosen)
    prompt = Prompt(context(subject, arguments.context), ())
    subject = with_statistics(subject, prompt)
    print(header(chosen, "bookkeeping", argv))
    rows = {name: [name] for name in arguments.methods}
    for interval, target in TARGETS.items():
        contenders = {
            name: contender(subject, prompt, name, interval, arguments) for name in (BASE, *arguments.methods)
        }
        times = alternate(contenders, arguments.repetitions)
        for name in arguments.methods:
            ratio = times.ratio(name, BASE)
            rows[name] += [span(ratio), at_most(ratio.median, target, "{:.2f}")]
    for name in arguments.methods:
        rows[name].append(state(subject, prompt, name, arguments))
    columns = [part for interval in TARGETS for part in (f"time to {BASE}, interval {interval}", "target")]
    print(table(("method", *columns, "state of keys and values"), list(rows.values())))
    return 0


def with_statistics(subject: Subject, prompt: Prompt) -> Subject:
    """The model with statistics of both names, measured on the context where it has none."""
    found, _ = query_statistics.measure(subject.network, [prompt.context], len(prompt.context))
    return subject._replace(statistics={"text": found, "traces": found, **subject.statistics})


def contender(
    subject: Subject, prompt: Prompt, name: str, interval: int, arguments: argparse.Namespace
) -> Callable[[], float]:
    lanes = lanes_of(name, interval, arguments)
    return lambda: decoded(subject, prompt, lanes, arguments.new_tokens).seconds


def lanes_of(name: str, interval: int, arguments: argparse.Namespace) -> list[engine.Lane]:
    policy = policies.get(name)
    if policy.cadence.interval is None:  # a method with a cadence of its own keeps it
        policy = replace(policy, cadence=Cadence(interval=interval))
    return copies(policy, arguments.budget, arguments.lanes)


def state(subject: Subject, prompt: Prompt, name: str, arguments: argparse.Namespace) -> str:
    """Bytes of state, as a share of those of the slots held on average."""
    lanes = lanes_of(name, 16, arguments)[:1]
    ran = engine.run(
        subject,
        [Request("state", prompt, tuple(lanes))],
        max_new_tokens=arguments.new_tokens,
        max_concurrent=1,
    )
    (outcome,) = outcomes(ran, lanes)
    config = subject.network.config
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    slot = 2 * head * subject.network.dtype.itemsize
    return f"{100 * outcome.state_bytes / (slot * mean(outcome.slots)):.1f} %"


if __name__ == "__main__":
    raise SystemExit(main())
