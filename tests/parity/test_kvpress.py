"""Our policies against the presses of kvpress 0.5.5: equal queries, keys and budgets, equal kept slots.

A press forms the window's attention itself, from queries that reach it through an identity projection and an
identity rotation. Not compared, since they are others by design: `random` (RandomPress protects nothing and
draws one mask for all layers) and `h2o` as published (no press). kvpress has no scissorhands and no crystal.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from six_tokens import SIX_TOKENS, slots_of
from torch import Tensor, nn

import policies
from policies import (
    Allocation,
    AttentionRows,
    CacheSignal,
    Chunks,
    FedTokens,
    PerHead,
    Policy,
    Protect,
    Pyramid,
    Rotation,
    Scores,
    View,
)
from policies.adakv import ada_snapkv
from policies.expected_attention import ExpectedAttention, QueryMoments, expected_attention
from policies.h2o import AccumulatedAttention
from policies.lagkv import lagkv
from policies.pyramidkv import pyramidkv
from policies.signals import AttentionSums, Norms, attention_rows
from policies.snapkv import WindowAttention, snapkv
from policies.streaming import streaming
from protocol.presses import press_settings

if find_spec("kvpress") is None:
    pytest.skip("kvpress is not installed here: run `make parity`", allow_module_level=True)
kvpress = press_settings.import_kvpress()

SEEDS = range(40)
DIM = 16
HEADS = ((8, 2), (4, 4), (6, 3), (5, 1))
NOTHING, LAST = Protect(sinks=0, recent=0), Protect(sinks=0, recent=1)


class Case(NamedTuple):
    """One layer, and what the two sides are asked for."""

    queries: Tensor  # [q_head, n, d]
    keys: Tensor  # [kv_head, n, d]
    budget: int
    window: int
    kernel: int

    @property
    def n(self) -> int:
        return self.keys.shape[1]


def a_case(seed: int, *, layer: int = 0, n: int | None = None) -> Case:
    """Heads attend with different sharpness, so that they compete for the slots of a layer."""
    random = torch.Generator().manual_seed(1000 * layer + seed)
    q_heads, kv_heads = HEADS[seed % 4]
    n = n or 180 + 3 * seed
    sharpness = torch.linspace(0.5, 3, q_heads)[:, None, None]
    return Case(
        queries=sharpness * torch.randn(q_heads, n, DIM, generator=random),
        keys=torch.randn(kv_heads, n, DIM, generator=random),
        budget=n // (2 + seed % 4),
        window=(8, 16, 32)[seed % 3],
        kernel=(1, 5, 7)[seed // 3 % 3],
    )


# Ours


def attention(case: Case) -> Tensor:
    return attention_rows(case.queries, case.keys, DIM**-0.5, 0)


def kept_by(policy: Policy, *cases: Case, budget: int) -> Tensor:
    """Kept slots of a model of which each case is a layer: bool [layer, kv_head, n]."""
    kv_heads, n, _ = cases[0].keys.shape
    filled = torch.ones(kv_heads, n, dtype=torch.bool)

    def measured(signal: Any, layer: int) -> Any:
        if isinstance(signal, CacheSignal):
            keys = cases[layer].keys
            return signal.summarise(layer, keys, torch.zeros_like(keys), filled)
        return signal.attend(AttentionRows(attention(cases[layer]), layer, 0, n, cases[layer].keys.shape[0]), None)

    signals = {signal: tuple(measured(signal, i) for i in range(len(cases))) for signal in policy.needs}
    return policy.keep(View(torch.arange(n), len(cases), kv_heads, frozenset(), 0, signals), budget)


# Theirs


def drop(budget: float, n: int) -> float:
    """The compression ratio at which kvpress keeps `budget` of n: it truncates n * (1 - ratio), in floats."""
    return 1 - (budget + 0.5) / n


def module(case: Case, layer: int = 0, layers: int = 1) -> Any:
    q_heads, kv_heads = len(case.queries), len(case.keys)
    config = SimpleNamespace(
        num_attention_heads=q_heads, num_key_value_heads=kv_heads, num_hidden_layers=layers, _attn_implementation="sdpa"
    )
    return SimpleNamespace(config=config, head_dim=DIM, layer_idx=layer, q_proj=nn.Identity())


def inputs(case: Case, values: Tensor, attentions: Tensor | None = None) -> tuple[Any, ...]:
    """Hidden states, keys, values, attentions and keyword arguments of a press, for a batch of one."""
    hidden = case.queries.transpose(0, 1).reshape(1, case.n, -1)
    unrotated = (torch.ones(1, case.n, DIM), torch.zeros(1, case.n, DIM))
    return hidden, case.keys[None], values[None], attentions, {"position_embeddings": unrotated}


def left_by(press: Any, case: Case, *, attentions: Tensor | None = None, layer: Any = None) -> Tensor:
    """Kept slots bool [kv_head, n]: the values are the slots' numbers, of which a press keeps some."""
    numbers = torch.arange(case.n).view(1, -1, 1).expand(len(case.keys), -1, DIM)
    values = press.compress(layer or module(case), *inputs(case, numbers, attentions))[1]
    return torch.zeros(case.keys.shape[:2], dtype=torch.bool).scatter(1, values[0, ..., 0], True)


def unmasked_by(press: Any, case: Case) -> Tensor:
    """Kept slots bool [kv_head, n] of AdaKVPress, which masks what it evicts."""
    layer = module(case)
    press.compress(layer, *inputs(case, case.keys))
    _, heads, slots = layer.masked_key_indices
    return torch.ones(case.keys.shape[:2], dtype=torch.bool).index_put((heads, slots), torch.tensor(False))


def ada_press(case: Case, safeguard: float) -> Any:
    return kvpress.AdaKVPress(snapkv_press(case, case.budget), alpha_safeguard=safeguard)


def snapkv_press(case: Case, budget: int) -> Any:
    return kvpress.SnapKVPress(drop(budget, case.n), window_size=case.window, kernel_size=case.kernel)


# Score and selection


@dataclass(frozen=True)
class MeanAttention(AccumulatedAttention):
    """H2O's sums, divided by the number of queries that see a slot: ObservedAttentionPress."""

    def score(self, view: View) -> Scores:
        return Scores(super().score(view).slots / torch.arange(view.slots, 0, -1))


PAIRS: dict[str, tuple[Callable[[Case], Policy], Callable[[Case], Any]]] = {
    "streaming": (
        lambda case: policies.get("streaming"),
        lambda case: kvpress.StreamingLLMPress(drop(case.budget, case.n), n_sink=4),
    ),
    "streaming, window as sinks": (
        lambda case: streaming(sinks=case.window),
        lambda case: kvpress.StreamingLLMPress(drop(case.budget, case.n), n_sink=case.window),
    ),
    "snapkv": (lambda case: snapkv(case.window, case.kernel), lambda case: snapkv_press(case, case.budget)),
    "tova, last slot protected": (
        lambda case: policies.get("tova", protect=LAST),
        lambda case: kvpress.TOVAPress(drop(case.budget, case.n)),
    ),
    "knorm": (lambda case: policies.get("knorm"), lambda case: kvpress.KnormPress(drop(case.budget, case.n))),
    "keydiff": (lambda case: policies.get("keydiff"), lambda case: kvpress.KeyDiffPress(drop(case.budget, case.n))),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_policy_and_its_press_keep_the_same_slots(name, seed):
    case = a_case(seed)
    policy, press = (make(case) for make in PAIRS[name])
    assert torch.equal(kept_by(policy, case, budget=case.budget)[0], left_by(press, case))


@pytest.mark.parametrize("seed", SEEDS)
def test_h2o_averaged_and_without_recent_slots_is_the_observed_attention_press(seed):
    case = a_case(seed)
    policy = policies.get("h2o", scoring=MeanAttention(), protect=NOTHING)
    press = kvpress.ObservedAttentionPress(drop(case.budget, case.n))
    expected = left_by(press, case, attentions=attention(case)[None])
    assert torch.equal(kept_by(policy, case, budget=case.budget)[0], expected)
    assert not torch.equal(kept_by(policies.get("h2o"), case, budget=case.budget)[0], expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_of_equal_norms_at_the_boundary_we_keep_the_lower_slots_and_kvpress_any(seed):
    """Equal tokens have keys of equal length, in the first layer of any model with RoPE."""
    case = a_case(seed)
    case = case._replace(keys=case.keys[:, torch.arange(case.n) % 60])
    score = kvpress.KnormPress(0.5).score(module(case), *inputs(case, case.keys))[0]
    ours = kept_by(policies.get("knorm"), case, budget=case.budget)[0]
    theirs = left_by(kvpress.KnormPress(drop(case.budget, case.n)), case)
    lengths = Norms().summarise(0, case.keys, case.keys, torch.ones(case.keys.shape[:2], dtype=torch.bool))
    assert torch.equal(score, -lengths.key)
    boundary = score.sort(-1, descending=True).values[:, case.budget - 1, None]
    for kept in (ours, theirs):
        assert kept[score > boundary].all()
        assert not kept[score < boundary].any()
    for level, kept in zip(score == boundary, ours, strict=True):
        ties = level.nonzero().flatten()
        count = int(kept[ties].sum())
        assert kept[ties[:count]].all()


def test_the_observed_attention_of_six_tokens_by_hand():
    # Column sums over the queries that see a slot: .5 .19 .2125 .2167 .125 .3 and .5833 .2 .125 .1667 .15 .2.
    case = a_case(1)._replace(keys=torch.zeros(2, 6, DIM), queries=torch.zeros(2, 6, DIM), budget=4)
    press = kvpress.ObservedAttentionPress(drop(4, 6))
    assert slots_of(left_by(press, case, attentions=SIX_TOKENS[None])) == [[0, 2, 3, 5], [0, 1, 3, 5]]
    signals = {AttentionSums(): (SIX_TOKENS.sum(1),)}
    policy = policies.get("h2o", scoring=MeanAttention(), protect=NOTHING)
    view = View(torch.arange(6), 1, 2, frozenset(), 0, signals)
    assert slots_of(policy.keep(view, 4)[0]) == [[0, 2, 3, 5], [0, 1, 3, 5]]
    assert slots_of(policy.keep(view._replace(kv_heads=1), 4)[0]) == [[0, 1, 3, 5]]


# LagKV


@pytest.mark.parametrize("share", [1, 5, 11])
@pytest.mark.parametrize("seed", SEEDS)
def test_lagkv_is_the_press_where_every_chunk_keeps_equally_many(seed, share):
    """Of equal ranks in two chunks we keep the lower slot and kvpress any: none is at the boundary here."""
    case, lag = a_case(seed), 12
    chunks = (case.n - 4) // lag
    budget = case.n - (chunks - 1) * (lag - share)
    press = kvpress.LagKVPress(drop(budget, case.n), n_sink=4, lag_size=lag)
    # Its values are scored too: the kept slots are those of the scores that it forms.
    values = torch.randn(case.keys.shape, generator=torch.Generator().manual_seed(seed))
    scores = press.score(module(case), *inputs(case, values))[0]
    expected = torch.zeros(case.keys.shape[:2], dtype=torch.bool).scatter(1, scores.topk(budget).indices, True)
    filled = torch.ones(case.keys.shape[:2], dtype=torch.bool)
    policy = lagkv(sinks=4, lag=lag)
    (signal,) = policy.needs
    signals = {signal: (signal.summarise(0, case.keys, values, filled),)}
    view = View(torch.arange(case.n), 1, len(case.keys), frozenset(), 0, signals)
    assert torch.equal(policy.keep(view, budget)[0], expected)


@pytest.mark.parametrize("n", [5, 100, 259])
def test_without_two_chunks_lagkv_and_the_press_keep_the_sinks_and_the_latest(n):
    case = a_case(0, n=n)
    for budget in (4, n // 2 + 2, n):
        expected = left_by(kvpress.LagKVPress(drop(budget, n)), case) if budget < n else torch.ones(1) > 0
        policy = policies.get("lagkv")
        assert torch.equal(kept_by(policy, case, budget=budget)[0], expected.expand(len(case.keys), n))


# Expected Attention


class Rotary(nn.Module):
    """Cosine and sine [1, t, d] of RoPE with this base, as transformers' modules give them."""

    def __init__(self, base: float, scaling: float) -> None:
        super().__init__()
        self.inv_freq = base ** (-torch.arange(0, DIM, 2) / DIM)
        self.scaling = scaling

    def forward(self, like: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = (positions[..., None].float() * self.inv_freq).repeat(1, 1, 2)
        return self.scaling * angles.cos(), self.scaling * angles.sin()


@pytest.mark.parametrize("epsilon", [0.0, 0.01])
@pytest.mark.parametrize("seed", SEEDS)
def test_expected_attention_is_the_press(seed, epsilon):
    """Its queries come from the hidden states, before RoPE; ours come turned, and in blocks."""
    case, future, sinks = a_case(seed), (512, 64, 7)[seed % 3], seed % 6
    rotary = Rotary((10_000.0, 500.0)[seed % 2], (1.0, 1.25)[seed // 2 % 2])
    random = torch.Generator().manual_seed(seed)
    # Far from 0, as queries are: the mean counts beside the covariance.
    offset = torch.randn(len(case.queries), 1, DIM, generator=random)
    case = case._replace(queries=0.4 * case.queries + offset, keys=0.7 * case.keys)
    values = torch.randn(case.keys.shape, generator=random)
    press = kvpress.ExpectedAttentionPress(
        drop(case.budget, case.n), n_future_positions=future, n_sink=sinks, epsilon=epsilon
    )
    layer = module(case)
    layer.rotary_emb = rotary
    scores = press.score(layer, *inputs(case, values))[0]
    expected = torch.zeros(case.keys.shape[:2], dtype=torch.bool).scatter(1, scores.topk(case.budget).indices, True)
    cosine, sine = rotary(case.queries, torch.arange(case.n)[None])
    half = torch.cat([-case.queries[..., DIM // 2 :], case.queries[..., : DIM // 2]], -1)
    rotated = case.queries * cosine + half * sine
    rotation = Rotation(rotary.inv_freq.double(), rotary.scaling)
    scoring = ExpectedAttention(future, sinks, epsilon)
    policy = replace(expected_attention(future, sinks), scoring=scoring)
    filled = torch.ones(case.keys.shape[:2], dtype=torch.bool)
    signals: dict[Any, Any] = {
        signal: (signal.summarise(0, case.keys, values, filled),)
        for signal in policy.needs
        if isinstance(signal, CacheSignal)
    }
    moments, state = QueryMoments(sinks), None
    for first in range(0, case.n, 50):
        own = slice(first, first + 50)
        parts = case.keys[:, own], values[:, own], first, case.n, rotated[:, own], rotation
        state = moments.fold(FedTokens(*parts), state)
    signals[moments] = (state,)
    view = View(torch.arange(case.n), 1, len(case.keys), frozenset(), 0, signals, rotation=rotation)
    found = policy.scoring.score(view).slots[0, :, sinks:]
    torch.testing.assert_close(found, scores[:, sinks:], rtol=1e-3, atol=1e-6)
    assert torch.equal(policy.keep(view, case.budget)[0], expected)


# Ada-KV


@pytest.mark.parametrize("floor", [0.0, 1.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_without_a_floor_and_with_a_whole_one_ada_snapkv_is_the_press(floor, seed):
    case = a_case(seed)
    policy = ada_snapkv(case.window, case.kernel, floor)
    assert torch.equal(kept_by(policy, case, budget=case.budget)[0], unmasked_by(ada_press(case, floor), case))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_safeguard_within_the_window_is_no_floor(seed):
    """kvpress counts the window towards the safeguard; our floor is beside the window."""
    case = a_case(seed)
    safeguard = case.window / case.budget
    policy = ada_snapkv(case.window, case.kernel, floor=0.0)
    assert torch.equal(kept_by(policy, case, budget=case.budget)[0], unmasked_by(ada_press(case, safeguard), case))


@dataclass(frozen=True)
class Given(PerHead):
    """Counts of the heads of one layer, found elsewhere."""

    counts: tuple[int, ...]

    def allocate(self, view: View, scores: Scores, protected: Tensor, budget: int) -> Allocation:
        return Allocation(torch.tensor([self.counts]))


@pytest.mark.parametrize("safeguard", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("seed", SEEDS)
def test_at_the_head_counts_of_the_press_ada_snapkv_keeps_its_slots(safeguard, seed):
    case = a_case(seed)
    expected = unmasked_by(ada_press(case, safeguard), case)
    routing = Given(tuple(expected.sum(-1).tolist()))
    policy = replace(ada_snapkv(case.window, case.kernel), routing=routing)
    assert torch.equal(kept_by(policy, case, budget=case.budget)[0], expected)


# ChunkKV


@pytest.mark.parametrize("name", ["chunkkv", "chunkkv-20"])
@pytest.mark.parametrize("seed", SEEDS)
def test_chunkkv_is_the_press_where_the_window_begins_a_chunk(name, seed):
    """The press then has no pooling, and a budget of the window and whole chunks."""
    size = policies.get(name).selection.size
    case = a_case(seed, n=32 + size * (5 + seed // 2))._replace(window=32, kernel=1)
    chunks = 1 + seed % 4
    expected = left_by(chunk_press(case, size, chunks), case)
    assert torch.equal(kept_by(policies.get(name), case, budget=32 + size * chunks)[0], expected)


@pytest.mark.parametrize("size", [10, 20])
@pytest.mark.parametrize("seed", SEEDS)
def test_chunkkv_is_the_press_once_pooled_and_with_every_chunk_of_the_window_protected(size, seed):
    """The press ranks the chunk in which the window begins before all others: the window scores highest."""
    case = a_case(seed)
    first = (case.n - case.window) // size * size
    policy = policies.get(
        "chunkkv",
        selection=Chunks(size),
        scoring=WindowAttention(case.window, case.kernel),
        protect=Protect(sinks=0, recent=case.n - first),
    )
    chunks = 1 + seed % 4
    expected = left_by(chunk_press(case, size, chunks), case)
    assert torch.equal(kept_by(policy, case, budget=case.n - first + size * chunks)[0], expected)


def chunk_press(case: Case, size: int, chunks: int) -> Any:
    """Keeps `chunks` chunks beside those of the window."""
    before = (case.n - case.window) // size
    total = math.ceil(case.n / size)
    press = kvpress.SnapKVPress(drop(total - before + chunks, total), window_size=case.window, kernel_size=case.kernel)
    return kvpress.ChunkKVPress(press, chunk_length=size)


# PyramidKV


@pytest.mark.parametrize("seed", SEEDS)
def test_at_our_budgets_the_pyramid_press_keeps_our_slots(seed):
    layers = [a_case(seed, layer=layer) for layer in range(4)]
    budget, window, kernel = layers[0].budget, layers[0].window, layers[0].kernel
    kept = kept_by(pyramidkv(window, kernel), *layers, budget=budget)
    counts = kept.sum(-1)[:, 0].tolist()
    assert counts[0] > budget > counts[-1]
    press = kvpress.PyramidKVPress(0.5, window_size=window, kernel_size=kernel)
    press.get_layer_budget = lambda module, n: counts[module.layer_idx]
    for number, case in enumerate(layers):
        assert torch.equal(kept[number], left_by(press, case, layer=module(case, number, 4)))


@pytest.mark.parametrize("beta", [1, 3, 20])
@pytest.mark.parametrize(("n", "layers"), [(200, 2), (1000, 30), (4096, 32), (8192, 6)])
def test_budgets_beside_the_window_are_those_of_the_press_up_to_rounding(n, layers, beta):
    """The press counts the window in the base of its pyramid: here it is asked for one without a window.

    It rounds each layer alone, so that the sum may miss the budget; where it does not, all are equal.
    """
    window, case = 32, a_case(0)
    met = 0
    for budget in range(window + 1, n, max(1, n // 97)):
        protected = (torch.arange(n) >= n - window).view(1, 1, n)
        ours = Pyramid(beta).counts(torch.zeros(layers, 1, n), protected, budget)[:, 0] - window
        ratio = 1 - (budget - window) / (n - window)
        press = kvpress.PyramidKVPress(ratio, window_size=0, beta=beta)
        theirs = torch.tensor(
            [press.get_layer_budget(module(case, layer, layers), n - window) for layer in range(layers)]
        )
        assert (ours - theirs).abs().max() <= 1
        if theirs.sum() == (budget - window) * layers:
            met += 1
            assert torch.equal(ours, theirs)
    assert met > 10
