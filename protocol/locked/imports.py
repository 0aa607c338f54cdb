"""Check that Python imports only from locations that the closure of a lock covers.

A closure covers the tree whose sources are locked, Python's standard library and the folders of installed
packages. No lock covers what PYTHONPATH, a .pth file or an editable install adds to these.
"""

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from protocol.evidence.lock import closure, installed_files
from protocol.evidence.refusals import BadInput
from protocol.locked.drift import ROOT

__all__ = ["loaded", "mapped", "refuse_elsewhere", "refuse_loaded", "refuse_uncovered", "searched"]

FIX = "unset PYTHONPATH, and install what is there without --editable"
SITES = {"site-packages", "dist-packages"}  # below Python's library, but not part of it


def refuse_uncovered() -> None:
    """Raise BadInput if Python searches a location that no closure covers, or has imported from one.

    The working folder is ignored, since the locked tree is started without it.
    """
    _refuse([*searched(sys.path), *mapped(sys.meta_path)], "Python imports from")
    refuse_loaded()


def refuse_loaded() -> None:
    """Raise BadInput for an imported module outside of the closure, however Python got there."""
    _refuse([*loaded(sys.modules)], "Python has imported")


def refuse_elsewhere(group: str, names: Iterable[str]) -> None:
    """Raise BadInput for an entry point of these names whose module is outside of the closure, as in an
    editable install, which its author may still change.
    """
    for point in entry_points(group=group):
        if point.name in names:
            spec = importlib.util.find_spec(point.module.partition(".")[0])
            places = [spec.origin, *(spec.submodule_search_locations or ())] if spec else []
            for place in places:
                if place and os.path.isabs(place) and not _below(place):
                    raise BadInput(
                        f"entry point {point.name} of {group}: lies in {place}, which no lock covers; {FIX}"
                    )


def searched(path: Iterable[str]) -> Iterator[str]:
    """Yield the entries of a search path that exist and that no closure covers. A covered folder does not
    cover the folders below it.
    """
    here, covered = os.path.realpath(os.getcwd()), _library() | _sites() | {str(ROOT)}
    for entry in path:
        place = os.path.realpath(entry or here)
        if os.path.exists(place) and place != here and place not in covered:
            yield entry


def mapped(finders: Iterable[Any]) -> Iterator[str]:
    """Yield the locations to which finders of editable installs map packages other than our own."""
    for finder in finders:
        module = sys.modules.get(getattr(finder, "__module__", ""))
        mapping = getattr(module, "MAPPING", None)
        for name, place in mapping.items() if isinstance(mapping, Mapping) else ():
            if name.partition(".")[0] not in closure.PACKAGES and not _below(str(place)):
                yield str(place)


def loaded(modules: Mapping[str, ModuleType]) -> Iterator[str]:
    """Yield the files of modules that no closure covers."""
    for module in list(modules.values()):
        # vars(), since getattr makes some modules import others.
        spec = vars(module).get("__spec__") if isinstance(module, ModuleType) else None
        origin = getattr(spec, "origin", None)
        if isinstance(origin, str) and os.path.isabs(origin) and not _below(origin):
            yield origin


def _refuse(found: list[str], how: str) -> None:
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise BadInput(f"sys.path: {how} {found[0]}{more}, which no lock covers; {FIX}")


def _below(name: str) -> bool:
    """Return whether a path is covered as it is or resolved. A link in a covered folder counts, since its
    target is hashed through it: Debian's sitecustomize links to /etc.
    """
    return any(_covered(place) for place in (os.path.abspath(name), os.path.realpath(name)))


def _covered(place: str) -> bool:
    if any(_within(place, folder) for folder in (*_sites(), str(ROOT))):
        return True
    outside = [
        os.path.relpath(place, folder).split(os.sep) for folder in _library() if _within(place, folder)
    ]
    return any(not SITES & set(parts) for parts in outside)


def _within(place: str, folder: str) -> bool:
    return os.path.commonpath([place, folder]) == folder


def _library() -> set[str]:
    folders = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    return {
        os.path.realpath(each) for folder in folders for each in (folder, os.path.join(folder, "lib-dynload"))
    }


def _sites() -> set[str]:
    return {os.path.realpath(folder) for folder in installed_files.folders()}
