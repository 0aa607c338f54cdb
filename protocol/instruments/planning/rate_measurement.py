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

from policies import Bases, Mark, Policy, Routes, Statistics, Thresholds
from policies.full import full
from policies.signals import BLOCK, attention_rows
from protocol import engine
from protocol.engine import Lane, LaneFailure, Outcome, Prompt, Request, prefill, sampling
from protocol.formats.progress_display import ReportProgress
from protocol.formats.refusals import BadInput
from protocol.instruments.planning.cost_model import ArmSeconds, HostSeconds, Rates, Shape
from protocol.models.load import DTYPES

__all__ = ["MeasurementRequest", "measure_rates"]

DEPTHS = (4, 8)  # layers; with fewer, bands of layers that some policies read would overlap
LANES = (2, 16)
ALONE = 8  # lanes of a measured policy
STEPS = 48
PROMPT = 48  # tokens
VOCABULARY = 64
WORKING_SET = 2**28  # bytes of weights to read in turn: more than a processor cache holds
REPEATED = 2
LOAD = 1e9  # bytes a second read from disk and hashed, an assumption


class MeasurementRequest(NamedTuple):
    """What to measure for a study. arms: (policy, slots) by name. prompt: tokens. lanes: decoded at once."""

    shape: Shape
    dtype: str
    prompt: int
    lanes: int
    interval: int | None
    arms: Mapping[str, tuple[Policy, int]]


class RandomNetwork(NamedTuple):
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

    def seconds_of(self, act: Callable[[], object], at_least: float = 0.0) -> float:
        """Return seconds of one call after a warm-up: the minimum of runs of at least `at_least` seconds."""
        act()
        best = float("inf")
        for _ in range(REPEATED):
            count, start = 0, self._read()
            while True:
                act()
                count += 1
                elapsed = self._read() - start
                if elapsed >= at_least:
                    break
            best = min(best, elapsed / count)
        return best

    def _read(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return self.now()


def measure_rates(
    request: MeasurementRequest,
    device: str = "cpu",
    now: Callable[[], float] = time.perf_counter,
    tell: ReportProgress = lambda at: None,
) -> tuple[Rates, dict[str, str]]:
    """Return the rates of this device, and the reason for each arm that could not be measured."""
    clock = Clock(now, device)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        host, arms, unmeasured = _host_seconds(request, clock)
        rates = Rates(
            linear=_linear_flops(request, clock, request.prompt),
            attention=_attention_flops(request, clock),
            watched=_watched_rate(request, clock),
            rows=_linear_flops(request, clock, request.lanes),
            weights=_weight_bandwidth(request, clock),
            cache=_cache_bandwidth(request, clock),
            load=LOAD,
            is_asynchronous=device == "cuda",
            host=host,
            arms=arms,
        )
    return rates, unmeasured


def _random_tensor(request: MeasurementRequest, clock: Clock, *sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, device=clock.device).to(DTYPES[request.dtype])


def _linear_flops(request: MeasurementRequest, clock: Clock, tokens: int) -> float:
    """Return FLOP/s of a linear layer of the width of the model, on so many tokens, with uncached weights."""
    matrices = _weight_matrices(request, clock)
    tokens = max(1, min(tokens, 2048))
    inputs = _random_tensor(request, clock, tokens, request.shape.width)
    taken = clock.seconds_of(lambda: [linear(inputs, matrix) for matrix in matrices], 0.05)
    return 2 * tokens * sum(matrix.numel() for matrix in matrices) / taken


def _weight_bandwidth(request: MeasurementRequest, clock: Clock) -> float:
    """Return bytes/s of weights read for one token."""
    matrices = _weight_matrices(request, clock)
    inputs = _random_tensor(request, clock, 1, request.shape.width)
    taken = clock.seconds_of(lambda: [linear(inputs, matrix) for matrix in matrices], 0.05)
    return sum(matrix.nbytes for matrix in matrices) / taken


def _weight_matrices(request: MeasurementRequest, clock: Clock) -> list[torch.Tensor]:
    shape = request.shape
    size = shape.intermediate * shape.width * shape.itemsize
    count = max(1, min(shape.bytes, WORKING_SET) // size)
    return [_random_tensor(request, clock, shape.intermediate, shape.width) for _ in range(count)]


def _random_heads(request: MeasurementRequest, clock: Clock, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    shape = request.shape
    return (
        _random_tensor(request, clock, shape.q_heads, tokens, shape.head_dim),
        _random_tensor(request, clock, shape.kv_heads, tokens, shape.head_dim),
    )


def _attention_flops(request: MeasurementRequest, clock: Clock) -> float:
    """Return FLOP/s of the fused causal attention of one layer."""
    tokens = max(16, min(request.prompt, 4096))
    queries, keys = _random_heads(request, clock, tokens)
    scale = request.shape.head_dim**-0.5
    taken = clock.seconds_of(lambda: prefill.attend_causal(queries, keys, keys, scale), 0.05)
    return 2 * request.shape.q_heads * request.shape.head_dim * tokens**2 / taken


def _watched_rate(request: MeasurementRequest, clock: Clock) -> float:
    """Return attention weights/s that a signal sums over the last block of rows, without the fused kernel."""
    tokens = max(16, min(request.prompt, 4096))
    rows = min(BLOCK, tokens)
    queries, keys = _random_heads(request, clock, tokens)
    scale = request.shape.head_dim**-0.5

    def read() -> torch.Tensor:
        weights = attention_rows(queries[:, -rows:], keys, scale, tokens - rows)
        prefill.weight_values(weights, keys.float())
        return weights.sum(-2)

    plain = clock.seconds_of(lambda: prefill.attend_causal(queries[:, -rows:], keys, keys, scale), 0.05)
    taken = clock.seconds_of(read, 0.05) - plain
    return request.shape.q_heads * rows * tokens / max(taken, 1e-9)


def _cache_bandwidth(request: MeasurementRequest, clock: Clock) -> float:
    """Return bytes/s of slots that one new token per lane attends to, with a mask since lanes differ."""
    from protocol.engine.forward_step import attend_masked

    shape, slots = request.shape, 256
    lanes = max(1, min(request.lanes, WORKING_SET // (slots * shape.slot_bytes // shape.layers)))
    keys = _random_tensor(request, clock, lanes, shape.kv_heads, slots, shape.head_dim)
    queries = _random_tensor(request, clock, lanes, shape.kv_heads, shape.q_heads // shape.kv_heads, shape.head_dim)
    visible = torch.ones(lanes, shape.kv_heads, queries.shape[2], slots, dtype=torch.bool, device=clock.device)
    visible[0, ..., -1] = False
    taken = clock.seconds_of(lambda: attend_masked(queries, keys, keys, visible, shape.head_dim**-0.5), 0.05)
    return 2 * keys.nbytes / taken


def _host_seconds(
    request: MeasurementRequest, clock: Clock
) -> tuple[HostSeconds, dict[str, ArmSeconds], dict[str, str]]:
    """Return the seconds outside of tensor operations, of all and by arm, and why arms were not measured."""
    small = {depth: _make_network(request, clock, depth) for depth in DEPTHS}
    timings: dict[tuple[int, int], tuple[float, float]] = {}  # (joining, a step) by depth and lanes
    for depth, model in small.items():
        for count in LANES:
            timings[depth, count] = _time_run(model, clock, _make_lanes(full(), None, count))[:2]
    joining = _fit_cost({key: seconds for key, (seconds, _) in timings.items()})
    stepping = _fit_cost({key: seconds for key, (_, seconds) in timings.items()})
    pool_seconds = _pool_seconds(small[DEPTHS[1]], clock)
    arms, unmeasured = dict[str, ArmSeconds](), dict[str, str]()
    for name, (policy, budget) in request.arms.items():
        try:
            arms[name] = _arm_seconds(small, clock, policy, budget, request.interval, joining, stepping)
        except (BadInput, ValueError) as refusal:
            unmeasured[name] = " ".join(str(refusal).split())
    logit, noise = _sampling_seconds(clock)
    usual = ArmSeconds()
    if arms:
        middle = sorted(arms.values(), key=lambda arm: arm.event[0] + 32 * arm.event[1])[len(arms) // 2]
        usual = middle
    host = HostSeconds(
        stepping.base,
        stepping.layer,
        pool_seconds,
        (stepping.lane, stepping.lane_layer),
        (joining.lane, joining.lane_layer),
        logit,
        noise,
        usual,
    )
    return host, arms, unmeasured


class LinearCost(NamedTuple):
    """Seconds = base + layers * layer + lanes * (lane + layers * lane_layer)."""

    base: float
    layer: float
    lane: float
    lane_layer: float

    def predict(self, layers: int, lanes: int) -> float:
        return self.base + layers * self.layer + lanes * (self.lane + layers * self.lane_layer)


def _fit_cost(seconds: Mapping[tuple[int, int], float]) -> LinearCost:
    """Fit the cost to two depths and two numbers of lanes; no coefficient is negative."""
    (low, high), (few, many) = DEPTHS, LANES
    slope = {depth: max(0.0, (seconds[depth, many] - seconds[depth, few]) / (many - few)) for depth in DEPTHS}
    base = {depth: max(0.0, seconds[depth, few] - few * slope[depth]) for depth in DEPTHS}
    lane_layer = max(0.0, (slope[high] - slope[low]) / (high - low))
    layer = max(0.0, (base[high] - base[low]) / (high - low))
    return LinearCost(max(0.0, base[high] - high * layer), layer, max(0.0, slope[high] - high * lane_layer), lane_layer)


def _make_lanes(policy: Policy, budget: int | None, count: int) -> list[Lane]:
    return [Lane(f"lane {number}", policy, budget, seed=number) for number in range(count)]


def _time_run(
    model: RandomNetwork, clock: Clock, lanes: Sequence[Lane], prompt: int = PROMPT
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

    first = clock.seconds_of(lambda: run(1))
    run(STEPS)
    best: tuple[float, float, int] | None = None
    for _ in range(REPEATED):
        start = clock._read()
        ran = run(STEPS)
        taken = clock._read() - start
        outcomes = [candidate for candidate in ran.answers[0].outcomes if isinstance(candidate, Outcome)]
        events = sum(max(0, len(outcome.events) - 1) for outcome in outcomes)
        share = ran.event_seconds / ran.seconds if events else 0.0
        if best is None or taken < best[0]:
            best = (taken, share * taken, events)
    assert best is not None
    taken, evented, events = best
    step = max(0.0, taken - first - evented) / (STEPS - 1)
    return first, step, evented / events if events else 0.0, events


def _arm_seconds(
    small: Mapping[int, RandomNetwork],
    clock: Clock,
    policy: Policy,
    budget: int,
    interval: int | None,
    joining: LinearCost,
    stepping: LinearCost,
) -> ArmSeconds:
    """Return the seconds that a policy adds to lanes that retain everything, at so many slots."""
    from dataclasses import replace

    budget = min(budget, 512)
    if policy.cadence.interval is not None:
        policy = replace(policy, cadence=replace(policy.cadence, interval=min(interval or 16, 16)))
    by_depth = {}
    for depth, model in small.items():
        first, step, event, _ = _time_run(model, clock, _make_lanes(policy, budget, ALONE), budget + 8)
        plain = joining.predict(depth, ALONE)
        by_depth[depth] = (
            max(0.0, first - plain) / ALONE,
            max(0.0, step - stepping.predict(depth, ALONE)) / ALONE,
            event,
        )
    low, high = DEPTHS

    def line(part: int) -> tuple[float, float]:
        slope = max(0.0, (by_depth[high][part] - by_depth[low][part]) / (high - low))
        return max(0.0, by_depth[high][part] - high * slope), slope

    return ArmSeconds(line(0), line(1), line(2))


def _pool_seconds(model: RandomNetwork, clock: Clock) -> float:
    """Return seconds per layer of each further pool: four lanes of four lengths minus four of one length."""

    def run(lengths: Sequence[int]) -> float:
        lane = tuple(_make_lanes(full(), None, 1))
        requests = [
            Request(f"p{number}", Prompt(tuple(range(length)), ()), lane) for number, length in enumerate(lengths)
        ]

        def act(tokens: int) -> Callable[[], object]:
            return lambda: engine.run(model, requests, max_new_tokens=tokens, max_concurrent=len(requests))

        return (clock.seconds_of(act(STEPS)) - clock.seconds_of(act(1))) / (STEPS - 1)

    return max(0.0, run((10, 26, 42, 58)) - run((10, 10, 10, 10))) / (3 * DEPTHS[1])


def _sampling_seconds(clock: Clock) -> tuple[float, float]:
    """Return seconds per logit of a lane, and per number of noise of a draw, at temperatures above 0."""
    size, lanes = 32768, 8
    logits = torch.randn(lanes, size, device=clock.device)
    draws = [sampling.Draw("p", seed, 0) for seed in range(lanes)]
    distinct = clock.seconds_of(lambda: sampling.choose(logits, draws, 0.6), 0.05)
    shared = clock.seconds_of(lambda: sampling.choose(logits, [draws[0]] * lanes, 0.6), 0.05)
    noise = max(0.0, distinct - shared) / ((lanes - 1) * size)
    return max(0.0, shared - size * noise) / (lanes * size), noise


def _make_network(request: MeasurementRequest, clock: Clock, layers: int) -> RandomNetwork:
    """Return a random network with the heads of the model and a small width."""
    shape = request.shape
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
    network = LlamaForCausalLM(config).to(clock.device, DTYPES[request.dtype]).eval().requires_grad_(False)
    network.generation_config.eos_token_id = None
    return RandomNetwork(f"random, {layers} layers", network, _make_statistics(network, shape, layers))


def _make_statistics(network: Any, shape: Shape, layers: int) -> Mapping[str, Any]:
    """Return random values in the form of calibrated statistics."""
    device, dim = network.device, shape.head_dim
    mean = torch.randn(layers, shape.q_heads, dim // 2, dtype=torch.complex64).to(device)
    direction = torch.nn.functional.normalize(torch.randn(dim), dim=0).to(device)
    queries = Statistics(mean, 1.5 * mean.abs(), direction, network.base_model.rotary_emb.inv_freq.double(), 1.0)
    basis = torch.linalg.qr(torch.randn(layers, shape.kv_heads, dim, dim))[0].to(device)
    bases = Bases(torch.zeros(layers, shape.kv_heads, dim, device=device), basis)
    positions = torch.arange(layers)[:, None] + torch.arange(shape.kv_heads)
    return MappingProxyType(
        {
            "text": queries,
            "traces": queries,
            "thoughts": Thresholds((0, layers - 1), 0.3, 0.5),
            "bases": bases,
            "routes": Routes((positions % 2 == 0).to(device)),
        }
    )
