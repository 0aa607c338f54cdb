"""A cache of digests of large files by file identity, so that a quick check need not hash them again.

A file is assumed unchanged while its device, inode, size and both times stay the same. That is good enough to
decide whether to start a run; no recorded value depends on it.
"""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from protocol.evidence.bytes import files

__all__ = ["NAME", "weights"]

NAME = "identities.json"
SETTLED = 2.0  # seconds: a file that changed more recently may change again without a new timestamp


def weights(named: Mapping[str, Mapping[str, Path]], home: Path) -> dict[str, dict[str, str]]:
    """Return the SHA-256 of each file by model and name; digests cached in `home` are not computed again."""
    before = _remembered(home / NAME)
    now: dict[str, list[str]] = {}
    digests = {
        model: {name: _digest(path.resolve(), before, now) for name, path in sorted(paths.items())}
        for model, paths in sorted(named.items())
    }
    if now:
        with suppress(OSError):  # without a cache, files are hashed again
            home.mkdir(parents=True, exist_ok=True)
            files.replace(home / NAME, json.dumps(before | now, sort_keys=True).encode() + b"\n")
    return digests


def _digest(path: Path, before: Mapping[str, list[str]], now: dict[str, list[str]]) -> str:
    identity = files.identity(path)
    known = before.get(str(path))
    if known is not None and known[0] == identity:
        return known[1]
    digest = files.sha256(path)
    if files.identity(path) == identity and time.time() - path.stat().st_ctime > SETTLED:
        now[str(path)] = [identity, digest]
    return digest


def _remembered(path: Path) -> dict[str, list[str]]:
    """Return what `weight_digests` wrote; {} where the file is missing or damaged."""
    try:
        kept = json.loads(path.read_bytes())
        return {name: [str(identity), str(digest)] for name, (identity, digest) in kept.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
