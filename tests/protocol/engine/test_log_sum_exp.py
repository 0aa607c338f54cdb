"""Signals beside a fused kernel: weights and sums from its log-sum-exp are those of the plain forward."""

import pytest
import torch
from test_prefill import CHUNKS, EDGES, EVERY, WINDOWS, N, assert_near, fed
from tiny_networks import LAYERS, Q_HEADS, tiny, words
from varlen_by_loops import varlen_by_loops

from policies.signals import BLOCK, AttentionSums
from protocol.engine.attention import log_sum_exp
from protocol.engine.attention.kernels import PADDED, Attention

LOOPS = Attention(varlen_by_loops)


@pytest.fixture(scope="module")
def blocks():
    return fed(tiny(), words(N), EVERY, attention=PADDED)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_signals_beside_the_kernel_are_those_of_blocks_of_attention(chunk, blocks):
    found = fed(tiny(), words(N), EVERY, chunk, attention=LOOPS)
    assert_near(found.logits, blocks.logits)
    for signal in EVERY:
        for one, other in zip(found.signals[signal], blocks.signals[signal], strict=True):
            for own, expected in zip(parts(one), parts(other), strict=True):
                assert_near(own, expected)


def parts(value):
    """The tensors of a result, whatever it is made of; edges as pairs in one order."""
    if value is None:
        return []
    if isinstance(value, torch.Tensor):
        return [value]
    if hasattr(value, "edges"):
        return [value.mass, torch.tensor(sorted(zip(value.edges.i.tolist(), value.edges.j.tolist(), strict=True)))]
    return list(value)


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-12), (torch.float32, 1e-4), (torch.bfloat16, 1e-3)])
@pytest.mark.parametrize(("rows", "slots"), [(1, 1), (40, 40), (7, 40), (1, 40)])
def test_column_sums_are_those_of_weights_in_double_precision(rows, slots, dtype, near):
    """Of bfloat16 the products are those of the numbers as they are stored: only their sum is rounded, and
    the log-sum-exp comes in three parts.
    """
    generator = torch.Generator().manual_seed(0)
    queries = 3 * torch.randn(4, rows, 16, generator=generator).to(dtype)
    keys = 3 * torch.randn(2, slots, 16, generator=generator).to(dtype)
    scale = 0.25
    logits = queries.double() @ keys.double().repeat_interleave(2, 0).transpose(1, 2) * scale
    ahead = torch.arange(slots) > torch.arange(slots - rows, slots)[:, None]
    logits.masked_fill_(ahead, -torch.inf)
    lse = logits.logsumexp(-1).to(torch.promote_types(dtype, torch.float32))

    def kernel(query, key, value, *given, **settings):
        """As a kernel does it: products of bfloat16 are summed in float32."""
        stored = (one.to(lse.dtype) for one in (query, key, value))
        return varlen_by_loops(*stored, *given, **settings)

    sums = log_sum_exp.column_sums(kernel, queries, keys, lse, scale)
    torch.testing.assert_close(sums.double(), logits.softmax(-1).sum(1), rtol=near, atol=near)


def test_rows_of_weights_sum_to_one_and_no_more_of_them_are_formed_than_are_read(monkeypatch):
    formed, form = [], log_sum_exp.weights_from_lse

    def note(logits, lse):
        weights = form(logits, lse)
        formed.append(weights.shape[1])
        assert_near(weights.sum(-1), torch.ones(Q_HEADS, weights.shape[1], dtype=torch.float64))
        return weights

    monkeypatch.setattr(log_sum_exp, "weights_from_lse", note)
    fed(tiny(), words(N), [AttentionSums()], attention=LOOPS)
    assert formed == []
    fed(tiny(), words(N), [AttentionSums(), AttentionSums(40)], attention=LOOPS)
    assert formed == [40] * LAYERS
    fed(tiny(), words(N), [EDGES], attention=LOOPS)
    assert sum(formed) == 40 * LAYERS + N
    assert max(formed) == BLOCK


def test_heads_too_wide_for_column_sums_are_summed_in_blocks(monkeypatch, blocks):
    monkeypatch.setattr(log_sum_exp, "MAX_HEAD_DIM", 16 + log_sum_exp.EXTRA_DIMS - 1)
    monkeypatch.setattr(log_sum_exp, "column_sums", None)
    found = fed(tiny(), words(N), EVERY, attention=LOOPS).signals
    for window in (None, *WINDOWS):
        assert_near(torch.stack(found[AttentionSums(window)]), torch.stack(blocks.signals[AttentionSums(window)]))
