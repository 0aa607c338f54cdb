"""Freeze the split of a data file: one JSON object a line, each with a `unique_id`.

    python -m splits.make math500 math500.jsonl    writes splits/math500.json, once

Only the ids are kept, never the problems. Exit status: 0 written, 2 refused.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from splits.manifest import HERE, SplitError, canonical, content

__all__ = ["read_ids", "write"]


def write(name: str, ids: Iterable[str], source: str, folder: Path = HERE) -> Path:
    """Create splits/<name>.json; raises SplitError when it exists, as a frozen split is never replaced."""
    path = folder / f"{name}.json"
    data = canonical(content(name, ids, source)) + b"\n"
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError:
        raise SplitError(f"{path}: exists and is frozen; choose another name") from None
    return path


def read_ids(path: Path) -> list[str]:
    """The unique_id of every line. Raises SplitError naming the line without one."""
    ids = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        try:
            ids.append(json.loads(line)["unique_id"])
        except (ValueError, KeyError, TypeError):
            raise SplitError(f"{path}: line {number} is not an object with a unique_id") from None
    return ids


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m splits.make",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name")
    parser.add_argument("file", type=Path)
    args = parser.parse_args(argv)
    try:
        source = hashlib.sha256(args.file.read_bytes()).hexdigest()
        print(write(args.name, read_ids(args.file), source))
    except (SplitError, OSError) as refusal:
        print(f"{type(refusal).__name__}: {refusal}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
