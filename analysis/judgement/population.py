"""The population of a study: what its problems are a sample of, and so what its verdict speaks about."""

from collections.abc import Mapping
from typing import Any

__all__ = ["describe_population"]


def describe_population(lock: Mapping[str, Any]) -> str:
    """Return a clause that names the population. lock: the content of the lock."""
    counts = {task: len(items["confirm"]) for task, items in lock["items"].items()}
    return "; ".join(f"these {count} problems of {task}" for task, count in counts.items())
