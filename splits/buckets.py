"""The split by hash: an id falls into the same bucket everywhere, whatever the data around it."""

import hashlib

__all__ = ["BUCKETS", "CONFIRM", "DEV", "bucket"]

BUCKETS = 5
DEV = frozenset({0, 1})
CONFIRM = frozenset({2, 3, 4})


def bucket(unique_id: str, buckets: int = BUCKETS) -> int:
    """MD5 of the id's UTF-8 bytes, read as one hexadecimal number, modulo `buckets`."""
    return int(hashlib.md5(unique_id.encode(), usedforsecurity=False).hexdigest(), 16) % buckets
