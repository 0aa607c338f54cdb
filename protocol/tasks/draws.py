"""Draws that depend on a seed, a problem id and the purpose of the draw, and on nothing else."""

import hashlib
from collections.abc import Sequence


def pick(below: int, seed: int, problem_id: str, purpose: str) -> int:
    """Draw an integer from 0 to `below` - 1, uniform up to 2**-200."""
    return int(hashlib.sha256(f"{seed}|{problem_id}|{purpose}".encode()).hexdigest(), 16) % below


def shuffled(items: Sequence[str], seed: int, problem_id: str, purpose: str) -> list[str]:
    """Return the items in the order of the digests of their positions: all orders are equally likely."""
    order = sorted(range(len(items)), key=lambda position: pick(2**256, seed, problem_id, f"{purpose}|{position}"))
    return [items[position] for position in order]


def value(seed: int, problem_id: str) -> str:
    """Draw four digits, 1000 to 9999."""
    return str(1000 + pick(9000, seed, problem_id, "value"))
