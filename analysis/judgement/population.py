"""The population of a study: what its problems are a sample of, and so what its verdict speaks about."""

from collections.abc import Mapping
from typing import Any

__all__ = ["describe_population"]


def describe_population(lock: Mapping[str, Any]) -> str:
    """Return a clause that names the population: of each task how many problems were held out, of what.

    The author of a file of problems says what they are a sample of, and a built-in task says it itself. Where nobody
    does, the verdict is about these problems alone. lock: the content of the lock.
    """
    authors = {table["name"]: table.get("population") for table in lock["protocol"]["content"]["tasks"]}
    return "; ".join(
        _describe_task(name, item, authors.get(name) or item.get("population")) for name, item in lock["items"].items()
    )


def _describe_task(name: str, item: Mapping[str, Any], population: str | None) -> str:
    """Return the clause of one task. population: what its problems are a sample of, if that is declared."""
    problems, clusters = item["confirm"], item.get("clusters", {})
    count = f"{len(problems)} problems"
    if clusters:
        count = f"{count} in {len({clusters.get(problem, problem) for problem in problems})} clusters"
    if population is None:
        return f"these {count} of {name}"
    return f"{name}: {count}, {population}"
