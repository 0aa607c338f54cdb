"""Digests of large files kept by the identity of the file, so that a look does not read them again.

A file is taken to hold what it held while its device, inode, size and both times stay the same. That is good
enough to say whether a run is worth starting; nothing that is recorded rests on it.
"""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from protocol.evidence.bytes import files

__all__ = ["NAME", "weights"]

NAME = "identities.json"
SETTLED = 2.0  # seconds: a file changed so recently may change again within one tick of its times


def weights(named: Mapping[str, Mapping[str, Path]], home: Path) -> dict[str, dict[str, str]]:
    """SHA-256 of each file, by model and name; what `home` remembers is not read again."""
    before = _remembered(home / NAME)
    now: dict[str, list[str]] = {}
    digests = {
        model: {name: _digest(path.resolve(), before, now) for name, path in sorted(paths.items())}
        for model, paths in sorted(named.items())
    }
    if now:
        with suppress(OSError):  # what cannot be remembered is hashed again
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
    """What `weights` wrote; nothing where it is missing or damaged."""
    try:
        kept = json.loads(path.read_bytes())
        return {name: [str(identity), str(digest)] for name, (identity, digest) in kept.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
