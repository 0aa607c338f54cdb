"""The longest common subsequence of two sequences, and a similarity computed from its length."""

from collections.abc import Hashable, Sequence

__all__ = ["longest", "similarity"]


def longest(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Return the length of the longest common subsequence.

    A row of the table is one integer with one bit for each element of `a` (Crochemore, Iliopoulos, Pinzon and
    Reid 2001, Information Processing Letters 80): exact, and 20,000 characters take len(b) additions of as
    many bits.
    """
    places: dict[Hashable, int] = {}
    for place, each in enumerate(a):
        places[each] = places.get(each, 0) | 1 << place
    ones = (1 << len(a)) - 1
    row = ones
    for each in b:
        matched = row & places.get(each, 0)
        row = (row + matched | row - matched) & ones
    return len(a) - row.bit_count()


def similarity(a: Sequence[Hashable], b: Sequence[Hashable]) -> float:
    """Return 2 longest_common / (len(a) + len(b)): the F1 of the common subsequence, and 1 - (insertions and
    deletions from a to b) / (len(a) + len(b)). 0 if one is empty.
    """
    return 2 * longest(a, b) / (len(a) + len(b)) if a and b else 0.0
