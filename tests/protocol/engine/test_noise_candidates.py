"""Noise of candidates alone, on the CPU and on a device, gives the token that all noise would give."""

import hashlib

import numpy as np
import pretended_cuda
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pretended_cuda import OnDevice, pretended

from protocol.engine import sampling
from protocol.engine.sampling import Draw


def numbers(draw, size):
    digest = hashlib.sha256(repr(("gumbel", *draw)).encode()).digest()
    return np.random.Philox(key=int.from_bytes(digest[:16])).random_raw(size)


def test_the_stream_of_a_device_is_that_of_numpy():
    for size in (1, 2, 3, 5, 8, 31):
        made = [Draw(f"p{number % 7}", number % 3, number) for number in range(200)]
        found = sampling.stream_on_device(torch.device("cpu"), made, size).numpy().view(np.uint64)
        assert np.array_equal(found, np.stack([numbers(draw, size) for draw in made]))
    long = sampling.stream_on_device(torch.device("cpu"), made[:1], 50_001).numpy().view(np.uint64)
    assert np.array_equal(long[0], numbers(made[0], 50_001))


def plain(logits, draws, temperature, top_p):
    """Noise for every token of every lane, and the first of the largest sums."""
    scaled = logits.double() / temperature
    if top_p < 1:
        scaled = scaled.masked_fill(~sampling.nucleus(logits, temperature, top_p), -torch.inf)
    raw = np.stack([numbers(draw, logits.shape[-1]) for draw in draws])
    uniform = ((raw >> np.uint64(12)) + 0.5) / 2**52
    return (scaled.numpy() - np.log(-np.log(uniform))).argmax(-1).tolist()


@st.composite
def lanes(draw):
    """Logits with ties, tokens that cannot be drawn, one far above the others, and spreads of 0 to 1e30."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    size, count = draw(st.sampled_from([1, 2, 7, 60, 190, 1500])), draw(st.integers(1, 5))
    spread = draw(st.sampled_from([0.0, 1e-3, 1.0, 3.0, 30.0, 1e4, 1e30]))
    logits = torch.randn(count, size, generator=generator)
    if draw(st.booleans()):
        logits = logits.round()
    logits = spread * logits
    if draw(st.booleans()):
        logits[:: draw(st.integers(1, 2)), size // 2 + 1 :] = -torch.inf
    if draw(st.booleans()):
        logits[:, draw(st.integers(0, size // 2))] += draw(st.sampled_from([5.0, 12.0, 30.0]))
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
    first = draw(st.integers(0, 2**20))
    return logits.to(dtype), [Draw("p", lane % draw(st.integers(1, 3)), first) for lane in range(count)]


@settings(max_examples=30, deadline=None)
@given(
    lanes=lanes(),
    temperature=st.sampled_from([0.01, 0.6, 1.0, 2.5, 100.0]),
    top_p=st.sampled_from([1.0, 1.0, 0.9, 0.3]),
    kept=st.sampled_from([1, 8, 512]),
    together=st.sampled_from([1, 1 << 18]),
)
def test_the_token_is_that_of_the_plain_formula_on_every_device(lanes, temperature, top_p, kept, together):
    logits, draws = lanes
    expected = plain(logits, draws, temperature, top_p)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "CANDIDATES", kept)
        patch.setattr(sampling, "NOISE_CANDIDATES", kept)
        patch.setattr(sampling, "CPU_BATCH", together)
        patch.setattr(sampling, "DEVICE_BATCH", together)
        assert sampling.choose(logits, draws, temperature, top_p) == expected
        with pretended():
            assert sampling.choose(OnDevice(logits), draws, temperature, top_p) == expected


@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_a_device_is_waited_for_once_and_whole_rows_stay_there(monkeypatch, spread):
    """At sizes above what leaves the device; flat logits and spread ones alike."""
    logits = spread * torch.randn(6, 5000, generator=torch.Generator().manual_seed(1))
    draws = [Draw("p", lane // 2, 3) for lane in range(6)]
    expected, waits, placed = plain(logits, draws, 0.6, 1.0), [], pretended_cuda.placed
    monkeypatch.setattr(sampling, "draw_tokens", None)

    def noted(name, args, kwargs):
        if name in ("cpu", "tolist", "item", "nonzero") and isinstance(args[0], OnDevice):
            waits.append((name, tuple(args[0].shape)))
        return placed(name, args, kwargs)

    monkeypatch.setattr(pretended_cuda, "placed", noted)
    with pretended():
        assert sampling.choose(OnDevice(logits), draws, 0.6) == expected
    assert waits == [("cpu", (3, 6, 2 * sampling.CANDIDATES))]
