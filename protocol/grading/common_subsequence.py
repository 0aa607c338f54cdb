"""The longest common subsequence of two sequences, and a similarity computed from its length."""

from collections.abc import Hashable, Sequence


def longest_common(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Return the length of the longest common subsequence.

    A row of the table is one integer with one bit for each element of `a` (Crochemore, Iliopoulos, Pinzon and
    Reid 2001, Information Processing Letters 80): exact, and 20,000 characters take len(b) additions of as
    many bits.
    """
    positions: dict[Hashable, int] = {}
    for index, element in enumerate(a):
        positions[element] = positions.get(element, 0) | 1 << index
    ones = (1 << len(a)) - 1
    row = ones
    for element in b:
        matched = row & positions.get(element, 0)
        row = (row + matched | row - matched) & ones
    return len(a) - row.bit_count()


def similarity(a: Sequence[Hashable], b: Sequence[Hashable]) -> float:
    """Return 2 longest_common / (len(a) + len(b)): the F1 of the common subsequence, and 1 - (insertions and
    deletions from a to b) / (len(a) + len(b)). 0 if one is empty.
    """
    return 2 * longest_common(a, b) / (len(a) + len(b)) if a and b else 0.0
