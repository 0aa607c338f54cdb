"""Derived values as canonical JSON: the same bytes on every machine."""

import json
import math
from collections.abc import Mapping
from typing import Any, SupportsFloat


def format_decimal(value: SupportsFloat) -> str | None:
    """Format a number with six digits, never -0; None for NaN."""
    if math.isnan(float(value)):
        return None
    text = f"{float(value):.6f}"
    return text.removeprefix("-") if float(text) == 0 else text


def dumps(values: Mapping[str, Any]) -> str:
    """Canonical JSON: sorted keys, no spaces."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
