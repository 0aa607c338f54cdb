"""A cache of digests of large files by file identity, so that a quick check need not hash them again.

A file is assumed unchanged while its device, inode, size and both times stay the same. That is good enough to
decide whether to start a run; no recorded value depends on it.
"""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from protocol.formats import files

NAME = "identities.json"
SETTLED = 2.0  # seconds: a file that changed more recently may change again without a new timestamp


def weight_digests(paths_by_model: Mapping[str, Mapping[str, Path]], home: Path) -> dict[str, dict[str, str]]:
    """Return the SHA-256 of each file by model and name; digests cached in `home` are not computed again."""
    cached = _read_cache(home / NAME)
    fresh: dict[str, list[str]] = {}
    digests = {
        model: {name: _cached_digest(path.resolve(), cached, fresh) for name, path in sorted(paths.items())}
        for model, paths in sorted(paths_by_model.items())
    }
    if fresh:
        with suppress(OSError):  # without a cache, files are hashed again
            home.mkdir(parents=True, exist_ok=True)
            files.replace(home / NAME, json.dumps(cached | fresh, sort_keys=True).encode() + b"\n")
    return digests


def _cached_digest(path: Path, cached: Mapping[str, list[str]], fresh: dict[str, list[str]]) -> str:
    identity = files.file_identity(path)
    entry = cached.get(str(path))
    if entry is not None and entry[0] == identity:
        return entry[1]
    digest = files.sha256(path)
    if files.file_identity(path) == identity and time.time() - path.stat().st_ctime > SETTLED:
        fresh[str(path)] = [identity, digest]
    return digest


def _read_cache(path: Path) -> dict[str, list[str]]:
    """Return what `weight_digests` wrote; {} where the file is missing or damaged."""
    try:
        content = json.loads(path.read_bytes())
        return {name: [str(identity), str(digest)] for name, (identity, digest) in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
