"""The next token: greedy, or sampled with noise that depends on (problem, seed, step) alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

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


def stream(draws: Sequence[Draw], size: int) -> NDArray[np.uint64]:
    """Return [draw, size], the raw stream of a Philox generator (Salmon et al. 2011) for each draw, each with
    a separate key.

    numpy keeps it stable across versions. One generator is set to each key in turn: a new one costs four
    times as much.
    """
    philox = np.random.Philox(key=0)
    state: Any = philox.state  # no number drawn, none buffered
    raw = np.empty((len(draws), size), np.uint64)
    for numbers, draw in zip(raw, draws, strict=True):
        state["state"]["key"][:] = np.frombuffer(digest("gumbel", *draw)[15::-1], "<u8")
        philox.state = state
        numbers[:] = philox.random_raw(size)
    return raw


def gumbel(raw: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return standard Gumbel noise for each number of a stream; it increases with the number."""
    uniform = ((raw >> np.uint64(12)) + 0.5) * 2.0**-52  # never 0 or 1, whose noise is infinite
    noise: NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise


PHILOX = (-0x2D18B8F11EB3936D, -0x35A57D9C6AEDEEA9)
KEYS = (-0x61C8864680B583EB, -0x4498517A7B3558C5)
"""The multipliers of a Philox4x64 round and the increments of its key (Random123), as signed numbers."""
SIGN = -(1 << 63)


def product(factor: int, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Return the high and low half of factor * numbers, for unsigned 64-bit numbers stored in int64.

    Computed from products of 32-bit halves: none of the sums reaches 2^64, where int64 wraps.
    """
    low = 0xFFFFFFFF
    high_factor, low_factor = (factor >> 32) & low, factor & low
    high_number, low_number = (numbers >> 32) & low, numbers & low
    middle = high_factor * low_number + ((low_factor * low_number >> 32) & low)
    other = low_factor * high_number + (middle & low)
    return high_factor * high_number + ((middle >> 32) & low) + ((other >> 32) & low), factor * numbers


def stream_on_device(device: torch.device, draws: Sequence[Draw], size: int) -> Tensor:
    """Return [draw, size] int64, the bits of `stream`, computed on the device of the logits: Philox4x64-10 in
    plain arithmetic.

    Block b of four numbers encrypts the counter b + 1: numpy increments it first.
    """
    digests = b"".join(digest("gumbel", *draw)[15::-1] for draw in draws)
    keys = torch.frombuffer(bytearray(digests), dtype=torch.int64).view(-1, 2).to(device, non_blocking=True)
    counter = torch.arange(1, -(-size // 4) + 1, device=device)
    first, second = keys[:, :1], keys[:, 1:]
    zero = torch.zeros_like(counter)
    block = (counter, zero, zero, zero)
    for _ in range(10):
        (high, low), (other_high, other_low) = product(PHILOX[0], block[0]), product(PHILOX[1], block[2])
        block = (other_high ^ block[1] ^ first, other_low, high ^ block[3] ^ second, low)
        first, second = first + KEYS[0], second + KEYS[1]
    return torch.stack(block, -1).flatten(-2)[..., :size]


ROUNDING = 1e-9
"""An upper bound on the rounding error of two logarithms."""

NOISE_CANDIDATES = 256
"""The approximate number of tokens of a draw whose noise is computed whatever their logits are."""

CPU_BATCH = 1 << 18
"""Numbers of noise that the CPU computes in one batch, which fits its cache."""

CANDIDATES = 512
"""Tokens with the largest logits, and with the most noise, that are copied from a device. Normal logits of
any variance need more for two lanes in a million (a vocabulary of 151,936): P(Gumbel < -2.57).
"""

DEVICE_BATCH = 1 << 22
"""Numbers of noise that a device computes in one batch: about 0.15 GB with intermediate tensors."""


NON_FINITE_LOGITS = "logits: not finite"
"""The failure reason of a lane whose logits are not `is_usable`."""


def is_usable(logits: Tensor) -> Tensor:
    """Return [lane] bool: whether logits [lane, vocabulary] have a finite maximum. NaN, +inf and rows of -inf
    alone do not.
    """
    return logits.amax(-1).isfinite()


def nucleus(logits: Tensor, temperature: float, top_p: float) -> Tensor:
    """Return [lane, vocabulary] bool, on the CPU: the tokens of top-p sampling (Holtzman et al.,
    arXiv:1904.09751).

    This is the smallest set whose softmax(logits / temperature) sums to at least top_p: the likeliest tokens,
    including the one that crosses it; among equally likely ones the lower ids.
    """
    shares = (logits.double() / temperature).softmax(-1)
    sorted_shares, order = shares.sort(dim=-1, descending=True, stable=True)
    # Sums on the CPU: on CUDA they have no deterministic order.
    sums_before = pad(sorted_shares.cpu().cumsum(-1)[..., :-1], (1, 0))
    return torch.zeros_like(sums_before, dtype=torch.bool).scatter_(-1, order.cpu(), sums_before < top_p)


def choose(logits: Tensor, draws: Sequence[Draw], temperature: float, top_p: float = 1.0) -> list[int]:
    """Choose one token per lane from `is_usable` logits [lane, vocabulary]; a tie goes to the lowest id.

    Temperature 0 is greedy. Above 0, the argmax of logits / temperature + Gumbel noise is a sample of the
    softmax (Maddison et al., arXiv:1411.0030), and lanes of one problem and seed share the noise of a step:
    it is the same for every arm and every batch. Below 1, top_p restricts the tokens to the `nucleus`, with
    the same noise.
    """
    if temperature == 0:
        likeliest: list[int] = logits.argmax(-1).tolist()
        return likeliest
    if top_p < 1:
        in_nucleus = nucleus(logits, temperature, top_p)
        logits = logits.masked_fill(~in_nucleus.to(logits.device), -torch.inf)
    draw_numbers = {draw: index for index, draw in enumerate(dict.fromkeys(draws))}
    draw_index = np.array([draw_numbers[draw] for draw in draws])
    draw_function = draw_tokens if logits.device.type == "cpu" else draw_tokens_on_device
    ids: list[int] = draw_function(logits, list(draw_numbers), draw_index, temperature).tolist()
    return ids


def draw_tokens(logits: Tensor, draws: Sequence[Draw], draw_index: Ids, temperature: float) -> Ids:
    """Return for each lane the lowest id with the maximum of logits [lane, vocabulary] / temperature + noise;
    on the CPU.

    draw_index: [lane], the index of its draw. Noise is computed where it can matter: for the tokens of a draw
    whose number reaches a bar, for the likeliest token, and for tokens that noise at the bar could lift to
    the maximum of these. Rounding of sums is monotonic, so none is missed.
    """
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
    """Return (lane, token): for each lane the tokens of its draw [lane], from pairs (pair_draws, token)
    sorted by draw.
    """
    begin, end = np.searchsorted(pair_draws, draw, "left"), np.searchsorted(pair_draws, draw, "right")
    lane = np.repeat(np.arange(len(draw)), end - begin)
    n_before = np.cumsum(end - begin) - (end - begin)
    return lane, token[np.arange(len(lane)) + (begin - n_before)[lane]]


def smallest_useful_logit(
    best: NDArray[np.float64], max_noise: NDArray[np.float64], temperature: float, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Return [lane]: a logit below this bound, with noise of at most `max_noise`, stays below the best sum
    [lane].

    The bound is lower by more than all rounding errors, of which the largest is to the dtype of the logits.
    """
    precision = np.finfo(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        least = (best - max_noise - ROUNDING - 1e-12 * abs(best)) * temperature
        least -= 2 * float(precision.eps) * abs(least) + float(precision.tiny)
        return np.where(np.isnan(least), -np.inf, least).astype(dtype)


def draw_tokens_on_device(logits: Tensor, draws: Sequence[Draw], draw_index: Ids, temperature: float) -> Ids:
    """Return what `draw_tokens` does, for logits on an accelerator, with one synchronisation.

    The device returns, by lane, the tokens with the most noise and those with the largest logits. No other
    token has more noise than the minimum of the first, nor a larger logit than the minimum of the second:
    where the sum of these minima might reach the best sum, the lane is drawn on the CPU (Fagin et al. 2003,
    JCSS 66: the threshold algorithm).
    """
    (lanes, size), device = logits.shape, logits.device
    n_candidates, batch_size, packed = min(CANDIDATES, size), max(1, DEVICE_BATCH // size), list[Tensor]()
    order = np.argsort(draw_index, kind="stable")
    for begin in range(0, len(draws), batch_size):
        lane_index = order[(draw_index[order] >= begin) & (draw_index[order] < begin + batch_size)]
        raw = stream_on_device(device, draws[begin : begin + batch_size], size)
        pairs = torch.from_numpy(np.stack([lane_index, draw_index[lane_index] - begin])).to(device, non_blocking=True)
        lane, draw = pairs[0], pairs[1]
        noisiest = (raw ^ SIGN).topk(n_candidates).indices  # signed numbers in the order of the unsigned ones
        own_logits = logits[lane]
        token = torch.cat([noisiest[draw], own_logits.topk(n_candidates).indices], -1)
        number, logit = raw.flatten()[draw[:, None] * size + token], own_logits.gather(-1, token).double()
        packed.append(torch.stack([token, number, logit.view(torch.int64)]))
    token, number, bits = torch.cat(packed, 1).cpu().numpy()
    scaled, noise = bits.view(np.float64) / temperature, gumbel(number.view(np.uint64))
    sums = scaled + noise
    best = sums.max(-1)
    ids = np.empty(lanes, np.int64)
    ids[order] = np.where(sums == best[:, None], token, size).min(-1)
    others = scaled[:, n_candidates:].min(-1) + (noise[:, :n_candidates].min(-1) + ROUNDING)
    unsure = order[~(best > others)]
    if n_candidates < size and len(unsure):
        needed, draw_positions = np.unique(draw_index[unsure], return_inverse=True)
        unsure_logits = logits[torch.from_numpy(unsure).to(device)].cpu()
        ids[unsure] = draw_tokens(unsure_logits, [draws[index] for index in needed], draw_positions, temperature)
    return ids
