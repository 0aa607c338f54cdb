"""The next token: the likeliest one, or a draw whose noise depends on (problem, seed, step) alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad


def key(*parts: object, bits: int) -> int:
    """The first `bits` bits of SHA-256 over the parts."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[: bits // 8])


def gumbel(problem: str, seed: int, step: int, size: int) -> NDArray[np.float64]:
    """[size] standard Gumbel noise of one decode step, the same for every arm and every batch.

    Made from the raw stream of Philox (Salmon et al. 2011), which numpy keeps stable across versions.
    """
    raw = np.random.Philox(key=key("gumbel", problem, seed, step, bits=128)).random_raw(size)
    uniform = ((raw >> np.uint64(12)) + 0.5) * 2.0**-52  # never 0 or 1, whose noise is infinite
    noise: NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise


UNUSABLE = "logits: not finite"
"""Why a lane fails whose logits are not `usable`."""


def usable(logits: Tensor) -> Tensor:
    """[lane] bool: whether some token of logits [lane, vocabulary] is the likeliest. NaN, +inf and nothing
    but -inf name none, and a largest value is still found among them.
    """
    return logits.amax(-1).isfinite()


class Draw(NamedTuple):
    """What the noise of one token depends on; nothing else does."""

    problem: str
    seed: int
    step: int


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
    noise of a step. Below 1, top_p leaves the tokens of the `nucleus` alone, with the same noise.
    """
    if temperature == 0:
        return [int(token) for token in logits.argmax(-1).tolist()]
    noise = {draw: gumbel(*draw, logits.shape[-1]) for draw in set(draws)}
    scores = logits.double().cpu() / temperature + torch.from_numpy(np.stack([noise[draw] for draw in draws]))
    if top_p < 1:
        scores.masked_fill_(~nucleus(logits, temperature, top_p), -torch.inf)
    return [int(token) for token in scores.argmax(-1).tolist()]
