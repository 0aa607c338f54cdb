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
    text: Callable[[Mapping[str, Any]], list[str]] | None = None,
) -> int:
    """`python -m analysis.<module> FOLDER`: prints what `derive` says of it. folder: what it must be.

    text: the lines for people of what `derive` gave; the command then takes --json. Without it the canonical
    JSON is all there is. Exit status: 0 printed; 2 for a ValueError or what the system refuses, in one line.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m analysis.{module}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help=folder)
    if text is not None:
        parser.add_argument("--json", action="store_true", help="print canonical JSON")
    args = parser.parse_args(argv)
    try:
        derived = derive(args.folder)
    except (ValueError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    printed = dumps(derived) if text is None or args.json else "\n".join(text(derived))
    sys.stdout.buffer.write(printed.encode() + b"\n")
    return 0
