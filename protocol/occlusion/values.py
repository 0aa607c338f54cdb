"""The numbers of a trace as a side file holds them."""

import zlib
from collections.abc import Iterable

import numpy as np
from torch import Tensor

__all__ = ["BITS", "packed"]

BITS = 12
"""Significant bits that are kept of a number, so that rows pack: one part in 4,096 at least."""


def packed(rows: Iterable[Tensor]) -> bytes:
    """rows [n] each -> zlib of little-endian float32 [row, n], every number rounded to BITS significant bits,
    halves to even. NaN where there is none.
    """
    numbers = np.stack([row.double().cpu().numpy() for row in rows])
    fraction, exponent = np.frexp(numbers)
    rounded = np.ldexp(np.rint(fraction * 2.0**BITS) / 2.0**BITS, exponent)
    return zlib.compress(rounded.astype("<f4").tobytes(), 9)
