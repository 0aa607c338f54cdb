"""How what is derived from a study is printed: canonical JSON, the same bytes wherever it is computed."""

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsFloat

__all__ = ["command", "decimal", "dumps"]


def decimal(value: SupportsFloat) -> str | None:
    """Six digits, never -0; None for a mean of nothing."""
    if math.isnan(float(value)):
        return None
    text = f"{float(value):.6f}"
    return text.removeprefix("-") if float(text) == 0 else text


def dumps(values: Mapping[str, Any]) -> str:
    """Canonical JSON: sorted keys, no spaces."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def command(
    module: str,
    doc: str | None,
    folder: str,
    derive: Callable[[Path], Mapping[str, Any]],
    argv: Sequence[str] | None,
) -> int:
    """`python -m analysis.<module> FOLDER`: prints what `derive` says of it. folder: what it must be.

    Exit status: 0 printed; 2 for a ValueError, in one line.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m analysis.{module}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help=folder)
    args = parser.parse_args(argv)
    try:
        derived = derive(args.folder)
    except ValueError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    sys.stdout.buffer.write(dumps(derived).encode() + b"\n")
    return 0
