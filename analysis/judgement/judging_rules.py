"""Which rules of judging hold for a study.

The studies that ship with this project keep the words that they were locked under, and so does a run of the
same protocol that cites one of them. Every other study is judged by today's rules.
"""

from collections.abc import Mapping
from typing import Any


def is_judged_as_shipped(lock: Mapping[str, Any]) -> bool:
    """Return whether the rules of judging are those of lock version 1. lock: its content, as written."""
    return read_judging(lock) == 1


def read_judging(lock: Mapping[str, Any]) -> int:
    """Return the number of the rules of judging. lock: its content, as written; one of version 1 has no number."""
    return int(lock.get("judging", 1))
