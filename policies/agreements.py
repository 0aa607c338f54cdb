"""Measured agreement of a policy's retained tokens with the tokens that answers needed, from agreements.toml.

The file is generated (docs/generate.py), because this package does not read studies. docs/anatomy.md explains
how to read the numbers.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("agreements.toml")


def format_agreement(policy: str, file: Path | None = None) -> list[str]:
    """Format the agreement of a policy, per study, model, task and budget; empty if nothing was measured."""
    file = file or FILE
    if not file.exists():
        return []
    entries = tomllib.loads(file.read_text("utf-8")).get("agreement", [])
    rows = [row for row in entries if row["policy"] == policy]
    if not rows:
        return []
    return [
        "Agreement with what answers needed, where it was measured (docs/anatomy.md): of one eviction, at",
        "the cut, on traces that the full cache answers. AUC .5: needed tokens are kept as often as others;",
        "95 % intervals over traces, each by itself.",
        *(f"    {line}" for line in _format_rows(rows)),
    ]


def _format_rows(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        interval = f" [{row['low']}, {row['high']}]" if "low" in row else ""
        study = f"{row['study']} ({row['changed']})" if row["changed"] else row["study"]
        yield f"{study}, {row['model']}, {row['task']}, {row['reading']}, budget {row['budget']}:"
        yield (
            f"    keeps {row['kept']} of the needed tokens, AUC {row['auc']}{interval}; "
            f"{row['accuracy']} of {row['traces']} answers correct"
        )
