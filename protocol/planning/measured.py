"""Measurement of the rates of this device within seconds: matrix products, attention and engine overhead.

The overhead of the engine is measured on small random networks, at two depths and two numbers of lanes, where
products are negligible; each policy of a study is compared with lanes that retain everything. The registered
models are not run: the rates are those of the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch.nn.functional import linear
from transformers import LlamaConfig, LlamaForCausalLM

from analysis.output.phases import Tell
from policies import Bases, Mark, Policy, Routes, Statistics, Thresholds
from policies.full import full
from policies.signals import BLOCK, attention_rows
from protocol import engine
from protocol.engine import Lane, LaneFailure, Outcome, Prompt, Request, prefill, sampling
from protocol.evidence.refusals import BadInput
from protocol.models.load import DTYPES
from protocol.planning.arithmetic import Arm, Host, Rates, Shape

__all__ = ["Asked", "measured"]

DEPTHS = (4, 8)  # layers; with fewer, bands of layers that some policies read would overlap
LANES = (2, 16)
ALONE = 8  # lanes of a measured policy
STEPS = 48
PROMPT = 48  # tokens
VOCABULARY = 64
WORKING_SET = 2**28  # bytes of weights to read in turn: more than a processor cache holds
REPEATED = 2
LOAD = 1e9  # bytes a second read from disk and hashed, an assumption


class Asked(NamedTuple):
    """What to measure for a study. arms: (policy, slots) by name. prompt: tokens. lanes: decoded at once."""

    shape: Shape
    dtype: str
    prompt: int
    lanes: int
    interval: int | None
    arms: Mapping[str, tuple[Policy, int]]


class Small(NamedTuple):
    """A random network for the engine, which never stops by itself."""

    name: str
    network: Any
    statistics: Mapping[str, Any]
    stop_ids: frozenset[int] = frozenset()
    sentence_ends: frozenset[int] = frozenset({7})

    def lines(self, token_ids: Sequence[int], mark: Mark) -> tuple[range, ...]:
        return ()


class Clock(NamedTuple):
    """A stopwatch. now: seconds. device: the device to synchronize with."""

    now: Callable[[], float]
    device: str

    def of(self, act: Callable[[], object], at_least: float = 0.0) -> float:
        """Return seconds of one call after a warm-up: the minimum of runs of at least `at_least` seconds."""
        act()
        found = float("inf")
        for _ in range(REPEATED):
            count, start = 0, self._read()
            while True:
                act()
                count += 1
                taken = self._read() - start
                if taken >= at_least:
                    break
            found = min(found, taken / count)
        return found

    def _read(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return self.now()


def measured(
    asked: Asked,
    device: str = "cpu",
    now: Callable[[], float] = time.perf_counter,
    tell: Tell = lambda at: None,
) -> tuple[Rates, dict[str, str]]:
    """Return the rates of this device, and the reason for each arm that could not be measured."""
    clock = Clock(now, device)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        host, arms, without = _host(asked, clock)
        found = Rates(
            linear=_linear(asked, clock, asked.prompt),
            attention=_attention(asked, clock),
            watched=_watched(asked, clock),
            rows=_linear(asked, clock, asked.lanes),
            weights=_weights(asked, clock),
            cache=_cache(asked, clock),
            load=LOAD,
            beside=device == "cuda",
            host=host,
            arms=arms,
        )
    return found, without


def _drawn(asked: Asked, clock: Clock, *sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, device=clock.device).to(DTYPES[asked.dtype])


def _linear(asked: Asked, clock: Clock, tokens: int) -> float:
    """Return FLOP/s of a linear layer of the width of the model, on so many tokens, with uncached weights."""
    matrices = _matrices(asked, clock)
    tokens = max(1, min(tokens, 2048))
    given = _drawn(asked, clock, tokens, asked.shape.width)
    taken = clock.of(lambda: [linear(given, each) for each in matrices], 0.05)
    return 2 * tokens * sum(each.numel() for each in matrices) / taken


def _weights(asked: Asked, clock: Clock) -> float:
    """Return bytes/s of weights read for one token."""
    matrices = _matrices(asked, clock)
    given = _drawn(asked, clock, 1, asked.shape.width)
    taken = clock.of(lambda: [linear(given, each) for each in matrices], 0.05)
    return sum(each.nbytes for each in matrices) / taken


def _matrices(asked: Asked, clock: Clock) -> list[torch.Tensor]:
    shape = asked.shape
    size = shape.intermediate * shape.width * shape.itemsize
    count = max(1, min(shape.bytes, WORKING_SET) // size)
    return [_drawn(asked, clock, shape.intermediate, shape.width) for _ in range(count)]


def _heads(asked: Asked, clock: Clock, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    shape = asked.shape
    return (
        _drawn(asked, clock, shape.q_heads, tokens, shape.head_dim),
        _drawn(asked, clock, shape.kv_heads, tokens, shape.head_dim),
    )


def _attention(asked: Asked, clock: Clock) -> float:
    """Return FLOP/s of the fused causal attention of one layer."""
    tokens = max(16, min(asked.prompt, 4096))
    queries, keys = _heads(asked, clock, tokens)
    scale = asked.shape.head_dim**-0.5
    taken = clock.of(lambda: prefill.fused(queries, keys, keys, scale), 0.05)
    return 2 * asked.shape.q_heads * asked.shape.head_dim * tokens**2 / taken


def _watched(asked: Asked, clock: Clock) -> float:
    """Return attention weights/s that a signal sums over the last block of rows, without the fused kernel."""
    tokens = max(16, min(asked.prompt, 4096))
    rows = min(BLOCK, tokens)
    queries, keys = _heads(asked, clock, tokens)
    scale = asked.shape.head_dim**-0.5

    def read() -> torch.Tensor:
        weights = attention_rows(queries[:, -rows:], keys, scale, tokens - rows)
        prefill.weighted(weights, keys.float())
        return weights.sum(-2)

    plain = clock.of(lambda: prefill.fused(queries[:, -rows:], keys, keys, scale), 0.05)
    taken = clock.of(read, 0.05) - plain
    return asked.shape.q_heads * rows * tokens / max(taken, 1e-9)


def _cache(asked: Asked, clock: Clock) -> float:
    """Return bytes/s of slots that one new token per lane attends to, with a mask since lanes differ."""
    from protocol.engine.stepping import attended

    shape, slots = asked.shape, 256
    lanes = max(1, min(asked.lanes, WORKING_SET // (slots * shape.slot_bytes // shape.layers)))
    keys = _drawn(asked, clock, lanes, shape.kv_heads, slots, shape.head_dim)
    queries = _drawn(asked, clock, lanes, shape.kv_heads, shape.q_heads // shape.kv_heads, shape.head_dim)
    visible = torch.ones(
        lanes, shape.kv_heads, queries.shape[2], slots, dtype=torch.bool, device=clock.device
    )
    visible[0, ..., -1] = False
    taken = clock.of(lambda: attended(queries, keys, keys, visible, shape.head_dim**-0.5), 0.05)
    return 2 * keys.nbytes / taken


def _host(asked: Asked, clock: Clock) -> tuple[Host, dict[str, Arm], dict[str, str]]:
    """Return the seconds outside of tensor operations, of all and by arm, and why arms were not measured."""
    small = {depth: _small(asked, clock, depth) for depth in DEPTHS}
    whole: dict[tuple[int, int], tuple[float, float]] = {}  # (joining, a step) by depth and lanes
    for depth, model in small.items():
        for count in LANES:
            whole[depth, count] = _run(model, clock, _lanes(full(), None, count))[:2]
    joining = _of_both({at: seconds for at, (seconds, _) in whole.items()})
    stepping = _of_both({at: seconds for at, (_, seconds) in whole.items()})
    apart = _pools(small[DEPTHS[1]], clock)
    arms, without = dict[str, Arm](), dict[str, str]()
    for name, (policy, budget) in asked.arms.items():
        try:
            arms[name] = _arm(small, clock, policy, budget, asked.interval, joining, stepping)
        except (BadInput, ValueError) as refusal:
            without[name] = " ".join(str(refusal).split())
    logit, noise = _sampling(clock)
    usual = Arm()
    if arms:
        middle = sorted(arms.values(), key=lambda arm: arm.event[0] + 32 * arm.event[1])[len(arms) // 2]
        usual = middle
    host = Host(
        stepping.own,
        stepping.layer,
        apart,
        (stepping.lane, stepping.lane_layer),
        (joining.lane, joining.lane_layer),
        logit,
        noise,
        usual,
    )
    return host, arms, without


class Both(NamedTuple):
    """Seconds = base + layers * layer + lanes * (lane + layers * lane_layer)."""

    own: float
    layer: float
    lane: float
    lane_layer: float

    def at(self, layers: int, lanes: int) -> float:
        return self.own + layers * self.layer + lanes * (self.lane + layers * self.lane_layer)


def _of_both(found: Mapping[tuple[int, int], float]) -> Both:
    """Fit the cost to two depths and two numbers of lanes; no coefficient is negative."""
    (low, high), (few, many) = DEPTHS, LANES
    slope = {depth: max(0.0, (found[depth, many] - found[depth, few]) / (many - few)) for depth in DEPTHS}
    base = {depth: max(0.0, found[depth, few] - few * slope[depth]) for depth in DEPTHS}
    lane_layer = max(0.0, (slope[high] - slope[low]) / (high - low))
    layer = max(0.0, (base[high] - base[low]) / (high - low))
    return Both(
        max(0.0, base[high] - high * layer), layer, max(0.0, slope[high] - high * lane_layer), lane_layer
    )


def _lanes(policy: Policy, budget: int | None, count: int) -> list[Lane]:
    return [Lane(f"lane {number}", policy, budget, seed=number) for number in range(count)]


def _run(
    model: Small, clock: Clock, lanes: Sequence[Lane], prompt: int = PROMPT
) -> tuple[float, float, float, int]:
    """Return seconds for all lanes to join with their first evictions, of a step without evictions and of an
    eviction, and the number of evictions.
    """
    ids = tuple(torch.randint(VOCABULARY, (prompt,), generator=torch.Generator().manual_seed(0)).tolist())
    request = Request("p", Prompt(ids, ()), tuple(lanes))

    def run(tokens: int) -> engine.Run:
        ran = engine.run(model, [request], max_new_tokens=tokens, max_concurrent=len(lanes))
        for outcome in ran.answers[0].outcomes:
            if isinstance(outcome, LaneFailure):
                raise ValueError(outcome.reason)
        return ran

    first = clock.of(lambda: run(1))
    run(STEPS)
    best: tuple[float, float, int] | None = None
    for _ in range(REPEATED):
        start = clock._read()
        ran = run(STEPS)
        taken = clock._read() - start
        outcomes = [each for each in ran.answers[0].outcomes if isinstance(each, Outcome)]
        events = sum(max(0, len(outcome.events) - 1) for outcome in outcomes)
        share = ran.event_seconds / ran.seconds if events else 0.0
        if best is None or taken < best[0]:
            best = (taken, share * taken, events)
    assert best is not None
    taken, evented, events = best
    step = max(0.0, taken - first - evented) / (STEPS - 1)
    return first, step, evented / events if events else 0.0, events


def _arm(
    small: Mapping[int, Small],
    clock: Clock,
    policy: Policy,
    budget: int,
    interval: int | None,
    joining: Both,
    stepping: Both,
) -> Arm:
    """Return the seconds that a policy adds to lanes that retain everything, at so many slots."""
    from dataclasses import replace

    budget = min(budget, 512)
    if policy.cadence.interval is not None:
        policy = replace(policy, cadence=replace(policy.cadence, interval=min(interval or 16, 16)))
    by_depth = {}
    for depth, model in small.items():
        first, step, event, _ = _run(model, clock, _lanes(policy, budget, ALONE), budget + 8)
        plain = joining.at(depth, ALONE)
        by_depth[depth] = (
            max(0.0, first - plain) / ALONE,
            max(0.0, step - stepping.at(depth, ALONE)) / ALONE,
            event,
        )
    low, high = DEPTHS

    def line(part: int) -> tuple[float, float]:
        each = max(0.0, (by_depth[high][part] - by_depth[low][part]) / (high - low))
        return max(0.0, by_depth[high][part] - high * each), each

    return Arm(line(0), line(1), line(2))


def _pools(model: Small, clock: Clock) -> float:
    """Return seconds per layer of each further pool: four lanes of four lengths minus four of one length."""

    def run(lengths: Sequence[int]) -> float:
        lane = tuple(_lanes(full(), None, 1))
        requests = [
            Request(f"p{place}", Prompt(tuple(range(length)), ()), lane)
            for place, length in enumerate(lengths)
        ]

        def act(tokens: int) -> Callable[[], object]:
            return lambda: engine.run(model, requests, max_new_tokens=tokens, max_concurrent=len(requests))

        return (clock.of(act(STEPS)) - clock.of(act(1))) / (STEPS - 1)

    return max(0.0, run((10, 26, 42, 58)) - run((10, 10, 10, 10))) / (3 * DEPTHS[1])


def _sampling(clock: Clock) -> tuple[float, float]:
    """Return seconds per logit of a lane, and per number of noise of a draw, at temperatures above 0."""
    size, lanes = 32768, 8
    logits = torch.randn(lanes, size, device=clock.device)
    apart = [sampling.Draw("p", seed, 0) for seed in range(lanes)]
    several = clock.of(lambda: sampling.choose(logits, apart, 0.6), 0.05)
    one = clock.of(lambda: sampling.choose(logits, [apart[0]] * lanes, 0.6), 0.05)
    noise = max(0.0, several - one) / ((lanes - 1) * size)
    return max(0.0, one - size * noise) / (lanes * size), noise


def _small(asked: Asked, clock: Clock, layers: int) -> Small:
    """Return a random network with the heads of the model and a small width."""
    shape = asked.shape
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=8 * shape.q_heads,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=shape.q_heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=1 << 16,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        attn_implementation="sdpa",
    )
    network = LlamaForCausalLM(config).to(clock.device, DTYPES[asked.dtype]).eval().requires_grad_(False)
    network.generation_config.eos_token_id = None
    return Small(f"random, {layers} layers", network, _statistics(network, shape, layers))


def _statistics(network: Any, shape: Shape, layers: int) -> Mapping[str, Any]:
    """Return random values in the form of calibrated statistics."""
    device, dim = network.device, shape.head_dim
    mean = torch.randn(layers, shape.q_heads, dim // 2, dtype=torch.complex64).to(device)
    direction = torch.nn.functional.normalize(torch.randn(dim), dim=0).to(device)
    queries = Statistics(
        mean, 1.5 * mean.abs(), direction, network.base_model.rotary_emb.inv_freq.double(), 1.0
    )
    basis = torch.linalg.qr(torch.randn(layers, shape.kv_heads, dim, dim))[0].to(device)
    bases = Bases(torch.zeros(layers, shape.kv_heads, dim, device=device), basis)
    places = torch.arange(layers)[:, None] + torch.arange(shape.kv_heads)
    return MappingProxyType(
        {
            "text": queries,
            "traces": queries,
            "thoughts": Thresholds((0, layers - 1), 0.3, 0.5),
            "bases": bases,
            "routes": Routes((places % 2 == 0).to(device)),
        }
    )
