"""The side file of a trace: its numbers, rounded and compressed."""

import zlib
from collections.abc import Iterable

import numpy as np
from torch import Tensor

__all__ = ["BITS", "pack_rows"]

BITS = 12
"""Significant bits of a stored number, so that rows compress well: a precision of at least one part in 4,096.
"""


def pack_rows(rows: Iterable[Tensor]) -> bytes:
    """Compress rows [n] each to zlib of little-endian float32 [row, n], every number rounded to BITS
    significant bits, halves to even. Missing values are NaN.
    """
    numbers = np.stack([row.double().cpu().numpy() for row in rows])
    fraction, exponent = np.frexp(numbers)
    rounded = np.ldexp(np.rint(fraction * 2.0**BITS) / 2.0**BITS, exponent)
    return zlib.compress(rounded.astype("<f4").tobytes(), 9)
