"""Measured agreement of a policy's retained tokens with the tokens that answers needed, from agreements.toml.

The file is generated (docs/generate.py), because this package does not read studies. docs/anatomy.md explains
how to read the numbers.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["FILE", "told"]

FILE = Path(__file__).with_name("agreements.toml")


def told(policy: str, file: Path | None = None) -> list[str]:
    """Format the agreement of a policy, per study, model, task and budget; empty if nothing was measured."""
    file = file or FILE
    if not file.exists():
        return []
    measured = tomllib.loads(file.read_text("utf-8")).get("agreement", [])
    rows = [one for one in measured if one["policy"] == policy]
    if not rows:
        return []
    return [
        "Agreement with what answers needed, where it was measured (docs/anatomy.md): of one eviction, at",
        "the cut, on traces that the full cache answers. AUC .5: needed tokens are kept as often as others;",
        "95 % intervals over traces, each by itself.",
        *(f"    {line}" for line in _lines(rows)),
    ]


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    for one in rows:
        limits = f" [{one['low']}, {one['high']}]" if "low" in one else ""
        study = f"{one['study']} ({one['changed']})" if one["changed"] else one["study"]
        yield f"{study}, {one['model']}, {one['task']}, {one['reading']}, budget {one['budget']}:"
        yield (
            f"    keeps {one['kept']} of the needed tokens, AUC {one['auc']}{limits}; "
            f"{one['accuracy']} of {one['traces']} answers correct"
        )
