"""Freeze the split of a data file with one JSON object per line, each with a `unique_id`.

    kv-prereg split math500 math500.jsonl    writes splits/math500.json, once

Only the ids are stored, never the problems. Exit status: 0 written, 2 refused.
"""

import hashlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from protocol.formats import canonical, strict_json
from protocol.formats.command_line import format_refusal, make_parser
from splits.manifest import FOLDER, OWN_UNITS, SplitError, build_content


def write_split(
    name: str, ids: Iterable[str], source: str, folder: Path = FOLDER, units: Mapping[str, str] = OWN_UNITS
) -> Path:
    """Create splits/<name>.json; raises SplitError when it exists, as a frozen split is never replaced.

    units: as in `build_content`.
    """
    path = folder / f"{name}.json"
    data = canonical.encode(build_content(name, ids, source, units)) + b"\n"
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
            ids.append(strict_json.parse(line)["unique_id"])
        except strict_json.JsonFault as fault:
            raise SplitError(f"{position}: {fault}") from None
        except (KeyError, TypeError):
            raise SplitError(f"{position} is not an object with a unique_id") from None
    return ids


def main(argv: list[str] | None = None) -> int:
    parser = make_parser("kv-prereg split", __doc__)
    parser.add_argument("name", help="name of the split")
    parser.add_argument("file", type=Path, help="the data file, JSON lines")
    args = parser.parse_args(argv)
    try:
        source = hashlib.sha256(args.file.read_bytes()).hexdigest()
        print(write_split(args.name, read_ids(args.file), source))
    except (SplitError, OSError) as error:
        print(f"{type(error).__name__}: {format_refusal(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
