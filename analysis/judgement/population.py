"""The population of a study: what its problems are a sample of, and so what its verdict speaks about."""

from collections.abc import Mapping, Sequence
from typing import Any


def describe_population(lock: Mapping[str, Any]) -> str:
    """Return a clause that names the population: of each task how many problems were held out, of what.

    The author of a file of problems says what they are a sample of, and a built-in task says it itself. Where nobody
    does, the verdict is about these problems alone. lock: the content of the lock.
    """
    authors = {table["name"]: table.get("population") for table in lock["protocol"]["content"]["tasks"]}
    return "; ".join(
        _describe_task(name, item, authors.get(name) or item.get("population")) for name, item in lock["items"].items()
    )


def describe_sample(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how many problems a contrast has, and in how many clusters they are; of several sizes the one with the
    fewest units, as `verdict_line.smallest_contrast`. rows: the contrasts of a judgement.
    """
    sizes = {(row["n"], row.get("clusters"), row.get("effective_clusters")) for row in rows}
    problems, clusters, effective = min(sizes, key=lambda size: next(filter(None, size[::-1]), 0))
    text = f"n {'=' if len(sizes) == 1 else chr(0x2265)} {problems} problems"
    if clusters is not None:
        text += f" in {clusters} clusters" + (f" that weigh as {effective} of one size" if effective else "")
    return text


def _describe_task(name: str, item: Mapping[str, Any], population: str | None) -> str:
    """Return the clause of one task. population: what its problems are a sample of, if that is declared."""
    problems, clusters = item["confirm"], item.get("clusters", {})
    count = f"{len(problems)} problems"
    if clusters:
        count = f"{count} in {len({clusters.get(problem, problem) for problem in problems})} clusters"
    if population is None:
        return f"these {count} of {name}"
    return f"{name}: {count}, {population}"
