"""Checksums of fetched files, next to the weights, to detect a damaged file before it is used.

The file is named SHA256SUMS and has the format of `sha256sum --check`.
"""

import re
from pathlib import Path

from protocol.formats.files import sha256
from protocol.formats.refusals import Drifted

SUMS_FILE = "SHA256SUMS"
LINE = re.compile(r"(?P<digest>[0-9a-f]{64})  (?P<name>[^/]+)")


def write_sums(folder: Path) -> None:
    """Write the digest of every file in `folder` except the checksum file."""
    paths = sorted(path for path in folder.iterdir() if path.is_file() and path.name != SUMS_FILE)
    lines = [f"{sha256(path)}  {path.name}\n" for path in paths]
    (folder / SUMS_FILE).write_text("".join(lines), encoding="utf-8", newline="\n")


def verify(folder: Path, source: str, fix: str) -> None:
    """Raise Drifted for the first file that is missing, was added or differs, with the fix."""
    listing = folder / SUMS_FILE
    if not listing.is_file():
        raise Drifted(f"model {source!r}: {listing} is missing; {fix}")
    fetched = {}
    for number, line in enumerate(listing.read_bytes().splitlines(), start=1):
        match = LINE.fullmatch(line.decode("utf-8", "replace"))
        if match is None or match["name"] in fetched:
            raise Drifted(
                f"model {source!r}: {listing}:{number}: this line must be the digest of one further file; {fix}"
            )
        fetched[match["name"]] = match["digest"]
    present = {path.name for path in folder.iterdir()} - {SUMS_FILE}
    for name in sorted(fetched.keys() ^ present):
        problem = "is missing" if name in fetched else "was added"
        raise Drifted(f"model {source!r}: {folder / name} {problem}; {fix}")
    for name, digest in fetched.items():
        if sha256(folder / name) != digest:
            raise Drifted(f"model {source!r}: {folder / name} has changed since it was stored; {fix}")
