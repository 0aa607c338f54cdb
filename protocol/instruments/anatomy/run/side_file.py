"""The side file of a trace: its numbers, rounded and compressed."""

import zlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

BITS = 12
"""Significant bits of a stored number, so that rows compress well: a precision of at least one part in 4,096.
"""


def pack_rows(rows: Iterable[Tensor]) -> bytes:
    """Compress rows [n], rounded by `round_values`, NaN where missing: zlib of little-endian float32 [row, n]."""
    return zlib.compress(round_values(np.stack([row.double().cpu().numpy() for row in rows])).tobytes(), 9)


def round_values(numbers: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round every number to BITS significant bits, halves to even."""
    fraction, exponent = np.frexp(numbers)
    rounded = np.ldexp(np.rint(fraction * 2.0**BITS) / 2.0**BITS, exponent)
    return rounded.astype("<f4")
