"""A registered sequential design: which look opens each held-out problem, from the content of a lock alone.

`[decision] looks = [200, 400, 800]` opens the first 200 held-out problems of every task in the order of their hashes,
then the next 200 unless the judge says stop, then the rest. The hash is of the digest of protocol.toml, the task and
the id: no look has the problems that an author would have chosen for it, and a reproduction has the same ones.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

GO_ON, STOP = "go on", "stop"  # what the judge says after a look


def read_looks(content: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the numbers of problems of a task at which there is a look; none without looks. content: of the lock."""
    return tuple(content["protocol"]["content"]["decision"].get("looks") or ())


def number_problems(content: Mapping[str, Any], task: str) -> dict[str, int]:
    """Return the look, from 1, that opens each held-out problem of a task; 1 for all without looks."""
    held_out, looks = content["items"][task]["confirm"], read_looks(content)
    if not looks:
        return dict.fromkeys(held_out, 1)
    salt = f"{content['protocol']['sha256']} {task} "
    order = sorted(held_out, key=lambda problem: hashlib.sha256((salt + problem).encode()).digest())
    return {problem: 1 + bisect_right(looks, place) for place, problem in enumerate(order)}


def open_items(content: Mapping[str, Any], number: int) -> dict[str, dict[str, Any]]:
    """Return the field `items` of a lock with the held-out problems of its first `number` looks alone."""
    opened = {}
    for task, item in content["items"].items():
        numbers = number_problems(content, task)
        opened[task] = {**item, "confirm": [problem for problem in item["confirm"] if numbers[problem] <= number]}
    return opened


def due_items(content: Mapping[str, Any], words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the field `items` with the held-out problems that may be opened, and that a seal needs records of.

    words: what the judge said after each look so far.
    """
    return open_items(content, len(words) + (list(words[-1:]) != [STOP]))
