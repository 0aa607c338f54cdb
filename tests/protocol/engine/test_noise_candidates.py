"""Noise of candidates alone, on the CPU and on a device, gives the token that all noise would give."""

import ctypes
import hashlib
import shutil
import subprocess

import numpy as np
import pretended_cuda
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_lanes import network
from pretended_cuda import OnDevice, pretended

from protocol.engine import sampling
from protocol.engine.native import library
from protocol.engine.native.network import NativeNetwork
from protocol.engine.sampling import Draw


def numbers(draw, size):
    digest = hashlib.sha256(repr(("gumbel", *draw)).encode()).digest()
    return np.random.Philox(key=int.from_bytes(digest[:16])).random_raw(size)


ON_THE_HOST = """
#include <cmath>
#include <cstring>
static unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static long long __double_as_longlong(double x) { long long bits; std::memcpy(&bits, &x, 8); return bits; }
using std::log;
%s
extern "C" void fill(long long size, long long key, long long other_key, long long* bits) {
  for (long long token = 0; token < size; ++token) bits[token] = gumbel<long long>(token, key, other_key);
}
"""


@pytest.fixture(scope="module")
def host_kernel(tmp_path_factory):
    """The source of the device's kernel, compiled for the host."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("kernel")
    (folder / "gumbel.cpp").write_text(ON_THE_HOST % sampling.GUMBEL)
    made = [compiler, "-O1", "-shared", "-fPIC", str(folder / "gumbel.cpp"), "-o", str(folder / "gumbel.so")]
    subprocess.run(made, check=True)
    fill = ctypes.CDLL(str(folder / "gumbel.so")).fill

    def gumbel(size, key, other_key):
        bits = np.empty(size, np.int64)
        whole = [ctypes.c_longlong(int(each)) for each in (size, key, other_key)]
        fill(*whole, bits.ctypes.data_as(ctypes.c_void_p))
        return bits.view(np.float64)

    return gumbel


@pytest.fixture(scope="module")
def native():
    """The kernel, whatever the network; None without a compiler."""
    return NativeNetwork(network("Llama").network, 8) if any(map(shutil.which, library.COMPILERS)) else None


def expected_noise(draw, size):
    uniform = ((numbers(draw, size) >> np.uint64(12)) + 0.5) / 2**52
    return -np.log(-np.log(uniform))


def test_the_kernel_of_a_device_computes_the_noise_of_numpys_stream(host_kernel):
    draws = [Draw(f"p{number % 7}", number % 3, number) for number in range(200)]
    for draw, keys in zip(draws, sampling.noise_keys(draws), strict=True):
        for size in (1, 2, 3, 5, 8, 31):
            np.testing.assert_allclose(host_kernel(size, *keys), expected_noise(draw, size), rtol=0, atol=1e-12)
    keys = sampling.noise_keys(draws[:1])[0]
    np.testing.assert_allclose(host_kernel(50_001, *keys), expected_noise(draws[0], 50_001), rtol=0, atol=1e-12)


def test_torch_finds_the_kernel_in_its_source():
    kernel = sampling.gumbel_kernel()
    assert (kernel.kernel_name, kernel.num_outputs, kernel.return_by_ref) == ("gumbel", 1, False)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_kernel_compiled_for_cuda_computes_it_too():
    draws, size = [Draw("p", number, 3) for number in range(5)], 10_001
    keys = torch.from_numpy(sampling.noise_keys(draws)).cuda()
    tokens = torch.arange(size, device="cuda")
    noise = sampling.gumbel_kernel()(tokens, keys[:, :1], keys[:, 1:]).view(torch.float64).cpu().numpy()
    np.testing.assert_allclose(noise, [expected_noise(draw, size) for draw in draws], rtol=0, atol=1e-12)


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


@settings(max_examples=60, deadline=None)
@given(
    lanes=lanes(),
    temperature=st.sampled_from([0.01, 0.6, 1.0, 2.5, 100.0]),
    top_p=st.sampled_from([1.0, 1.0, 0.9, 0.3]),
    kept=st.sampled_from([1, 8, 512]),
    sure=st.booleans(),
    together=st.sampled_from([1, 1 << 18]),
)
def test_the_token_is_that_of_the_plain_formula_on_every_device(
    native, lanes, temperature, top_p, kept, sure, together
):
    logits, draws = lanes
    expected = plain(logits, draws, temperature, top_p)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "NOISE_CANDIDATES", kept)
        patch.setattr(sampling, "CPU_BATCH", together)
        patch.setattr(sampling, "DEVICE_BATCH", together)
        if not sure:  # what the device draws is never trusted
            patch.setattr(sampling, "ROUNDING", np.inf)
        assert sampling.choose(logits, draws, temperature, top_p) == expected
        with pretended():
            assert sampling.choose(OnDevice(logits), draws, temperature, top_p) == expected
        if native is not None and logits.dtype == torch.float32:
            assert sampling.choose(logits, draws, temperature, top_p, native=native) == expected


def test_the_native_kernel_leaves_only_sums_that_rounding_might_turn(native):
    """Of 4,000 draws none. Of two sums that are 1e-5 apart the larger one, unless rounding may be that large."""
    if native is None:
        pytest.skip("no C++ compiler")
    draws = [Draw("p", 0, step) for step in range(4000)]
    keys = sampling.noise_keys(draws)
    logits = 2 * torch.randn(4000, 190, generator=torch.Generator().manual_seed(1))
    assert native.draw(logits, keys, 0.6, sampling.ROUNDING).tolist() == plain(logits, draws, 0.6, 1.0)
    noise, near = torch.from_numpy(expected_noise(draws[0], 190)), torch.zeros(1, 190)
    best, second = noise.topk(2).indices.tolist()
    near[0, second] = noise[best] - noise[second] - 1e-5
    assert native.draw(near, keys[:1], 1.0, sampling.ROUNDING).tolist() == [best]
    assert native.draw(near, keys[:1], 1.0, 1e-4).tolist() == [sampling.UNSURE]


@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_a_device_is_waited_for_once_and_rows_stay_there(monkeypatch, spread):
    """Flat logits and spread ones alike; one number a lane is read."""
    logits = spread * torch.randn(6, 5000, generator=torch.Generator().manual_seed(1))
    draws = [Draw("p", lane // 2, 3) for lane in range(6)]
    monkeypatch.setattr(sampling, "draw_tokens", None)
    with pretended() as traffic:
        found = sampling.choose(OnDevice(logits), draws, 0.6)
    assert found == plain(logits, draws, 0.6, 1.0)
    assert (traffic.waits, traffic.copies) == (["tolist"], ["to"])


def test_sums_that_rounding_might_turn_are_computed_again_on_the_host(monkeypatch):
    """Noise that is off by less than its bound, in favour of the second token, changes no choice."""
    draw, size = Draw("p", 0, 0), 8
    noise = expected_noise(draw, size)
    order = np.argsort(noise)[::-1]
    near = torch.zeros(1, size, dtype=torch.float64)
    near[0, order[1]] = noise[order[0]] - noise[order[1]] - 1e-10
    exact = pretended_cuda.gumbel_kernel(pretended_cuda.Traffic())

    def shifted(tokens, keys, other_keys):
        bits = exact(tokens, keys, other_keys)
        bits.held.numpy().view(np.float64)[0, order[1]] += 5e-10
        return bits

    with pretended():
        monkeypatch.setattr(sampling, "gumbel_kernel", lambda: shifted)
        assert sampling.choose(OnDevice(near), [draw], 1.0) == [order[0]]


def test_logits_without_a_finite_maximum_have_no_token_on_any_device(native):
    logits = torch.zeros(5, 9)
    logits[0, 3], logits[2], logits[3, 1], logits[4, 0] = torch.nan, -torch.inf, torch.inf, -torch.inf
    draws = [Draw("p", 0, lane) for lane in range(5)]
    for temperature, top_p in ((0.0, 1.0), (0.7, 1.0), (0.7, 0.5)):
        found = sampling.choose(logits, draws, temperature, top_p)
        assert [token == sampling.UNUSABLE for token in found] == [True, False, True, True, False]
        assert found[1] == sampling.choose(logits[1:2], draws[1:2], temperature, top_p)[0]
        with pretended():
            assert sampling.choose(OnDevice(logits), draws, temperature, top_p) == found
        if native is not None:
            assert sampling.choose(logits, draws, temperature, top_p, native=native) == found
