"""The producer of a page: the code and the library versions that determine its bytes."""

import functools
import hashlib
import platform
import sys
from importlib import metadata
from pathlib import Path

from matplotlib import ft2font

ROOT = Path(__file__).parents[2]
SOURCES = ("analysis", "figures")
SUFFIXES = (".py", ".html", ".css", ".js")
LIBRARIES = ("jinja2", "markupsafe", "matplotlib", "numpy", "pandas", "pillow", "scipy", "statsmodels")


@functools.cache
def producer_name() -> str:
    """Return the producer. Two pages of a study with the same producer have the same bytes, or one was edited."""
    sources = hashlib.sha256()
    files = (path for package in SOURCES for path in (ROOT / package).rglob("*") if path.suffix in SUFFIXES)
    for path in sorted(files):
        data = path.read_bytes()
        sources.update(f"{path.relative_to(ROOT).as_posix()} {hashlib.sha256(data).hexdigest()}\n".encode())
    versions = [f"{library} {metadata.version(library)}" for library in LIBRARIES]
    system = f"{platform.python_implementation()} {platform.python_version()} {sys.platform}"
    return ", ".join(
        [
            f"kv-prereg figures {sources.hexdigest()}",
            f"{system} {platform.machine()}",
            *versions,
            f"freetype {ft2font.__freetype_version__}",
        ]
    )
