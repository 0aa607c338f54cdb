"""Tensors that any machine rebuilds bit for bit, for what official code kept of them: see `official`.

Numbers are those of Philox, the counter-based generator of numpy, as multiples of 2^-23 between -1 and 1:
sums and products of a few of them are the same wherever float32 is.
"""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

FOLDER = Path(__file__).parent / "official"


class Case(NamedTuple):
    seed: int
    q_heads: int
    kv_heads: int
    n: int
    dim: int
    budget: int
    window: int = 8
    kernel: int = 7
    weight: float = 0.1
    sinks: int = 4
    lag: int = 16
    masked: int = 0
    layers: int = 1
    width: int = 0


class Tensors(NamedTuple):
    queries: Tensor  # [q_head, window, d]
    keys: Tensor  # [kv_head, n, d]
    values: Tensor  # [kv_head, n, d]


class Numbers:
    """The stream of one seed, cut into arrays."""

    def __init__(self, seed: int) -> None:
        self.stream = np.random.Philox(key=seed)

    def raw(self, *shape: int) -> np.ndarray:
        return self.stream.random_raw(int(np.prod(shape))).reshape(shape)

    def uniform(self, *shape: int) -> Tensor:
        whole = (self.raw(*shape) >> np.uint64(40)).astype(np.float32)
        return torch.from_numpy(whole * np.float32(2**-23) - np.float32(1))

    def below(self, count: int, *shape: int) -> Tensor:
        return torch.from_numpy((self.raw(*shape) % np.uint64(count)).astype(np.int64))


def tensors(case: Case) -> Tensors:
    """Keys lie around a few centres, so that some resemble each other; heads differ in sharpness."""
    numbers = Numbers(case.seed)
    centres = 2 * numbers.uniform(case.kv_heads, 6, case.dim)
    chosen = numbers.below(6, case.kv_heads, case.n)
    keys = centres.gather(1, chosen[..., None].expand(-1, -1, case.dim))
    keys = keys + numbers.uniform(case.kv_heads, case.n, case.dim)
    sharpness = torch.tensor([float(1 + head % 3) for head in range(case.q_heads)])
    queries = sharpness[:, None, None] * numbers.uniform(case.q_heads, case.window, case.dim)
    return Tensors(queries, keys, numbers.uniform(case.kv_heads, case.n, case.dim))


def layers_of(case: Case) -> list[Case]:
    """Of a case of several layers, the case of each: other tensors of the same shapes."""
    return [case._replace(seed=case.seed + 1000 * layer, layers=1) for layer in range(case.layers)]


def projection(case: Case) -> Tensor:
    """[q_head, d, width], the output projection of a layer; of no width where it is not read."""
    return Numbers(case.seed + 1_000_000).uniform(case.q_heads, case.dim, case.width)


def drawn(case: Case) -> tuple[Tensor, ...]:
    """All tensors of a case, and of a case of several layers those of each."""
    return tuple(part for one in layers_of(case) for part in (*tensors(one), projection(one)))


class Scored(NamedTuple):
    """What TriAttention scores, of LAYERS layers; later on every head holds slots of its own."""

    keys: Tensor  # [layer, kv_head, n, d]
    positions: Tensor  # [layer, kv_head, n]
    seen: int  # tokens
    query_mean: Tensor  # [layer, q_head, d/2] complex
    query_magnitude: Tensor  # [layer, q_head, d/2]
    frequencies: Tensor  # [d/2]


LAYERS = 3


def scored(case: Case) -> Scored:
    """Frequencies are powers of two; of an odd seed, positions have gaps."""
    numbers, pairs = Numbers(case.seed), case.dim // 2
    heads = (LAYERS, case.kv_heads, case.n)
    keys = numbers.uniform(*heads, case.dim)
    gaps = 1 + (case.seed % 2) * numbers.below(3, *heads)
    real, imaginary = numbers.uniform(2, LAYERS, case.q_heads, pairs)
    spread = 1 + numbers.uniform(LAYERS, case.q_heads, pairs)
    mean = torch.complex(real, imaginary)
    frequencies = 2.0 ** -torch.arange(pairs, dtype=torch.float64)
    # Not of absolute values, which another machine may round otherwise.
    return Scored(keys, gaps.cumsum(-1) - gaps[..., :1], 3 * case.n, mean, 2 + spread, frequencies)


def digest(case: Case, given: Callable[[Case], tuple[Any, ...]] = drawn) -> str:
    """Of the bits of its tensors."""
    parts = (part for part in given(case) if isinstance(part, Tensor))
    return sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()[:16]


class Recorded(NamedTuple):
    case: Case
    tensors: str
    """`digest` where official code was run."""
    kept: list[list[int]]
    """Ascending slots, one list a KV head, layer by layer, or one for all heads of the layer."""


def recorded(method: str) -> list[Recorded]:
    cases = json.loads((FOLDER / f"{method}.json").read_text())["cases"]
    return [Recorded(Case(**one["case"]), one["tensors"], one["kept"]) for one in cases]
