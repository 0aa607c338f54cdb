"""Measurement of the rates of this device within seconds: products, reading, and the engine's overhead.

The overhead is that of the engine with a random network of the model's depth and heads and of a small width,
where products are negligible, for the lanes of the study itself. The registered models are not run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch.nn.functional import linear
from transformers import LlamaConfig, LlamaForCausalLM

import policies
from policies import Bases, Mark, Policy, Routes, Statistics, Thresholds
from protocol import engine
from protocol.engine import Lane, LaneFailure, Outcome, Prompt, Request, sampling
from protocol.formats.refusals import BadInput
from protocol.instruments.planning.roofline import Rates, Shape
from protocol.models.load import DTYPES

__all__ = ["MeasurementRequest", "measure_rates"]

FEW_LANES = 2
STEPS = 48
INTERVAL = 16  # at most, so that lanes evict within STEPS
PROMPT = 512  # tokens, at most
APART = 3  # by which prompts, and intervals of arms, differ, so that lanes evict apart as in a study
VOCABULARY = 64
WORKING_SET = 2**28  # bytes of weights to read in turn: more than a processor cache holds
REPEATED = 2
LOAD = 1e9  # bytes a second read from disk and hashed, an assumption


class MeasurementRequest(NamedTuple):
    """What to measure for a study. arms: the policies of the lanes of a batch, in order, with their slots; None
    never evicts. prompt: tokens. lanes: decoded at once.
    """

    shape: Shape
    dtype: str
    prompt: int
    lanes: int
    arms: Sequence[tuple[str, Policy | None, int | None]]


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
            count, start = 0, self.read()
            while not count or self.read() - start < at_least:
                act()
                count += 1
            best = min(best, (self.read() - start) / count)
        return best

    def read(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return self.now()


def measure_rates(
    request: MeasurementRequest, device: str = "cpu", now: Callable[[], float] = time.perf_counter
) -> tuple[Rates, dict[str, str]]:
    """Return the rates of this device, and the reason for each arm that could not be measured."""
    clock = Clock(now, device)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer, lane, join, event, unmeasured = _host_seconds(request, clock)
        logit, noise = _sampling_seconds(clock)
        flops, bandwidth = _tensor_rates(request, clock)
    return Rates(flops, bandwidth, LOAD, device == "cuda", layer, lane, join, event, logit, noise), unmeasured


def _tensor_rates(request: MeasurementRequest, clock: Clock) -> tuple[float, float]:
    """Return FLOP/s of linear layers of the model's width on a prompt, and bytes/s of weights read for one token."""
    shape = request.shape
    count = max(1, min(shape.bytes, WORKING_SET) // (shape.intermediate * shape.width * shape.itemsize))

    def draw(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, device=clock.device).to(DTYPES[request.dtype])

    matrices = [draw(shape.intermediate, shape.width) for _ in range(count)]

    def seconds(tokens: int) -> float:
        inputs = draw(tokens, shape.width)
        return clock.seconds_of(lambda: [linear(inputs, matrix) for matrix in matrices], 0.05)

    tokens = max(1, min(request.prompt, 2048))
    operations = 2 * tokens * sum(matrix.numel() for matrix in matrices)
    return operations / seconds(tokens), sum(matrix.nbytes for matrix in matrices) / seconds(1)


def _host_seconds(request: MeasurementRequest, clock: Clock) -> tuple[float, float, float, float, dict[str, str]]:
    """Return the seconds of a layer outside of tensor operations, as in `Rates`: of a forward pass, a lane in
    it, a lane that joins and an eviction; and why arms were not measured.
    """
    layers = request.shape.layers
    prompt = min(PROMPT, max([request.prompt, *(budget + 8 for _, _, budget in request.arms if budget is not None)]))
    model = _make_network(request, clock, layers)
    unmeasured: dict[str, str] = {}
    lanes: list[Lane] = []
    kinds = list(dict.fromkeys((name, budget) for name, _, budget in request.arms))
    for number, (name, policy, budget) in enumerate(request.arms):
        lane = Lane(f"lane {number}", policies.get("full"), None, seed=number)
        if policy is not None and budget is not None:
            if policy.cadence.interval is not None:
                interval = min(policy.cadence.interval, INTERVAL - kinds.index((name, budget)) % APART)
                policy = replace(policy, cadence=replace(policy.cadence, interval=interval))
            lane = lane._replace(policy=policy, budget=min(budget, prompt - 8))
        try:
            if name not in unmeasured:
                _run(model, [[lane]], prompt, 1)
                lanes.append(lane)
        except (BadInput, ValueError) as refusal:
            unmeasured[name] = " ".join(str(refusal).split())
    size = max(1, len(lanes))
    lanes = (lanes or [Lane("full", policies.get("full"), None, 0)]) * -(-request.lanes // size)
    batch = [lanes[at : at + size] for at in range(0, request.lanes, size)]
    batch[-1] = batch[-1][: request.lanes - size * (len(batch) - 1)]
    few = _time_batch(model, clock, [lanes[:FEW_LANES]], prompt)
    every = _time_batch(model, clock, batch, prompt)
    lane_seconds = max(0.0, every.forward - few.forward) / max(1, request.lanes - FEW_LANES)
    base = max(0.0, every.forward - request.lanes * lane_seconds)
    return base / layers, lane_seconds / layers, every.join / layers, every.event / layers, unmeasured


class BatchSeconds(NamedTuple):
    """Seconds of a forward pass, of a lane that joins, and of an eviction."""

    forward: float
    join: float
    event: float


def _time_batch(model: RandomNetwork, clock: Clock, lanes: Sequence[Sequence[Lane]], prompt: int) -> BatchSeconds:
    """lanes: of each problem; whose prompts differ in length."""
    alone = [[Lane("full", policies.get("full"), None, 0)] for _ in lanes]
    prefill = clock.seconds_of(lambda: _run(model, alone, prompt, 1))
    first = clock.seconds_of(lambda: _run(model, lanes, prompt, 1))
    start = clock.read()
    ran = _run(model, lanes, prompt, STEPS)
    taken = clock.read() - start
    outcomes = [outcome for answers in ran.answers for outcome in answers.outcomes if isinstance(outcome, Outcome)]
    events = sum(max(0, len(outcome.events) - 1) for outcome in outcomes)
    evicting = ran.event_seconds / ran.seconds * taken if events else 0.0
    forward = max(0.0, taken - first - evicting) / (STEPS - 1)
    return BatchSeconds(forward, max(0.0, first - prefill) / len(outcomes), evicting / max(1, events))


def _run(model: RandomNetwork, lanes: Sequence[Sequence[Lane]], prompt: int, tokens: int) -> engine.Run:
    """Decode lanes of random prompts. Raises ValueError for a lane that fails."""
    ids = torch.randint(VOCABULARY, (prompt,), generator=torch.Generator().manual_seed(0)).tolist()
    requests = [
        Request(f"p{number}", Prompt(tuple(ids[APART * number % (prompt // 2) :]), ()), tuple(problem_lanes))
        for number, problem_lanes in enumerate(lanes)
    ]
    ran = engine.run(model, requests, max_new_tokens=tokens, max_concurrent=sum(map(len, lanes)))
    for answers in ran.answers:
        for outcome in answers.outcomes:
            if isinstance(outcome, LaneFailure):
                raise ValueError(outcome.reason)
    return ran


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
