"""Prompts without a model: random queries and keys, and the view that a policy would get of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from policies import (
    AttentionRows,
    AttentionSignal,
    Bases,
    CacheSignal,
    Calibrated,
    Eviction,
    ExtraPromptSignal,
    FedSignal,
    FedTokens,
    HiddenSignal,
    OutputSignal,
    Policy,
    Rotation,
    Routes,
    Scores,
    Signal,
    Statistics,
    Thresholds,
    View,
)
from policies.signals import BLOCK, attention_logits, attention_rows

WIDTH = 12
"""Of a hidden state."""


class Prompt(NamedTuple):
    token_ids: Tensor  # [n]
    queries: Tensor  # [layer, q_head, n, d]
    keys: Tensor  # [layer, kv_head, n, d]
    values: Tensor  # [layer, kv_head, n, d]
    scale: float
    hidden: Tensor = torch.empty(0, 0, 0)  # [layer, n, width], where a signal reads it


@dataclass(frozen=True)
class Given:
    """Scores as given, one row for each layer and head."""

    values: tuple[Any, ...]
    needs: ClassVar[frozenset[Signal]] = frozenset()

    def score(self, view: View) -> Scores:
        return Scores(torch.tensor(self.values, dtype=torch.float32).view(view.layers, view.kv_heads, -1))


def a_prompt(
    n: int = 300,
    *,
    layers: int = 2,
    q_heads: int = 4,
    kv_heads: int = 2,
    dim: int = 8,
    vocabulary: int = 40,
    sharpness: float = 2.0,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Prompt:
    """sharpness scales the queries: 0 is uniform attention, 2 has clear favourites."""
    random = torch.Generator().manual_seed(seed)
    return Prompt(
        token_ids=torch.randint(vocabulary, (n,), generator=random),
        queries=(sharpness * torch.randn(layers, q_heads, n, dim, generator=random)).to(dtype),
        keys=torch.randn(layers, kv_heads, n, dim, generator=random).to(dtype),
        values=torch.randn(layers, kv_heads, n, dim, generator=random).to(dtype),
        scale=dim**-0.5,
        hidden=torch.randn(layers, n, WIDTH, generator=random).to(dtype),
    )


def a_view(
    prompt: Prompt,
    policies: Iterable[Policy],
    *,
    sentence_ends: Iterable[int] = (0, 1, 2),
    seed: int = 5,
    asked: int | None = None,
    budget: int | None = 200,
) -> View:
    """The first event, or with `asked` one of an answer: the tokens from there on were generated one by one,
    and nothing has been evicted yet. budget: for a scoring that is asked by itself; a policy says its own.
    """
    signals = {signal: of_model(signal, prompt, asked) for policy in policies for signal in policy.needs}
    n = len(prompt.token_ids)
    return View(
        token_ids=prompt.token_ids,
        layers=prompt.keys.shape[0],
        kv_heads=prompt.keys.shape[1],
        sentence_ends=frozenset(sentence_ends),
        seed=seed,
        signals=signals,
        stored=None if asked is None else torch.arange(n, device=prompt.keys.device).view(1, 1, -1),
        prompt=n if asked is None else asked,
        budget=budget,
        rotation=rope(prompt),
    )


# A prompt of six tokens; then two of an answer, and since then three more: slots of positions 0-7, 9-11.
STORED = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11])


def at_a_later_event(policy: Policy) -> View:
    view = a_view(a_prompt(11), [policy])._replace(stored=STORED.view(1, 1, -1), prompt=6)
    return view._replace(token_ids=torch.arange(12) % 7)


def preserves(policy: Policy) -> bool:
    """Whether the whole prompt is protected, so that only an answer can be evicted."""
    return policy.evicts and bool(
        policy.protect.slots(torch.ones(1000, dtype=torch.bool, device="cpu"), 1, decoding=False).all()
    )


def of_model(signal: Signal, prompt: Prompt, asked: int | None = None) -> Any:
    """What a View holds of a signal."""
    if isinstance(signal, Calibrated):
        if signal.kind is Thresholds:
            return Thresholds((0,), 0.4, 0.5)
        if signal.kind is Routes:
            return in_turns(*prompt.keys.shape[:2])
        if signal.kind is Bases:
            return random_bases(prompt)
        return random_statistics(prompt, seed=len(signal.name))
    return tuple(measured(signal, prompt, layer, asked=asked) for layer in range(prompt.keys.shape[0]))


def in_turns(layers: int, kv_heads: int) -> Routes:
    """Every other head goes by its scores, of which a single one is the first."""
    heads = torch.arange(layers * kv_heads, device="cpu").view(layers, kv_heads)
    return Routes((heads + heads // kv_heads * (kv_heads % 2 == 0)) % 2 == 0)


def random_statistics(prompt: Prompt, *, seed: int = 0) -> Statistics:
    """Of a model with the heads of this prompt, whose rotation has the angles of RoPE with base 10,000."""
    random = torch.Generator().manual_seed(seed)
    layers, q_heads, _, dim = prompt.queries.shape
    mean = torch.randn(layers, q_heads, dim // 2, dtype=torch.complex64, generator=random, device="cpu")
    direction = torch.randn(dim, generator=random, device="cpu")
    frequencies = rope(prompt).frequencies
    return Statistics(mean, 1.5 * mean.abs(), direction / direction.norm(), frequencies, 1.0)


def output_of(prompt: Prompt, layer: int) -> Tensor:
    """[q_head, d, WIDTH], an output projection in the dtype of the prompt."""
    random = torch.Generator().manual_seed(layer)
    q_heads, _, dim = prompt.queries[layer].shape
    drawn = torch.randn(q_heads, dim, WIDTH, generator=random, device="cpu")
    return drawn.to(prompt.queries.device, prompt.queries.dtype)


def rope(prompt: Prompt) -> Rotation:
    """With base 10,000."""
    dim = prompt.queries.shape[-1]
    pair = torch.arange(dim // 2, dtype=torch.float64, device="cpu")
    return Rotation(10000 ** (-2 * pair / dim), 1.0)


def random_bases(prompt: Prompt) -> Bases:
    """Of a model with the KV heads of this prompt."""
    random = torch.Generator().manual_seed(0)
    layers, kv_heads, _, dim = prompt.values.shape
    drawn = torch.randn(layers, kv_heads, dim + 1, dim, generator=random, device="cpu")
    return Bases(drawn[:, :, 0], torch.linalg.qr(drawn[:, :, 1:])[0])


def measured(signal: Signal, prompt: Prompt, layer: int = 0, block: int = BLOCK, *, asked: int | None = None) -> Any:
    """What the engine would hand to a policy; None of a layer that a signal does not read.

    block: rows of attention formed at once, and tokens fed at once. asked: tokens of the prompt; the others
    are of the answer, whose attention comes in single rows, and where states have a leading axis for the
    layers.
    """
    queries, keys, values = prompt.queries[layer], prompt.keys[layer], prompt.values[layer]
    n = keys.shape[1]
    asked = n if asked is None else asked
    if isinstance(signal, CacheSignal):
        filled = torch.ones(keys.shape[:2], dtype=torch.bool, device=keys.device)
        return signal.summarise(layer, keys, values, filled)
    if isinstance(signal, OutputSignal):
        filled = torch.ones(keys.shape[:2], dtype=torch.bool, device=keys.device)
        return signal.project(layer, keys, values, filled, output_of(prompt, layer))
    if isinstance(signal, HiddenSignal):
        if layer not in signal.layers_in(len(prompt.keys)):
            return None
        state = None
        for first in range(0, n, block):
            state = signal.change(prompt.hidden[layer, first : first + block], state)
        return state
    if isinstance(signal, ExtraPromptSignal):
        return asked_of(signal, prompt, layer, block)
    if not signal.reads(layer):
        return None
    if isinstance(signal, FedSignal):
        state, rotation = None, rope(prompt)
        for first in range(0, asked, block):
            own = slice(first, min(first + block, asked))
            state = signal.fold(FedTokens(keys[:, own], values[:, own], first, asked, queries[:, own], rotation), state)
        state = every(lambda part: part[None], state)
        for first in range(asked, n, block):
            own = slice(first, first + block)
            parts = keys[None, :, own], values[None, :, own], first, asked, queries[None, :, own]
            state = signal.fold(FedTokens(*parts, rotation), state)
        return signal.result(every(lambda part: part[0], state))
    assert isinstance(signal, AttentionSignal)
    state = None
    total = n if signal.window is not None else asked  # a window is looked back on, at the event
    for first in range(0, total, block):
        stop = min(first + block, total)
        if signal.window is None or stop > n - signal.window:
            state = signal.attend(rows_of(signal, queries, keys, prompt.scale, layer, first, stop, total), state)
    state = every(lambda part: part[None], state)
    for row in range(total, n):
        rows = rows_of(signal, queries, keys, prompt.scale, layer, row, row + 1, row + 1)
        logits = None if rows.logits is None else rows.logits[None]
        state = signal.attend(rows._replace(attention=rows.attention[None], logits=logits, decoded=True), state)
    return None if state is None else signal.result(every(lambda part: part[0], state))


def asked_of(signal: ExtraPromptSignal, prompt: Prompt, layer: int, block: int) -> Any:
    """A token of a passage has the query and the key of some token of the text."""
    keys, state = prompt.keys[layer], None
    for passage in signal.passages(prompt.token_ids, frozenset({0, 1, 2})):
        place = passage % len(prompt.token_ids)
        both = torch.cat([keys, keys[:, place]], 1)
        for first in range(0, len(passage), block):
            own = prompt.queries[layer][:, place[first : first + block]]
            logits = attention_logits(own, both, prompt.scale, keys.shape[1] + first)[..., : both.shape[1]]
            slots = logits.softmax(-1)[..., : keys.shape[1]]
            rows = AttentionRows(slots, layer, first, len(passage), len(keys), logits=logits[..., : keys.shape[1]])
            state = signal.attend(rows, state)
    return signal.result(state)


def rows_of(
    signal: AttentionSignal, queries: Tensor, keys: Tensor, scale: float, layer: int, first: int, stop: int, total: int
) -> AttentionRows:
    """Rows first..stop-1 of one layer, as a prefill forms them."""
    logits = attention_logits(queries[:, first:stop], keys[:, :stop], scale, first)
    return AttentionRows(logits.softmax(-1), layer, first, total, len(keys), logits=logits if signal.raw else None)


def every(change: Callable[[Tensor], Tensor], state: Any) -> Any:
    """A state with every tensor of it changed."""
    if isinstance(state, tuple):
        parts = [every(change, part) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    return change(state) if isinstance(state, Tensor) else state


def up_to(prompt: Prompt, stop: int) -> Prompt:
    """The first tokens of a prompt."""
    parts = (part[:, :, :stop] for part in prompt[1:4])
    return Prompt(prompt.token_ids[:stop], *parts, prompt.scale, prompt.hidden[:, :stop])


def a_later_view(prompt: Prompt, policy: Policy, before: View, event: Eviction, stop: int) -> View:
    """What the engine shows at the next event, once the tokens up to `stop` have been fed one by one.

    For policies with one keep set and signals of tokens, or that begin afresh. before: the view of the last
    event.
    """
    kept = before.positions[0, 0][event.retained[0, 0]]
    positions = torch.cat([kept, torch.arange(len(before.token_ids), stop)])
    layers = range(before.layers)
    return before._replace(
        token_ids=prompt.token_ids[:stop],
        signals={
            signal: of_model(signal, up_to(prompt, stop), before.prompt)
            if isinstance(signal, FedSignal | HiddenSignal)
            else tuple(decoded(signal, prompt, positions, len(kept), layer) for layer in layers)
            for signal in policy.needs
        },
        stored=positions.expand(before.layers, before.kv_heads, -1),
        memory=event.memory,
    )


def decoded(signal: Signal, prompt: Prompt, positions: Tensor, origin: int, layer: int) -> Any:
    """A signal of the slots at these positions, of which those from `origin` on were fed one by one."""
    keys, values = (part[layer][:, positions] for part in (prompt.keys, prompt.values))
    if isinstance(signal, CacheSignal):
        return signal.summarise(layer, keys, values, torch.ones(keys.shape[:2], dtype=torch.bool))
    assert isinstance(signal, AttentionSignal)
    assert signal.afresh
    state = None
    for slot in range(origin, len(positions) if signal.reads(layer) else origin):
        position = int(positions[slot])
        query = prompt.queries[layer][:, position : position + 1]
        row = attention_rows(query, keys[:, : slot + 1], prompt.scale, slot)
        # While decoding the engine stacks the layers that a signal reads.
        state = signal.attend(AttentionRows(row[None], layer, position, position + 1, len(keys), decoded=True), state)
    return None if state is None else signal.result(state)


def plain_attention(queries: Tensor, keys: Tensor, scale: float) -> Tensor:
    """[q_head, n, n], one row at a time, in float64."""
    q_heads, n, _ = queries.shape
    group = q_heads // keys.shape[0]
    attention = torch.zeros(q_heads, n, n, dtype=torch.float64)
    for head in range(q_heads):
        for row in range(n):
            logits = scale * (keys[head // group, : row + 1].double() @ queries[head, row].double())
            attention[head, row, : row + 1] = logits.softmax(0)
    return attention


class MadeTensors(torch.overrides.TorchFunctionMode):
    """Within it, the numbers of all tensors that are made."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self.sizes.append(made.numel())
        return made
