"""How much two sequences have in common: the length of their longest common subsequence."""

from collections.abc import Hashable, Sequence

__all__ = ["longest", "similarity"]


def longest(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Length of the longest common subsequence.

    A row of the table is one whole number, a bit an element of `a` (Crochemore, Iliopoulos, Pinzon and Reid
    2001, Information Processing Letters 80): exact, and 20,000 characters take len(b) additions of as many
    bits.
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
    """2 longest / (len(a) + len(b)): F1 of the common subsequence, and 1 - (insertions and deletions that
    make b of a) / (len(a) + len(b)). 0 where one is empty.
    """
    return 2 * longest(a, b) / (len(a) + len(b)) if a and b else 0.0
