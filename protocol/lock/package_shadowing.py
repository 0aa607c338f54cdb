"""Detect other packages that shadow ours, which have generic names.

`analysis`, `figures`, `policies`, `protocol` and `splits` lie in one folder, a clone or site-packages. Python
would run a folder or script of such a name that comes first on its path; another distribution that installs
one of these names overwrites our files.
"""

import hashlib
import importlib.machinery
import sys
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path

from protocol.lock.closure import PACKAGES

ROOT = Path(__file__).resolve().parents[2]


def find_shadowing(root: Path = ROOT, search_path: Sequence[str] | None = None) -> str | None:
    """Return one line that names the first package that is not ours, and the fix; None where all are ours.

    root: the folder of our packages. search_path: default sys.path. Nothing is imported.
    """
    recorded = _recorded_digests(root)
    for package in PACKAGES:
        expected = root / package / "__init__.py"
        spec = _find_spec(package, sys.path if search_path is None else search_path)
        origin = spec.origin if spec else None
        if origin is not None and Path(origin).resolve() != expected.resolve():
            return (
                f"{package}: Python finds {origin} before kv-prereg's own package of that name; rename it, or "
                "remove its folder from PYTHONPATH; commands that are started as kv-prereg do not look in "
                "the current folder"
            )
        if (digest := recorded.get(f"{package}/__init__.py")) is not None and _digest(expected) != digest:
            return (
                f"{package}: {expected} is not the file that kv-prereg installed: another distribution also "
                f"contains {package}; install kv-prereg in a separate environment"
            )
    return None


def _find_spec(package: str, search_path: Sequence[str]) -> importlib.machinery.ModuleSpec | None:
    """Return the spec that `import package` would find, ignoring modules that are already imported."""
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
    for finder in finders:
        entries = search_path if finder is importlib.machinery.PathFinder else None
        if (spec := finder.find_spec(package, entries)) is not None and spec.origin:
            return spec  # a spec without origin is a namespace package, which ours take precedence over
    return None


def _recorded_digests(root: Path) -> dict[str, str]:
    """Return the digest in RECORD of each package's __init__.py, by path; {} in a clone."""
    wanted = {f"{package}/__init__.py" for package in PACKAGES}
    records = root.glob("kv_prereg-*.dist-info/RECORD")
    rows = (line.split(",") for record in records for line in record.read_text("utf-8").splitlines())
    return {row[0]: row[1].removeprefix("sha256=") for row in rows if row[0] in wanted and len(row) > 1}


def _digest(path: Path) -> str:
    return urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
