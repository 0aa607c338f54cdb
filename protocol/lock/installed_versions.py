"""The installed release of this project, and the versions of everything else that is installed."""

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import metadata

SELF = "kv-prereg"  # its modules are sources, which the closure covers
NO_RELEASE = "not installed"


@cache
def release() -> str:
    """Return the version of this project that is installed here, or `NO_RELEASE`."""
    try:
        return metadata.version(SELF)
    except metadata.PackageNotFoundError:
        return NO_RELEASE


def versions() -> dict[str, dict[str, str]]:
    """Return version and RECORD digest of every distribution except this one, by normalised name."""
    by_name = {}
    for distribution in distributions():
        name = normalised_name(distribution)
        if name and name != SELF and name not in by_name:  # the first on the path is the one that is imported
            listings = (distribution.read_text(file) for file in ("RECORD", "installed-files.txt", "METADATA"))
            listing = next((text for text in listings if text), "")
            digest = hashlib.sha256(listing.encode()).hexdigest()
            by_name[name] = {"version": distribution.version, "files": digest}
    return dict(sorted(by_name.items()))


def distributions() -> Iterator[metadata.Distribution]:
    """Yield what is installed, but not in the folder in which a command is typed."""
    excluded = {"", os.getcwd()}
    return iter(metadata.distributions(path=[entry for entry in sys.path if entry not in excluded]))


def normalised_name(distribution: metadata.Distribution) -> str:
    return re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
