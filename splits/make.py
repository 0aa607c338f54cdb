"""Freeze the split of a data file: one JSON object a line, each with a `unique_id`.

    kv-prereg split math500 math500.jsonl    writes splits/math500.json, once

Only the ids are kept, never the problems. Exit status: 0 written, 2 refused.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from splits.manifest import FOLDER, SplitError, build_content, canonical_json

__all__ = ["read_ids", "write_split"]


def write_split(name: str, ids: Iterable[str], source: str, folder: Path = FOLDER) -> Path:
    """Create splits/<name>.json; raises SplitError when it exists, as a frozen split is never replaced."""
    path = folder / f"{name}.json"
    data = canonical_json(build_content(name, ids, source)) + b"\n"
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError:
        raise SplitError(f"{path}: exists and is frozen; choose another name") from None
    return path


def read_ids(path: Path) -> list[str]:
    """Return the unique_id of every line. Raises SplitError, naming the line, if it is not a JSON object with
    a unique_id, contains NaN, or has a key twice.
    """
    ids = []
    for number, line in enumerate(path.read_bytes().removesuffix(b"\n").split(b"\n"), start=1):
        position = f"{path}: line {number}"
        try:
            row = json.loads(
                line.decode("utf-8"), object_pairs_hook=_refuse_repeated_keys, parse_constant=_refuse_constant
            )
            ids.append(row["unique_id"])
        except _Ambiguous as error:
            raise SplitError(f"{position}: {error}") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise SplitError(f"{position} is not an object with a unique_id") from None
    return ids


class _Ambiguous(Exception):
    """JSON that parsers may interpret differently."""


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise _Ambiguous("has a key twice; keep one of them")
    return row


def _refuse_constant(constant: str) -> NoReturn:
    raise _Ambiguous(f"{constant} is no JSON; write null or leave the field out")


class _Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; --help shows an example\n")


def main(argv: list[str] | None = None) -> int:
    parser = _Parser(
        prog="kv-prereg split",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", help="of the split")
    parser.add_argument("file", type=Path, help="the data file, JSON lines")
    args = parser.parse_args(argv)
    try:
        source = hashlib.sha256(args.file.read_bytes()).hexdigest()
        print(write_split(args.name, read_ids(args.file), source))
    except (SplitError, OSError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        print(f"{type(error).__name__}: {reason}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
