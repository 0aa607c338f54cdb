"""What coded and merged slots cost while decoding, and what they hold.

Lanes whose states differ and whose slots are as many: chosen by Streaming, so that finding them costs
nothing, and held to the end without an event. "Merged" slots are those of syn_mem-3, a quarter of them means
of what is dropped, with their weight and log N; "coded" ones hold values as 32 coefficients, of random bases,
which cost what calibrated ones do. Ratios are of processor time on one thread, which a busy machine does not
change much: that of a run less that of one which ends with the first token, so that the prefill and the first
event are out of it. Bytes are those of the tensors right after that event, with room for the new tokens.

Second table: 12 lanes with events every 64 tokens, scored as `1d` is, so that merging happens at every event.

    python -m benchmarks.states
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import process_time
from typing import Any

import torch

import policies
from benchmarks.decode import INTERVAL, LANES, copies
from benchmarks.pairs import alternate
from benchmarks.report import at_most, header, span, table
from benchmarks.setting import Subject, context, open_subject, options, outcomes, setting
from policies import Cadence, Policy, Statistics
from policies.calibration import Bases
from policies.subspace import Subspace
from protocol import engine
from protocol.engine import Lane, Prompt, Request

RANK = 32
MOST = 1.5
WIDTH, SHARE = 64, 0.76


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = options("states", __doc__, repetitions=3)
    made.set_defaults(threads=1)
    made.add_argument("--length", type=int, default=320, help="tokens of the context; default 320")
    made.add_argument("--new-tokens", type=int, default=17, help="of the first table; default 17")
    made.add_argument("--lanes", type=int, nargs="+", default=[1, 12], metavar="N")
    made.add_argument("--budgets", type=int, nargs="+", default=[64, 256], metavar="SLOTS")
    arguments = made.parse_args(argv)
    chosen = setting(arguments)
    subject = calibrated(open_subject(chosen))
    prompt = Prompt(context(subject, arguments.length), ())
    print(header(chosen, "states", argv))
    print(slots(subject, prompt, arguments.lanes, arguments.budgets, arguments.new_tokens, arguments.repetitions))
    print()
    print(events(subject, prompt, arguments.budgets, arguments.repetitions))
    return 0


def calibrated(subject: Subject) -> Subject:
    """The subject with random bases and random statistics of its queries."""
    config = subject.network.config
    layers, heads, kv_heads, width = (
        config.num_hidden_layers,
        config.num_attention_heads,
        config.num_key_value_heads,
        width_of(subject),
    )
    device, generator = subject.network.device, torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(layers, kv_heads, width, RANK, generator=generator)).Q
    mean = torch.randn(layers, heads, width // 2, dtype=torch.complex64, generator=generator)
    direction = torch.nn.functional.normalize(torch.randn(width, generator=generator), dim=0)
    frequencies = subject.network.base_model.rotary_emb.inv_freq.double()
    statistics = Statistics(mean.to(device), 1.5 * mean.abs().to(device), direction.to(device), frequencies, 1.0)
    bases = Bases(torch.zeros(layers, kv_heads, width, device=device), basis.to(device))
    known: dict[str, Any] = {**dict.fromkeys(("text", "traces"), statistics), "bases": bases}
    return subject._replace(statistics=known)


def width_of(subject: Subject) -> int:
    """Numbers of a key."""
    config = subject.network.config
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def by_state(policy: Policy) -> Mapping[str, Policy]:
    return {
        "verbatim": policy,
        f"coded, rank {RANK}": replace(policy, state=Subspace(RANK)),
        "merged": replace(policy, state=policies.get("syn_mem-3").state),
    }


def slots(
    subject: Subject,
    prompt: Prompt,
    counts: Sequence[int],
    budgets: Sequence[int],
    new_tokens: int,
    repetitions: int,
) -> str:
    """Time and bytes of each state, against lanes that store verbatim."""
    states = by_state(policies.get("streaming"))

    def contender(policy: Policy, count: int, budget: int) -> Callable[[], float]:
        lanes = copies(policy, budget, count)
        return lambda: decoding(subject, prompt, lanes, new_tokens)

    def named(state: str, count: int, budget: int) -> str:
        return f"{state}: {count} lanes of {budget}"

    places = [(count, budget) for count in counts for budget in budgets]
    times = alternate(
        {named(state, *place): contender(policy, *place) for place in places for state, policy in states.items()},
        repetitions,
    )
    rows = []
    for count, budget in places:
        whole = allocated(subject, prompt, states["verbatim"], budget, new_tokens)
        for state in list(states)[1:]:
            ratio = times.ratio(named(state, count, budget), named("verbatim", count, budget))
            share = allocated(subject, prompt, states[state], budget, new_tokens) / whole
            held = f"{share:.3f}"
            if state.startswith("coded") and width_of(subject) == WIDTH:
                held += f", {at_most(share, SHARE)}"
            rows.append([state, str(count), str(budget), span(ratio), at_most(ratio.median, MOST), held])
    columns = ("slots", "lanes", "of", "decode time to verbatim", "target", "bytes to verbatim")
    return table(columns, rows)


def decoding(subject: Subject, prompt: Prompt, lanes: Sequence[Lane], new_tokens: int) -> float:
    """Processor seconds of a run in which all lanes decode to the end, beyond those of its first token."""
    spent = []
    for count in (1, new_tokens):
        start = process_time()
        request = Request("states", prompt, tuple(lanes))
        ran = engine.run(subject, [request], max_new_tokens=count, max_concurrent=len(lanes))
        spent.append(process_time() - start)
        outcomes(ran, lanes)  # none may have failed
    return spent[1] - spent[0]


def allocated(subject: Subject, prompt: Prompt, policy: Policy, budget: int, new_tokens: int) -> int:
    """Bytes of one lane after the first event."""
    lanes = tuple(copies(policy, budget, 1))
    ran = engine.run(subject, [Request("states", prompt, lanes)], max_new_tokens=new_tokens)
    (outcome,) = outcomes(ran, lanes)
    return outcome.allocated[0]


def events(subject: Subject, prompt: Prompt, budgets: Sequence[int], repetitions: int) -> str:
    """Lanes of `1d` with events, and the same with merging at each of them, or with coded slots moved."""
    states = by_state(policies.get("1d", cadence=Cadence(interval=INTERVAL)))

    def contender(policy: Policy, budget: int) -> Callable[[], float]:
        lanes = copies(policy, budget, LANES)
        return lambda: decoding(subject, prompt, lanes, INTERVAL + 2)

    times = alternate(
        {f"{state} at {budget}": contender(policy, budget) for budget in budgets for state, policy in states.items()},
        repetitions,
    )
    rows = []
    for budget in budgets:
        for state in list(states)[1:]:
            ratio = times.ratio(f"{state} at {budget}", f"verbatim at {budget}")
            rows.append([state, str(budget), span(ratio), at_most(ratio.median, MOST)])
    return table(("slots, with events", "of", "decode time to verbatim", "target"), rows)


if __name__ == "__main__":
    raise SystemExit(main())
