"""The formats q8_0, q5_0 and q4_0 of ggml: blocks of 32 numbers with one scale in float16.

Bit for bit as `gguf.quants` (and `quantize_row_q8_0_ref` and kin of ggml-quants.c, which it follows): the same bytes in
the same order. A block is its scale, for q5_0 the fifth bits of all numbers, and the codes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 32
"""Numbers of a block."""
SCALE_BYTES = 2
EIGHT = torch.arange(8, dtype=torch.uint8, device="cpu")
FIFTHS = (torch.arange(256, dtype=torch.uint8, device="cpu")[:, None] >> EIGHT & 1) << 4
"For each byte, its eight bits, each as the fifth bit of a code."


@dataclass(frozen=True)
class Eights:
    """q8_0: x is about d q, d the largest |x| of the block over 127, q a whole number from -127 to 127."""

    def row_bytes(self, width: int) -> int:
        return count_blocks(width, "q8_0") * (SCALE_BYTES + BLOCK)

    def encode(self, numbers: Tensor) -> Tensor:
        blocks = cut(numbers.float(), BLOCK)
        scales = blocks.abs().amax(-1, keepdim=True) / 127
        scaled = blocks * inverse(scales)
        size = scaled.abs()
        whole = size.floor()
        codes = scaled.sign() * (whole + (2 * (size - whole)).floor())  # halves away from zero
        return join(scales, codes.to(torch.int8).view(torch.uint8))

    def decode(self, rows: Tensor) -> Tensor:
        scales, codes = split(rows, SCALE_BYTES + BLOCK)
        return scale_codes(codes.view(torch.int8), scales)


@dataclass(frozen=True)
class Fours:
    """q4_0: x is about d (q - 8), d the number of largest size over -8, q from 0 to 15, two of them in a byte: number
    i of a block below number i + 16.
    """

    def row_bytes(self, width: int) -> int:
        return count_blocks(width, "q4_0") * (SCALE_BYTES + BLOCK // 2)

    def encode(self, numbers: Tensor) -> Tensor:
        scales, codes = signed_codes(numbers, 8)
        return join(scales, pack_nibbles(codes))

    def decode(self, rows: Tensor) -> Tensor:
        scales, nibbles = split(rows, SCALE_BYTES + BLOCK // 2)
        return scale_codes(unpack_nibbles(nibbles).view(torch.int8) - 8, scales)


@dataclass(frozen=True)
class Fives:
    """q5_0: as q4_0 with q - 16 and q from 0 to 31; the fifth bits of a block are one little-endian word of 32 bits."""

    def row_bytes(self, width: int) -> int:
        return count_blocks(width, "q5_0") * (SCALE_BYTES + BLOCK // 8 + BLOCK // 2)

    def encode(self, numbers: Tensor) -> Tensor:
        scales, codes = signed_codes(numbers, 16)
        bits = cut(codes >> 4, 8) << EIGHT.to(codes.device)
        return join(scales, bits.sum(-1).to(torch.uint8), pack_nibbles(codes & 15))

    def decode(self, rows: Tensor) -> Tensor:
        scales, coded = split(rows, SCALE_BYTES + BLOCK // 8 + BLOCK // 2)
        bits, nibbles = coded[..., : BLOCK // 8], coded[..., BLOCK // 8 :]
        fifths = FIFTHS.to(rows.device).index_select(0, bits.flatten().int()).view(*bits.shape[:-1], BLOCK)
        return scale_codes((unpack_nibbles(nibbles) | fifths).view(torch.int8) - 16, scales)


def count_blocks(width: int, name: str) -> int:
    if width % BLOCK:
        raise ValueError(f"{name} packs blocks of {BLOCK} numbers, but a head has {width}; choose fp8")
    return width // BLOCK


def cut(rows: Tensor, size: int) -> Tensor:
    """Return a view of rows [..., n] as [..., n / size, size]."""
    return rows.view(*rows.shape[:-1], rows.shape[-1] // size, size)


def inverse(scales: Tensor) -> Tensor:
    return torch.where(scales == 0, 0, 1 / scales)


def signed_codes(numbers: Tensor, zero: int) -> tuple[Tensor, Tensor]:
    """Return each block's scale, its first number of largest size over -zero, and codes, uint8 from 0 to 2 zero - 1."""
    blocks = cut(numbers.float(), BLOCK)
    scales = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True)) / -zero
    codes = (blocks * inverse(scales) + (zero + 0.5)).trunc().clamp(0, 2 * zero - 1)
    return scales, codes.to(torch.uint8)


def pack_nibbles(codes: Tensor) -> Tensor:
    low, high = codes.chunk(2, -1)
    return low | high << 4


def unpack_nibbles(nibbles: Tensor) -> Tensor:
    return torch.cat([nibbles & 15, nibbles >> 4], -1)


def join(scales: Tensor, *parts: Tensor) -> Tensor:
    """Return the rows of bytes of blocks [..., block, 1] and [..., block, bytes]."""
    return torch.cat([scales.half().view(torch.uint8), *parts], -1).flatten(-2)


def split(rows: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the scales [..., block, 1] in float16 and the bytes of the codes [..., block, size - 2]."""
    blocks = cut(rows, size)
    return blocks[..., :SCALE_BYTES].view(torch.float16), blocks[..., SCALE_BYTES:]


def scale_codes(codes: Tensor, scales: Tensor) -> Tensor:
    """Return the numbers of blocks [..., block, 32], int8, as rows in float32."""
    return codes.float().mul_(scales.float()).flatten(-2)
