"""Simulated studies whose truth is known, with what the answers of shipped studies share, and the p of
every method.

An answer is right where a normal variable is below the bound of its arm's accuracy. The variable is a sum:
a problem is hard for everybody, a cell or an arm has hard problems of its own, and the seeds of an arm
agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from analysis.stats import max_t, power
from analysis.stats.max_t import STUDIES_PER_BLOCK

__all__ = [
    "CHAIN",
    "DRAWS",
    "FLIPS",
    "MAX_T",
    "METHODS",
    "RETRIEVAL",
    "Seen",
    "Shape",
    "blocks",
    "counts_of",
    "seen",
    "studies",
]

DRAWS = 200_000  # of the methods that draw: enough for a family of 48
FLIPS = 999  # of max-t; its level is exact at any number that makes (flips + 1) alpha whole
BLOCK = 1 << 22  # numbers held at a time


class Shape(NamedTuple):
    """A family of contrasts, and what its answers share.

    Every source of variation differs between problems, and between what it names: a share of the variance
    of an answer's latent variable, by ("cell", "arm", "seed") or some of them.
    """

    tasks: int  # with problems of their own
    cells: int  # of a task: models and budgets
    comparators: int  # of one subject
    seeds: int
    shares: Mapping[tuple[str, ...], float]

    @property
    def family(self) -> int:
        return self.tasks * self.cells * self.comparators


# registrations/alpha-chain at budget 64, tetrachoric correlations of single answers, medians: 0.92 between
# seeds of an arm, 0.77 between the arms at other seeds and 0.80 at one, 0.58 between budgets, 0.52 between
# models.
CHAIN = Shape(
    tasks=1,
    cells=4,
    comparators=1,
    seeds=3,
    shares={(): 0.50, ("cell",): 0.27, ("cell", "arm"): 0.15, ("cell", "seed"): 0.03, ("cell", "arm", "seed"): 0.05},
)
# registrations/crystal-retrieval, needle: 0.36 between arms, 0.90 between budgets of an arm.
RETRIEVAL = Shape(tasks=2, cells=2, comparators=12, seeds=1, shares={(): 0.36, ("arm",): 0.54, ("cell", "arm"): 0.10})
METHODS = ("t", "bootstrap", "sign-flip")
MAX_T = "max-t"


class Studies(NamedTuple):
    """Simulated studies: sums over seeds, subject minus comparator, [study, task, problem, cell,
    comparator], and the sums that the subject solved, [study, task, problem, cell].
    """

    gained: NDArray[np.int8]
    solved: NDArray[np.int8]


def studies(
    shape: Shape, problems: int, accuracy: float, effect: float, count: int, rng: np.random.Generator
) -> Studies:
    """`count` studies in which every comparator has `accuracy` and the subject `accuracy + effect`."""
    size = {"cell": shape.cells, "arm": 1 + shape.comparators, "seed": shape.seeds}
    latent: NDArray[np.float32] = np.zeros((), dtype=np.float32)
    for axes, share in shape.shares.items():
        extent = [size[axis] if axis in axes else 1 for axis in size]
        normal = rng.standard_normal((count, shape.tasks, problems, *extent), dtype=np.float32)
        latent = latent + np.float32(share**0.5) * normal
    bounds = special.ndtri([accuracy + effect] + [accuracy] * shape.comparators).astype(np.float32)
    sums = (latent < bounds[:, None]).sum(axis=-1, dtype=np.int8)
    return Studies(sums[..., :1] - sums[..., 1:], sums[..., 0])


def blocks(count: int, shape: Shape, problems: int) -> Iterator[int]:
    """Numbers of studies that fit into memory, all a multiple of TOGETHER but the last."""
    each = problems * shape.family * (1 + 1 / shape.comparators) * shape.seeds
    rows = max(1, int(BLOCK / each) // STUDIES_PER_BLOCK) * STUDIES_PER_BLOCK
    return iter(min(rows, count - start) for start in range(0, count, rows))


class Seen(NamedTuple):
    """[study, contrast]: lanes gained less those lost, of how many, and a two-sided p by each method, alone
    and (max-t) for the family.
    """

    net: NDArray[np.int64]
    lanes: int
    p: dict[str, NDArray[np.float64]]


def counts_of(gained: NDArray[np.int8], seeds: int) -> NDArray[np.int64]:
    """[study * contrast, 2 seeds + 1] of gained[study, task, problem, cell, comparator]."""
    lines = np.moveaxis(gained, 2, -1).reshape(-1, gained.shape[2])
    return power.count_sums(lines.astype(np.int64), seeds)


def seen(
    shape: Shape, problems: int, accuracy: float, count: int, rng: np.random.Generator, effect: float = 0.0
) -> Seen:
    parts: dict[str, list[NDArray[np.float64]]] = {name: [] for name in (*METHODS, MAX_T)}
    nets = []
    for rows in blocks(count, shape, problems):
        gained = studies(shape, problems, accuracy, effect, rows, rng).gained
        counts = counts_of(gained, shape.seeds)
        steps = np.arange(-shape.seeds, shape.seeds + 1)
        nets.append((counts @ steps).reshape(rows, -1))
        for method in METHODS:
            p = power.p_values(method, counts, DRAWS, rng)
            parts[method].append(p.reshape(rows, -1))
        parts[MAX_T].append(family_p(gained, rng))
    whole = {name: np.concatenate(each) for name, each in parts.items()}
    return Seen(np.concatenate(nets), shape.seeds * problems, whole)


def family_p(gained: NDArray[np.int8], rng: np.random.Generator) -> NDArray[np.float64]:
    """[study, contrast], adjusted by max-t; contrasts as `counts_of` has them."""
    studies, tasks, problems = gained.shape[:3]
    groups = [gained[:, task].reshape(studies, problems, -1).astype(np.float64) for task in range(tasks)]
    return max_t.adjusted_p(groups, FLIPS, rng)
