"""Section 3.2 of CrystalCache read plainly into NumPy: the chunk's attention is materialised and sorted.

The author's code is not public; section 7.3 of the paper names what it does: a chunk's attention as one array
on the host, and `np.argsort` over every row of it.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from policies.crystal.coattention import CoAttention

Sort = Literal["quicksort", "stable"]


class Chunk(NamedTuple):
    mass: NDArray[Any]
    """[row]"""
    edges: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]
    """(i, j, weight), each [edge]: those within the chunk, then those to earlier chunks."""


def of_chunk(attention: NDArray[Any], settings: CoAttention, sort: Sort) -> Chunk:
    """Equations 11 to 15 for attention [head, row, key] of one chunk, whose rows are the last keys.

    sort: only "stable" keeps the lower position of a tie.
    """
    start = attention.shape[2] - attention.shape[1]
    own = attention[:, :, start:]
    mass = np.sort(own.sum(1), 0)[-3:].sum(0)
    pattern = own.mean(0)
    unit = pattern / (np.linalg.norm(pattern, axis=1, keepdims=True) + 1e-8)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -np.inf)
    i, j, alike = highest(cosine, settings.intra_k, settings.intra_threshold, sort)
    edges = [(start + i, start + j, alike)]
    if start:
        cross = attention[:, :, :start].mean(0)
        query, key, weight = highest(cross, settings.cross_k, settings.cross_threshold, sort)
        edges.append((key, start + query, weight))
    return Chunk(mass, edges)


def highest(
    values: NDArray[Any], count: int, threshold: float, sort: Sort
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    columns = np.argsort(-values, axis=1, kind=sort)[:, :count]
    found = np.take_along_axis(values, columns, 1)
    row, place = np.nonzero(found > threshold)
    return row, columns[row, place], found[row, place]
