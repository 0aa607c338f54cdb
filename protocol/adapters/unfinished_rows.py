"""The rows of an arm while it is decoded: each is on disk as soon as it is made.

They are lines of JSON beside the file that is written at the end, under a name that `kv-prereg confirm` does not read.
The first line has the settings. A later run goes on after the last complete row, if its settings are the same.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from protocol.formats import journal, strict_json
from protocol.formats.refusals import BadInput

SUFFIX = ".unfinished"


class UnfinishedRows:
    """The rows so far, in the order of the problems. Nobody else may append until the `with` block ends."""

    def __init__(self, lines: journal.Journal, rows: list[dict[str, str]]) -> None:
        self.rows = rows
        self._lines = lines

    def append(self, row: dict[str, str]) -> None:
        """Store a row: on return it is on disk."""
        self._lines.append([_encode(row)])
        self.rows.append(row)


@contextmanager
def open_rows(out: Path, settings: Mapping[str, str], names: Sequence[str]) -> Iterator[UnfinishedRows]:
    """Open the rows of the run that writes `out`, and remove their file once the block has ended well or made none.

    names: ids of the problems in their order. Raises BadInput for rows of other settings or problems, and
    AlreadyClaimed while another process writes them.
    """
    path = out.with_name(out.name + SUFFIX)
    with journal.open_journal(path, wait=False) as lines:
        lines.drop_torn()
        if not lines.lines.complete:
            lines.append([_encode(settings)])
        begun, *rows = (_decode(path, line) for line in lines.lines.complete)
        if begun != settings:
            changed = sorted(name for name in {*begun, *settings} if begun.get(name) != settings.get(name))
            raise BadInput(
                f"{path}: was started with a different {' and a different '.join(changed)}; continue with the "
                "same settings, or delete it to start over"
            )
        if [row.get("id") for row in rows] != [*names[: len(rows)]]:
            raise BadInput(f"{path}: has rows of other problems; delete it to start over")
        unfinished = UnfinishedRows(lines, rows)
        has_ended = False
        try:
            yield unfinished
            has_ended = True
        finally:
            if has_ended or not unfinished.rows:
                path.unlink()


def _encode(row: Mapping[str, str]) -> bytes:
    return json.dumps(row).encode("ascii")


def _decode(path: Path, line: bytes) -> dict[str, Any]:
    try:
        row = strict_json.parse(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise BadInput(f"{path}: is not a file of an unfinished run; delete it to start over")
    return row
