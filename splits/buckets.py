"""The split by hash: the bucket of an id depends on the id alone."""

import hashlib
from collections.abc import Sequence

BUCKETS = 5
DEV = frozenset({0, 1})
CONFIRM = frozenset({2, 3, 4})


def assign_bucket(unique_id: str, buckets: int = BUCKETS) -> int:
    """Return the MD5 of the id's UTF-8 bytes, as a hexadecimal number, modulo `buckets`."""
    return _hash_number(unique_id) % buckets


def subsample(ids: Sequence[str], count: int) -> tuple[str, ...]:
    """Return the `count` ids with the smallest MD5, in the given order. A smaller sample is a subset of a
    larger one, and the sample does not depend on the order of the ids.
    """
    sample = set(sorted(ids, key=_hash_number)[:count])
    return tuple(unique_id for unique_id in ids if unique_id in sample)


def _hash_number(unique_id: str) -> int:
    return int(hashlib.md5(unique_id.encode(), usedforsecurity=False).hexdigest(), 16)
