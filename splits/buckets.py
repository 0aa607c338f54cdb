"""The split by hash: an id falls into the same bucket everywhere, whatever the data around it."""

import hashlib
from collections.abc import Sequence

__all__ = ["BUCKETS", "CONFIRM", "DEV", "bucket", "first"]

BUCKETS = 5
DEV = frozenset({0, 1})
CONFIRM = frozenset({2, 3, 4})


def bucket(unique_id: str, buckets: int = BUCKETS) -> int:
    """MD5 of the id's UTF-8 bytes, read as one hexadecimal number, modulo `buckets`."""
    return _number(unique_id) % buckets


def first(ids: Sequence[str], count: int) -> tuple[str, ...]:
    """The `count` ids with the smallest MD5, as a number, in their own order: those of a smaller count are
    among those of a larger one, and which they are does not depend on where they stand.
    """
    chosen = set(sorted(ids, key=_number)[:count])
    return tuple(unique_id for unique_id in ids if unique_id in chosen)


def _number(unique_id: str) -> int:
    return int(hashlib.md5(unique_id.encode(), usedforsecurity=False).hexdigest(), 16)
