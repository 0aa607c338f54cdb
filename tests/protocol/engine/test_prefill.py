"""The context is fed once, in one piece or in chunks, and what policies read of it is measured on the way."""

from dataclasses import dataclass, field

import pytest
import torch
from looped import looped
from plain_forward import plain_forward
from tiny_networks import FAMILIES, LAYERS, Q_HEADS, Noise, all_kept, answer, lane, noted, outside, tiny, words
from torch.utils._python_dispatch import TorchDispatchMode

from policies import HiddenSignal
from policies.crystal.coattention import CoAttention
from policies.signals import BLOCK, AttentionSums, HiddenChange, Norms
from protocol.engine import prefill
from protocol.engine.observation import observe_forward

N = 2 * BLOCK + 44
CHUNKS = (None, BLOCK, 100, 37)
EDGES = CoAttention(chunk=48, intra_k=3, intra_threshold=0.3, cross_k=2, cross_threshold=0.02)
WINDOWS = (1, 40, BLOCK + 5, 1000)
EVERY = (
    AttentionSums(),
    *map(AttentionSums, WINDOWS),
    EDGES,
    Norms(),
    HiddenChange((0,), None),
    HiddenChange((2,), None),
)


def fed(model, context, signals=(), chunk=None, recent=0, attention=None):
    hidden = [signal for signal in signals if isinstance(signal, HiddenSignal)]
    shown = {layer for signal in hidden for layer in signal.layers_in(LAYERS)}
    with observe_forward(model.network, shown), torch.no_grad():
        return prefill.feed(model, context, signals, chunk=chunk, recent=recent, attention=attention)


@pytest.fixture(scope="module")
def plain():
    return plain_forward(tiny().network, words(N))


def assert_near(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@looped("chunk", CHUNKS)
@looped(
    "signals",
    [(), (AttentionSums(),), (AttentionSums(40),), (AttentionSums(1000),), (EDGES,), EVERY],
    ids=["none", "all rows", "last rows", "more rows than there are", "first layer", "every"],
)
def test_attention_in_blocks_and_in_chunks_is_that_of_the_plain_forward(chunk, signals, plain):
    found = fed(tiny(), words(N), signals, chunk)
    for name in ("keys", "values"):
        assert_near(torch.stack(getattr(found, name)), getattr(plain, name))
    assert_near(found.logits, plain.logits[-1])
    assert found.scale == 0.25


@looped("rows", [1, 16, 37])
@looped("signals", [(), (AttentionSums(40),)], ids=["none", "last rows"])
def test_rows_of_a_later_chunk_that_share_no_mask_see_what_they_should(rows, signals, plain, monkeypatch):
    monkeypatch.setattr(prefill, "MASKED_ROWS", rows)
    found = fed(tiny(), words(N), signals, 200)
    assert_near(torch.stack(found.keys), plain.keys)
    assert_near(found.logits, plain.logits[-1])


@looped("chunk", CHUNKS)
@looped("window", [None, *WINDOWS])
def test_sums_of_attention_are_those_of_a_loop_over_rows(chunk, window, plain):
    for signals in (EVERY, (AttentionSums(window),)):
        found = fed(tiny(), words(N), signals, chunk).signals[AttentionSums(window)]
        for layer in range(LAYERS):
            sums = torch.zeros(Q_HEADS, N, dtype=torch.float64)
            for row in range(0 if window is None else max(0, N - window), N):
                sums += plain.weights[layer, :, row]
            assert_near(found[layer], sums)


@looped("chunk", CHUNKS)
def test_norms_and_hidden_changes_are_those_of_a_loop_over_tokens(chunk, plain):
    found = fed(tiny(), words(N), EVERY, chunk).signals
    for layer in range(LAYERS):
        for name in ("key", "value"):
            stored = getattr(plain, f"{name}s")[layer].tolist()
            norms = [[sum(x * x for x in slot) ** 0.5 for slot in head] for head in stored]
            assert_near(getattr(found[Norms()][layer], name), torch.tensor(norms, dtype=torch.float64))
    for layer in (0, 2):
        hidden = plain.hidden[layer]
        changes = [0.0] + [float((hidden[i] - hidden[i - 1]).square().sum()) ** 0.5 for i in range(1, N)]
        assert_near(found[HiddenChange((layer,), None)][layer].changes, torch.tensor(changes, dtype=torch.float64))


def edges_of_a_loop(attention):
    """Masses and edges of EDGES from the attention of the first layer, [q_head, query, key]."""
    mean, masses, edges = attention.mean(0), [], set()
    for start in range(0, N, EDGES.chunk):
        stop = min(start + EDGES.chunk, N)
        for key in range(start, stop):
            received = sorted(float(head[start:stop, key].sum()) for head in attention)
            masses.append(sum(received[-3:]))
        pattern = mean[start:stop, start:stop]
        for i in range(start, stop):
            row = pattern[i - start]
            cosine = (pattern @ row) / ((pattern.norm(dim=1) + 1e-8) * (row.norm() + 1e-8))
            alike = sorted(((float(cosine[j - start]), j) for j in range(start, stop) if j != i), reverse=True)
            edges |= {(i, j) for value, j in alike[: EDGES.intra_k] if value > EDGES.intra_threshold}
            before = sorted(((float(mean[i, j]), j) for j in range(start)), reverse=True)
            edges |= {(j, i) for value, j in before[: EDGES.cross_k] if value > EDGES.cross_threshold}
    return masses, edges


@pytest.mark.parametrize("chunk", CHUNKS)
def test_first_layer_salience_and_edges_are_those_of_a_loop(chunk, plain):
    first, *others = fed(tiny(), words(N), EVERY, chunk).signals[EDGES]
    masses, edges = edges_of_a_loop(plain.weights[0])
    assert_near(first.mass, torch.tensor(masses, dtype=torch.float64))
    found = set(zip(first.edges.i.tolist(), first.edges.j.tolist(), strict=True))
    assert len(found) == len(first.edges.i), "an edge was found twice"
    assert found == edges
    assert any(j < i for i, j in edges), "no edges within chunks"
    assert any(j - i >= EDGES.chunk for i, j in edges), "no edges across chunks"
    assert others == [None] * (LAYERS - 1)


@looped("family", FAMILIES)
@looped("chunk", [1, 13, 39, 40, 41])
def test_chunks_of_any_size_give_what_one_piece_gives(family, chunk, device):
    model, context = tiny(family, device=device), words(40)
    signals = tuple(signal for signal in EVERY if signal != EDGES)
    whole, pieces = fed(model, context, signals), fed(model, context, signals, chunk)
    assert_near(pieces.logits, whole.logits)
    for signal in signals:
        for one, other in zip(whole.signals[signal], pieces.signals[signal], strict=True):
            assert_near(other, one)


@looped(("threads", "copies"), [(1, 1), (2, 1), (4, 2), (8, 4), (3, 1)])
def test_heads_that_are_held_several_times_for_the_threads_give_what_one_gives(threads, copies):
    model, context = tiny(), words(BLOCK + 41)  # the rows of the second block do not divide by 2
    once = fed(model, context, EVERY)
    torch.set_num_threads(threads)  # put back by a fixture
    assert prefill.head_copies(once.keys[0]) == copies
    often = fed(model, context, EVERY)
    assert_near(often.logits, once.logits)
    for signal in EVERY:
        for one, other in zip(once.signals[signal], often.signals[signal], strict=True):
            if isinstance(one, torch.Tensor):
                assert_near(other, one)
    assert_near(often.signals[EDGES][0].mass, once.signals[EDGES][0].mass)


@looped("chunk", [None, 3, 16])
@looped("recent", [1, 10, 40, 60])
def test_the_last_queries_are_kept_whatever_the_chunks(chunk, recent):
    plain = plain_forward(tiny().network, words(40))
    found = fed(tiny(), words(40), chunk=chunk, recent=recent)
    assert_near(torch.stack(found.recent), plain.queries[:, :, -recent:])


def test_nothing_is_measured_or_kept_that_no_policy_reads():
    found = fed(tiny(), words(40))
    assert (found.signals, found.recent) == ({}, [])


@dataclass(frozen=True)
class Counting:
    """An attention signal that notes what it is given; equal signals are one."""

    name: str
    window: int | None = None
    carried = True
    afresh = False
    raw = False
    of_tokens = False
    seen: list = field(default_factory=list, compare=False)

    def reads(self, layer):
        return layer != 1

    def attend(self, rows, before):
        self.seen.append((rows.layer, rows.start, rows.total, tuple(rows.attention.shape)))
        return (before or self.name) + str(rows.layer)

    def result(self, state):
        return state + "!"


def reading(*signals):
    return lane(noted(Noise(0, frozenset(signals))), 5, seed=4)


def test_a_signal_that_several_lanes_need_is_measured_once_a_block_of_the_layers_that_it_reads():
    first, second = Counting("a"), Counting("b", window=30)
    lanes = [reading(first), reading(first), reading(Counting("a"), second), reading(), lane(all_kept())]
    answer(tiny(), outside(BLOCK + 40), lanes, max_new_tokens=2)
    total = BLOCK + 40
    assert first.seen == [
        (layer, start, total, (Q_HEADS, stop - start, stop))
        for layer in (0, 2)
        for start, stop in ((0, BLOCK), (BLOCK, total))
    ]
    assert [seen[:3] for seen in second.seen] == [(layer, BLOCK, total) for layer in (0, 2)]
    views = [one.policy.notes[0][0] for one in lanes[:4]]
    assert views[0].signals == {first: ("a00!", None, "a22!")}
    assert views[2].signals == {first: ("a00!", None, "a22!"), second: ("b0!", None, "b2!")}
    assert views[3].signals == {}


@dataclass(frozen=True)
class StoredKeys:
    seen: list = field(default_factory=list, compare=False)

    def summarise(self, layer, keys, values, filled):
        assert filled.all()
        assert filled.shape == keys.shape[:2] == values.shape[:2]
        self.seen.append((layer, keys.clone()))


def test_stored_keys_are_shown_after_rope_once_a_layer():
    signal = StoredKeys()
    model, prompt = tiny(), outside(40)
    answer(model, prompt, [reading(signal), reading(signal)], max_new_tokens=1)
    assert [layer for layer, _ in signal.seen] == [0, 1, 2]
    layer = model.network.model.layers[0]
    with torch.no_grad():
        hidden = layer.input_layernorm(model.network.model.embed_tokens(torch.tensor([prompt.context])))
        plain = layer.self_attn.k_proj(hidden).view(40, 2, 16).transpose(0, 1)
    # RoPE turns the pairs (i, i + 8) of the key at position m by m / 10000^(i / 8).
    angle = torch.arange(40.0, dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(8.0, dtype=torch.float64) / 8)
    left, right = plain[..., :8], plain[..., 8:]
    turned = torch.cat([left * angle.cos() - right * angle.sin(), right * angle.cos() + left * angle.sin()], -1)
    torch.testing.assert_close(signal.seen[0][1], turned, rtol=1e-4, atol=1e-4)


class Largest(TorchDispatchMode):
    """The most elements that any one operation has returned."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.numel())
        return made


@pytest.mark.parametrize("chunk", [None, 700])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_largest_tensor_of_a_prefill_grows_linearly_with_all_signals_measured(dtype, chunk):
    model = tiny(dtype=dtype, num_hidden_layers=1)
    signals = tuple(signal for signal in EVERY if signal != HiddenChange((2,), None))
    for n in (1024, 2048):
        with Largest() as seen:
            fed(model, words(n), signals, chunk)
        # The last block may be a short one.
        assert 0.9 * Q_HEADS * BLOCK * n < seen.numel <= Q_HEADS * BLOCK * n < n * n


@pytest.mark.parametrize("chunk", [None, 700])
def test_without_signals_no_weights_of_attention_are_made(chunk):
    model = tiny(dtype=torch.float32, num_hidden_layers=1)
    for n in (1024, 2048):
        with Largest() as seen:
            fed(model, words(n), (), chunk)
        # In one piece the widest activation, of 96 columns; in chunks the mask, of at most 512 rows.
        assert seen.numel <= (96 if chunk is None else prefill.MASKED_ROWS) * n


def test_a_whole_run_makes_no_tensor_of_the_square_of_the_prompt():
    n = 1024
    lanes = [lane(all_kept()), reading(AttentionSums(), HiddenChange((0,), None))]
    with Largest() as seen:
        answer(tiny(num_hidden_layers=1), outside(n, 2), lanes, max_new_tokens=2)
    assert n * 96 <= seen.numel < n * n


def test_the_square_would_be_noticed():
    queries = torch.ones(1, 1, 480, 16)
    with Largest() as seen:
        torch.softmax(queries @ queries.transpose(2, 3), -1)
    assert seen.numel == 480 * 480
