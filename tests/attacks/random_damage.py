"""Absurd values in the places of honest ones, drawn with a seed."""

import copy
import random
from typing import Any

TEXTS = ["", "\x1b[2J", "\u202e\u2028", "../../..", "nan", "-1", "full", "0" * 300, "x" * 5000, "\x00", "{}", "é"]
VALUES = [None, True, False, -1, 0, 1, 2**53 - 1, [], {}, [[]], [None], {"": ""}, {"verdict": None}, *TEXTS]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value within `value`, itself left out."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way for key, one in inside for way in [(*path, key), *places(one, (*path, key))]]


def absurd(draw: random.Random, value: Any, times: int) -> Any:
    """A copy with so many of its parts replaced, left out, repeated, renamed or swapped."""
    made = copy.deepcopy(value)
    for _ in range(times):
        ways = places(made)
        if not ways:
            return made
        *way, last = draw.choice(ways)
        parent = made
        for key in way:
            parent = parent[key]
        match draw.randrange(6):
            case 0:
                del parent[last]
            case 1 if isinstance(parent, list):
                parent.append(copy.deepcopy(parent[last]))
            case 1 | 2 if isinstance(parent, dict):
                parent[draw.choice(["x", "\x1b[31m", *parent])] = parent.pop(last)
            case 3:
                *other, end = draw.choice(ways)
                try:
                    source = made
                    for key in (*other, end):
                        source = source[key]
                    parent[last] = copy.deepcopy(source)
                except (LookupError, TypeError):
                    parent[last] = None
            case _:
                parent[last] = copy.deepcopy(draw.choice(VALUES))
    return made


def garbage(draw: random.Random, data: bytes) -> bytes:
    """The bytes of a file cut, repeated, overwritten or replaced."""
    at = draw.randrange(len(data) + 1)
    match draw.randrange(6):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + draw.randbytes(draw.randrange(1, 100)) + data[at:]
        case 2:
            return b"[" * 100_000
        case 3:
            return b'{"a":' + b"9" * 10_000 + b"}\n"
        case 4:
            return data.replace(b"\n", b"\r\n")
        case _:
            return draw.randbytes(draw.randrange(300))
