"""The next token: greedy, or sampled with noise that depends on (problem, seed, step) alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from protocol.engine.device_numbers import upload

if TYPE_CHECKING:
    from protocol.engine.native.network import NativeNetwork

Ids = NDArray[np.int64]


def digest(*parts: object) -> bytes:
    """Return the SHA-256 of the parts."""
    return hashlib.sha256(repr(parts).encode()).digest()


def derive_key(*parts: object, bits: int) -> int:
    """Return the first `bits` bits of the digest of the parts."""
    return int.from_bytes(digest(*parts)[: bits // 8])


class Draw(NamedTuple):
    """The only inputs of the noise of one token."""

    problem: str
    seed: int
    step: int


def noise_keys(draws: Sequence[Draw]) -> Ids:
    """Return [draw, 2], the key of the Philox generator of each draw."""
    digests = {draw: digest("gumbel", *draw)[15::-1] for draw in dict.fromkeys(draws)}
    return np.frombuffer(b"".join(digests[draw] for draw in draws), "<i8").reshape(-1, 2)


def stream(draws: Sequence[Draw], size: int) -> NDArray[np.uint64]:
    """Return [draw, size], the raw stream of a Philox generator (Salmon et al. 2011) for each draw, each with
    a separate key.

    numpy keeps it stable across versions. One generator is set to each key in turn: a new one costs four times as much.
    """
    philox = np.random.Philox(key=0)
    state: Any = philox.state  # no number drawn, none buffered
    raw = np.empty((len(draws), size), np.uint64)
    for numbers, key in zip(raw, noise_keys(draws).view(np.uint64), strict=True):
        state["state"]["key"][:] = key
        philox.state = state
        numbers[:] = philox.random_raw(size)
    return raw


def gumbel(raw: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return standard Gumbel noise for each number of a stream; it increases with the number."""
    uniform = ((raw >> np.uint64(12)) + 0.5) * 2.0**-52  # never 0 or 1, whose noise is infinite
    noise: NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise


GUMBEL = """
template <typename T> T gumbel(T token, T key, T other_key) {
  unsigned long long a = token / 4 + 1, b = 0, c = 0, d = 0, first = key, second = other_key;
  for (int round = 0; round < 10; ++round) {
    const unsigned long long factor = 0xD2E7470EE14C6C93ull, other_factor = 0xCA5A826395121157ull;
    const unsigned long long high = __umul64hi(factor, a), low = factor * a;
    const unsigned long long other_high = __umul64hi(other_factor, c), other_low = other_factor * c;
    a = other_high ^ b ^ first, b = other_low, c = high ^ d ^ second, d = low;
    first += 0x9E3779B97F4A7C15ull, second += 0xBB67AE8584CAA73Bull;
  }
  const unsigned long long number = token & 2 ? (token & 1 ? d : c) : (token & 1 ? b : a);
  return __double_as_longlong(-log(-log(((number >> 12) + 0.5) * 2.220446049250313e-16)));
}
"""
"""`gumbel` of one number of `stream` on a device, as the bits of a float64: word token % 4 of block token / 4 of
Philox4x64-10 (constants of Random123), whose counter numpy increments before the first block.
"""


@cache
def gumbel_kernel() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return `GUMBEL` for all elements of three int64 tensors that are broadcast; compiled at its first call."""
    kernel: Callable[[Tensor, Tensor, Tensor], Tensor] = torch.cuda.jiterator._create_jit_fn(GUMBEL)
    return kernel


ROUNDING = 1e-9
"""An upper bound on the rounding error of two logarithms."""

NOISE_CANDIDATES = 256
"""The approximate number of tokens of a draw whose noise is computed whatever their logits are."""

CPU_BATCH = 1 << 18
"""Numbers of noise that the CPU computes in one batch, which fits its cache."""

DEVICE_BATCH = 1 << 24
"""Numbers of noise that a device computes in one batch: about 0.5 GB with intermediate tensors."""

UNUSABLE, UNSURE = -1, -2
"""In place of a token: of logits that are not `is_usable`; on a device, of sums that are closer than their rounding."""

NON_FINITE_LOGITS = "logits: not finite"
"""The failure reason of a lane whose logits are not `is_usable`."""


def is_usable(logits: Tensor) -> Tensor:
    """Return [lane] bool: whether logits [lane, vocabulary] have a finite maximum. NaN, +inf and only -inf do not."""
    return logits.amax(-1).isfinite()


def nucleus(logits: Tensor, temperature: float, top_p: float) -> Tensor:
    """Return [lane, vocabulary] bool, on the CPU: the tokens of top-p sampling (Holtzman et al., arXiv:1904.09751).

    This is the smallest set whose softmax(logits / temperature) sums to at least top_p: the likeliest tokens,
    including the one that crosses it; among equally likely ones the lower ids.
    """
    shares = (logits.double() / temperature).softmax(-1)
    sorted_shares, order = shares.sort(dim=-1, descending=True, stable=True)
    # Sums on the CPU: on CUDA they have no deterministic order.
    sums_before = pad(sorted_shares.cpu().cumsum(-1)[..., :-1], (1, 0))
    return torch.zeros_like(sums_before, dtype=torch.bool).scatter_(-1, order.cpu(), sums_before < top_p)


def choose(
    logits: Tensor,
    draws: Sequence[Draw],
    temperature: float,
    top_p: float = 1.0,
    keys: Tensor | None = None,
    native: NativeNetwork | None = None,
) -> list[int]:
    """Choose one token per lane from logits [lane, vocabulary]: UNUSABLE where they are not `is_usable`; a tie goes to
    the lowest id.

    Temperature 0 is greedy. Above 0, the argmax of logits / temperature + Gumbel noise is a sample of the
    softmax (Maddison et al., arXiv:1411.0030), and lanes of one problem and seed share the noise of a step:
    it is the same for every arm and every batch. Below 1, top_p restricts the tokens to the `nucleus`, with
    the same noise. keys: `noise_keys` of the draws, if they are on the device of the logits already. native: draws on
    the CPU in the place of numpy, the same tokens.
    """
    usable = is_usable(logits)
    if temperature > 0 and top_p < 1:
        in_nucleus = nucleus(logits, temperature, top_p)
        logits = logits.masked_fill(~in_nucleus.to(logits.device), -torch.inf)
    if temperature == 0:
        ids = logits.argmax(-1)
    elif native is not None:
        ids = native.draw(logits, noise_keys(draws), temperature, ROUNDING)
    elif logits.device.type == "cpu":
        ids = torch.full(usable.shape, UNSURE)
    else:
        ids = draw_tokens_on_device(logits, draws, temperature, keys)
    tokens: list[int] = torch.where(usable, ids, UNUSABLE).tolist()
    if unsure := [lane for lane, token in enumerate(tokens) if token == UNSURE]:
        unsure_logits = (logits if len(unsure) == len(tokens) else logits[unsure]).cpu()
        exact = draw_tokens(unsure_logits, [draws[lane] for lane in unsure], temperature)
        for lane, token in zip(unsure, exact.tolist(), strict=True):
            tokens[lane] = token
    return tokens


def draw_tokens(logits: Tensor, draws: Sequence[Draw], temperature: float) -> Ids:
    """Return for each lane the lowest id with the maximum of logits [lane, vocabulary] / temperature + noise;
    on the CPU.

    Noise is computed where it can matter: for the tokens of a draw whose number reaches a bar, for the likeliest
    token, and for tokens that noise at the bar could lift to the maximum of these. Rounding of sums is monotonic, so
    none is missed.
    """
    draw_numbers = dict[Draw, int]()
    draw_index = np.array([draw_numbers.setdefault(draw, len(draw_numbers)) for draw in draws])
    draws = list(draw_numbers)
    values = (logits if logits.dtype in (torch.float32, torch.float64) else logits.float()).numpy()
    (lanes, size), likeliest = values.shape, values.argmax(-1)
    bar = np.array(((size - max(1, min(NOISE_CANDIDATES, size // 8))) << 64) // size, np.uint64)
    ids, batch_size = np.full(lanes, size), max(1, CPU_BATCH // size)
    for begin in range(0, len(draws), batch_size):
        raw = stream(draws[begin : begin + batch_size], size)
        lane_index = ((draw_index >= begin) & (draw_index < begin + batch_size)).nonzero()[0]
        logit, draw = values if len(lane_index) == lanes else values[lane_index], draw_index[lane_index] - begin
        row, token = tokens_of_lanes(draw, *nonzero_indices(raw >= bar))
        row, token = np.append(row, np.arange(len(lane_index))), np.append(token, likeliest[lane_index])
        sums = logit[row, token].astype(np.float64) / temperature + gumbel(raw[draw[row], token])
        best = np.full(len(lane_index), -np.inf)
        np.maximum.at(best, row, sums)
        least = smallest_useful_logit(best, gumbel(bar), temperature, values.dtype)
        more, others = nonzero_indices(logit >= least[:, None])
        likely = logit[more, others].astype(np.float64) / temperature + gumbel(raw[draw[more], others])
        row, token, sums = np.append(row, more), np.append(token, others), np.append(sums, likely)
        np.maximum.at(best, more, likely)
        top = sums == best[row]
        np.minimum.at(ids, lane_index[row[top]], token[top])
    return ids


def nonzero_indices(condition: NDArray[np.bool_]) -> tuple[Ids, Ids]:
    """Return row and column of the true entries, by rows; np.nonzero of two axes takes three times as long."""
    row, column = np.divmod(np.flatnonzero(condition), condition.shape[-1])
    return row, column


def tokens_of_lanes(draw: Ids, pair_draws: Ids, token: Ids) -> tuple[Ids, Ids]:
    """Return (lane, token): the tokens of each lane's draw [lane], from pairs (pair_draws, token) sorted by draw."""
    begin, end = np.searchsorted(pair_draws, draw, "left"), np.searchsorted(pair_draws, draw, "right")
    lane = np.repeat(np.arange(len(draw)), end - begin)
    n_before = np.cumsum(end - begin) - (end - begin)
    return lane, token[np.arange(len(lane)) + (begin - n_before)[lane]]


def smallest_useful_logit(
    best: NDArray[np.float64], max_noise: NDArray[np.float64], temperature: float, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Return [lane]: a logit below this bound, with noise of at most `max_noise`, stays below the best sum [lane].

    The bound is lower by more than all rounding errors, of which the largest is to the dtype of the logits.
    """
    precision = np.finfo(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        least = (best - max_noise - ROUNDING - 1e-12 * abs(best)) * temperature
        least -= 2 * float(precision.eps) * abs(least) + float(precision.tiny)
        return np.where(np.isnan(least), -np.inf, least).astype(dtype)


def draw_tokens_on_device(
    logits: Tensor, draws: Sequence[Draw], temperature: float, keys: Tensor | None = None
) -> Tensor:
    """Return [lane], the token with the maximum of logits [lane, vocabulary] / temperature + noise, all of which the
    device computes; UNSURE where another sum is so close that the device's logarithms might turn their order.
    """
    if keys is None:
        (keys,) = upload(logits.device, [noise_keys(draws)])
    tokens, lanes = torch.arange(logits.shape[-1], device=logits.device), max(1, DEVICE_BATCH // logits.shape[-1])
    tops = []
    for some, own_keys in zip(torch.split(logits, lanes), torch.split(keys, lanes), strict=True):
        noise = gumbel_kernel()(tokens, own_keys[:, :1], own_keys[:, 1:]).view(torch.float64)
        tops.append((some.double() / temperature + noise).topk(min(2, logits.shape[-1])))
    sums, ids = (torch.cat(parts) if len(tops) > 1 else parts[0] for parts in zip(*tops, strict=True))
    margin = ROUNDING + 1e-12 * sums[:, 0].abs()
    return torch.where(sums[:, 0] - sums[:, -1] > margin, ids[:, 0], UNSURE)
