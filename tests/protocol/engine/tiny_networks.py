"""Random networks of the supported families, and parts of policies simple enough to follow by hand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
import transformers

import policies
from policies import Allocation, Bases, Cadence, PerHead, Policy, Protect, Routes, Scores, Statistics, Thresholds
from policies.full import full
from policies.protect import Pinned, Preserve
from policies.signals import HiddenChange, Norms
from policies.subspace import Subspace
from protocol import engine
from protocol.engine import Lane, Prompt, Request
from protocol.layers.layer_kinds import evictable, head_width

VOCABULARY = 97
FAMILIES = ("Llama", "Qwen2", "Qwen3", "Mistral")
DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
LAYERS, Q_HEADS, KV_HEADS, DIM = 3, 4, 2, 16
HEADS = LAYERS * KV_HEADS


class TinyModel(NamedTuple):
    name: str
    network: Any
    stop_ids: frozenset[int] = frozenset()
    sentence_ends: frozenset[int] = frozenset({7})
    statistics: Any = MappingProxyType({})

    def lines(self, token_ids, mark):
        """Its text has no letters: every token that the length of a mark divides begins a line, which ends
        with the next one, or after five tokens.
        """
        starts = [place for place, token in enumerate(token_ids) if token % len(mark.text) == 0]
        ends = [*starts[1:], len(token_ids)]
        return tuple(range(at, min(end, at + 5)) for at, end in zip(starts, ends, strict=False))


def tiny(
    family: str = "Llama",
    dtype: torch.dtype = torch.float64,
    stop: tuple[int, ...] = (),
    device: str = "cpu",
    text: bool = False,
    **changes,
) -> TinyModel:
    """Weights are drawn wide, so that attention is sharp and greedy text does not settle into one token.
    text: of a family whose configuration has other things beside it.
    """
    settings = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": Q_HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": DIM,
        "max_position_embeddings": 4096,
        "initializer_range": 0.25,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "sliding_window": None,
    }
    config = getattr(transformers, f"{family}{'Text' * text}Config")(**{**settings, **changes})
    with torch.random.fork_rng():
        torch.manual_seed(3)
        network = getattr(transformers, f"{family}ForCausalLM")(config)
    network = network.to(device, dtype).eval().requires_grad_(False)
    calibrated = {name: statistics(network, seed) for seed, name in enumerate(("text", "traces"))}
    known = {**calibrated, "thoughts": Thresholds((0, 2), 0.3, 0.5)}
    known |= {"bases": bases(network), "routes": routes(network)}
    return TinyModel(f"tiny-{family}", network, frozenset(stop), statistics=known)


def preserves(policy: Policy) -> bool:
    """Whether the whole prompt is protected, so that only an answer can be evicted."""
    whole = torch.ones(1000, dtype=torch.bool)
    return policy.evicts and bool(policy.protect.slots(whole, 1, decoding=False).all())


def statistics(network: Any, seed: int) -> Statistics:
    """Random ones of the right shape, with the rotation of the network."""
    generator, device = torch.Generator().manual_seed(seed), network.device
    dim = head_width(network.config)
    heads = evictable(network.config), network.config.num_attention_heads, dim // 2
    mean = torch.randn(*heads, dtype=torch.complex64, generator=generator).to(device)
    direction = torch.nn.functional.normalize(torch.randn(dim, generator=generator), dim=0)
    rotary = network.base_model.rotary_emb
    frequencies = getattr(rotary, "full_attention_inv_freq", getattr(rotary, "inv_freq", None)).double()
    return Statistics(mean, 1.5 * mean.abs(), direction.to(device), frequencies, 1.0)


def routes(network: Any) -> Routes:
    """Every other head goes by its scores, in the next layer the others."""
    layers, kv_heads = evictable(network.config), network.config.num_key_value_heads
    places = torch.arange(layers)[:, None] + torch.arange(kv_heads)
    return Routes((places % 2 == 0).to(network.device))


def bases(network: Any) -> Bases:
    """Random directions, all there are, so that as many as a head is wide give every value back."""
    generator, config = torch.Generator().manual_seed(2), network.config
    dim = head_width(config)
    heads = evictable(config), config.num_key_value_heads
    mean = torch.randn(*heads, dim, dtype=torch.float64, generator=generator)
    drawn = torch.randn(*heads, dim, dim, dtype=torch.float64, generator=generator)
    return Bases(mean.to(network.device), torch.linalg.qr(drawn)[0].to(network.device))


def words(count: int, seed: int = 0) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(VOCABULARY, (count,), generator=generator).tolist())


def outside(context: int, query: int = 0, seed: int = 0) -> Prompt:
    """A prompt whose query, if any, stands outside the context that is evicted from."""
    token_ids = words(context + query, seed)
    return Prompt(token_ids[:context], token_ids[context:])


def lane(policy: Policy, budget: int | None = None, seed: int = 0) -> Lane:
    return Lane("a lane", policy, budget, seed)


DEPTH = 4
"""Layers of a network in which no two bands of a policy's layers fall on the same one."""


def competing(policy: Policy) -> Policy:
    """The policy, its prompt no longer kept whole, for a budget below the prompt; values that it codes keep
    all directions, since heads are narrower here than its rank.
    """
    if isinstance(policy.state, Subspace):
        policy = replace(policy, state=Subspace(rank=DIM))
    if isinstance(policy.protect, Pinned):
        return replace(policy, protect=policy.protect.inner)
    if isinstance(policy.protect, Preserve):
        return replace(policy, protect=replace(policy.protect, prompt=False))
    return policy


def answer(model, prompt, lanes, *, problem="p", **settings):
    """The outcomes of one problem."""
    ran = engine.run(model, [Request(problem, prompt, tuple(lanes))], **settings)
    return ran.answers[0].outcomes


def greedy(model: TinyModel, token_ids: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The network's own greedy text, without the stop token."""
    ids = torch.tensor([token_ids], device=model.network.device)
    settings = {
        "do_sample": False,
        "max_new_tokens": count,
        "pad_token_id": 0,
        "eos_token_id": sorted(model.stop_ids) or None,
    }
    made = model.network.generate(ids, attention_mask=torch.ones_like(ids), **settings)
    new = tuple(made[0, len(token_ids) :].tolist())
    return new[:-1] if new and new[-1] in model.stop_ids else new


@dataclass(frozen=True)
class Noise:
    """Random scores, drawn anew at every event; what is measured is for those who look at the views."""

    draw: int = 0
    needs: frozenset = frozenset()

    def score(self, view):
        generator = torch.Generator().manual_seed(1000 * self.draw + len(view.token_ids))
        drawn = torch.rand(view.layers, view.kv_heads, view.slots, generator=generator)
        return Scores(drawn.to(view.token_ids.device))


@dataclass(frozen=True)
class Restless:
    """Tokens that changed the hidden state much, where keys are short."""

    needs = frozenset({HiddenChange((1,), None), Norms()})

    def score(self, view):
        changes = view.signals[HiddenChange((1,), None)][1].changes
        keys = torch.stack([norms.key for norms in view.signals[Norms()]])
        return Scores(changes[view.positions.clamp(min=0)].expand(keys.shape) - 0.1 * keys)


@dataclass(frozen=True)
class Earliest:
    """The first slots."""

    needs: frozenset = frozenset()

    def score(self, view):
        return Scores(-view.positions.double().expand(view.layers, view.kv_heads, -1))


@dataclass(frozen=True)
class Offsets(PerHead):
    """`budget + by[layer][head]` slots for each head."""

    by: tuple[tuple[int, ...], ...] = ((-7, 7), (10, -10), (0, 0))

    def allocate(self, view, scores, protected, budget):
        return Allocation(budget + torch.tensor(self.by, device=scores.slots.device))


@dataclass(frozen=True)
class Adaptive(PerHead):
    """As many slots for a head as it has among the highest scores of all heads: other counts every time."""

    def allocate(self, view, scores, protected, budget):
        slots = scores.slots
        best = slots.flatten().topk(budget * slots[..., 0].numel()).indices // slots.shape[-1]
        return Allocation(best.bincount(minlength=slots[..., 0].numel()).view(slots.shape[:2]))


@dataclass(frozen=True)
class Noted(Policy):
    """A policy that notes every view that it is given and what it kept of it."""

    notes: list = field(default_factory=list, compare=False)

    def evict(self, view, budget):
        event = super().evict(view, budget)
        self.notes.append((view, event.retained))
        return event


def watched(policy: Policy | str, **parts) -> Noted:
    """A policy, or that of the catalogue by this name, with other parts; it notes its views."""
    policy = policies.get(policy) if isinstance(policy, str) else policy
    return Noted(**{name: getattr(policy, name) for name in Policy.__dataclass_fields__} | parts)


def noted(scoring, routing=None, cadence=None, protect=None, **parts) -> Noted:
    return Noted(
        scoring, routing=routing or PerHead(), cadence=cadence or Cadence(), protect=protect or Protect(0, 0), **parts
    )


def drawn(draw: int = 0, routing=None, cadence=None, **parts) -> Noted:
    """Keeps random slots."""
    return noted(Noise(draw), routing, cadence, **parts)


def all_kept() -> Noted:
    """Never evicts."""
    plain = full()
    return Noted(plain.scoring, cadence=plain.cadence, protect=plain.protect)


@dataclass(frozen=True)
class Refusing:
    """A scoring that refuses."""

    needs = frozenset()

    def score(self, view):
        raise ValueError("scores: a prompt of 40 tokens is too short;\n  lengthen it")


@dataclass(frozen=True)
class Faulty:
    """A scoring with a bug."""

    needs = frozenset()

    def score(self, view):
        raise KeyError("a signal it never declared")


@dataclass(frozen=True)
class Exhausted:
    """A scoring on a machine without memory for it, which is nobody's fault: the run breaks."""

    needs = frozenset()

    def score(self, view):
        raise MemoryError
