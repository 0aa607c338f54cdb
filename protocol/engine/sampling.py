"""The next token: the likeliest one, or a draw whose noise depends on (problem, seed, step) alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad


def digest(*parts: object) -> bytes:
    """SHA-256 over the parts."""
    return hashlib.sha256(repr(parts).encode()).digest()


def key(*parts: object, bits: int) -> int:
    """The first `bits` bits of the digest of the parts."""
    return int.from_bytes(digest(*parts)[: bits // 8])


class Draw(NamedTuple):
    """What the noise of one token depends on; nothing else does."""

    problem: str
    seed: int
    step: int


def stream(draws: Sequence[Draw], size: int) -> NDArray[np.uint64]:
    """[draw, size], the raw stream of a Philox (Salmon et al. 2011) for each draw, with a key of its own.

    numpy keeps it stable across versions. One generator is set to each key in turn: a new one costs four
    times that.
    """
    philox = np.random.Philox(key=0)
    begun: Any = philox.state  # no number drawn, none buffered
    raw = np.empty((len(draws), size), np.uint64)
    for own, draw in zip(raw, draws, strict=True):
        begun["state"]["key"][:] = np.frombuffer(digest("gumbel", *draw)[15::-1], "<u8")
        philox.state = begun
        own[:] = philox.random_raw(size)
    return raw


def gumbel(raw: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Standard Gumbel noise, one for each number of a stream; it rises with the number."""
    uniform = ((raw >> np.uint64(12)) + 0.5) * 2.0**-52  # never 0 or 1, whose noise is infinite
    noise: NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise


ROUNDING = 1e-9
"""Above what two logarithms may be wrong by."""


UNUSABLE = "logits: not finite"
"""Why a lane fails whose logits are not `usable`."""


def usable(logits: Tensor) -> Tensor:
    """[lane] bool: whether some token of logits [lane, vocabulary] is the likeliest. NaN, +inf and nothing
    but -inf name none, and a largest value is still found among them.
    """
    return logits.amax(-1).isfinite()


def nucleus(logits: Tensor, temperature: float, top_p: float) -> Tensor:
    """[lane, vocabulary] bool, on the CPU: the tokens of which one is drawn (Holtzman et al.,
    arXiv:1904.09751).

    The smallest set whose softmax(logits / temperature) sums to at least top_p: the likeliest tokens, with
    the one that crosses it; of equally likely ones the lower ids.
    """
    shares = (logits.double() / temperature).softmax(-1)
    sorted_shares, order = shares.sort(dim=-1, descending=True, stable=True)
    # Sums on the CPU: on CUDA they have no deterministic order.
    before = pad(sorted_shares.cpu().cumsum(-1)[..., :-1], (1, 0))
    return torch.zeros_like(before, dtype=torch.bool).scatter_(-1, order.cpu(), before < top_p)


def choose(logits: Tensor, draws: Sequence[Draw], temperature: float, top_p: float = 1.0) -> list[int]:
    """One token a lane from `usable` logits [lane, vocabulary]; a tie goes to the lowest id.

    Temperature 0 takes the likeliest token. Above 0, the largest of logits / temperature + Gumbel noise is a
    draw from the softmax (Maddison et al., arXiv:1411.0030), and lanes of one problem and seed share the
    noise of a step: the same for every arm and every batch. Below 1, top_p leaves the tokens of the `nucleus`
    alone, with the same noise.
    """
    if temperature == 0:
        likeliest: list[int] = logits.argmax(-1).tolist()
        return likeliest
    scaled = logits.cpu().double() / temperature
    if top_p < 1:
        scaled.masked_fill_(~nucleus(logits, temperature, top_p), -torch.inf)
    return drawn(scaled.numpy(), draws)


def drawn(scaled: NDArray[np.float64], draws: Sequence[Draw]) -> list[int]:
    """By lane, the lowest id with the largest of scaled [lane, vocabulary] + noise.

    Noise is formed where it can matter: a token that the largest noise of its draw would leave below the
    likeliest token with its own is not the one. Sums round monotonically, so that none is lost.
    """
    place = {draw: index for index, draw in enumerate(dict.fromkeys(draws))}
    raw = stream(list(place), scaled.shape[-1])
    own = np.array([place[draw] for draw in draws])
    lane, likeliest = np.arange(len(scaled)), scaled.argmax(-1)
    reached = scaled[lane, likeliest] + gumbel(raw[own, likeliest])
    most = gumbel(raw.max(-1))[own] + ROUNDING
    row, token = np.nonzero(scaled + most[:, None] >= reached[:, None])
    sums = np.full_like(scaled, -np.inf)
    sums[row, token] = scaled[row, token] + gumbel(raw[own[row], token])
    ids: list[int] = sums.argmax(-1).tolist()
    return ids
