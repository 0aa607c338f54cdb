"""Of a grid of cases, or of the shipped studies, `make test` runs a sample, `make soak` the others."""

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest


def sampled(*axes: Sequence[object], of: int) -> list[object]:
    """Every case of the grid; `make test` runs one in `of`, where the places of its values on their axes add
    up to a multiple of it. So of two axes every value of one that is no shorter than `of` is met.
    """
    cases = []
    for places in product(*(range(len(axis)) for axis in axes)):
        values = [axis[place] for axis, place in zip(axes, places, strict=True)]
        marks = () if sum(places) % of == 0 else pytest.mark.soak
        cases.append(pytest.param(*values, marks=marks))
    return cases


BY_JUDGING = ("quickstart", "crystal-retrieval-3", "control-effect")
"""A small study that ships of each version of the rules of judging."""


def decoded_here(folder: Path) -> bool:
    """Whether this engine decoded a study; of one that another harness ran, records have no cache."""
    return "runner" not in json.loads((folder / "lock.json").read_text())["protocol"]["content"]


def shipped(folders: Sequence[Path]) -> list[object]:
    """Every folder; `make test` runs those of `BY_JUDGING`."""
    return [
        pytest.param(folder, marks=() if folder.name in BY_JUDGING else pytest.mark.soak, id=folder.name)
        for folder in folders
    ]
