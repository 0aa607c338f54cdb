"""Where Python imports from: nowhere that no closure covers.

A closure covers the tree whose sources are locked, Python's own library and the folders that packages are
installed in. What PYTHONPATH, a .pth file or an editable install adds beside these stands in no lock.
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
SITES = {"site-packages", "dist-packages"}  # below Python's library, and no part of it


def refuse_uncovered() -> None:
    """Raises BadInput where Python searches a place that no closure covers, or came from one.

    The folder in which a command was typed is passed over: the locked tree is started without it.
    """
    _refuse([*searched(sys.path), *mapped(sys.meta_path)], "Python imports from")
    refuse_loaded()


def refuse_loaded() -> None:
    """Raises BadInput for a module that lies in such a place, however Python came there."""
    _refuse([*loaded(sys.modules)], "Python has imported")


def refuse_elsewhere(group: str, names: Iterable[str]) -> None:
    """Raises BadInput for an entry point of these names that another distribution adds and whose module lies
    in such a place: that of an editable install is where its author edits it.
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
    """The entries of a path that exist and that no closure covers. A folder is covered itself; what lies
    below it is not by that.
    """
    here, covered = os.path.realpath(os.getcwd()), _library() | _sites() | {str(ROOT)}
    for entry in path:
        place = os.path.realpath(entry or here)
        if os.path.exists(place) and place != here and place not in covered:
            yield entry


def mapped(finders: Iterable[Any]) -> Iterator[str]:
    """Where the finders of editable installs lead, but for our own packages."""
    for finder in finders:
        module = sys.modules.get(getattr(finder, "__module__", ""))
        mapping = getattr(module, "MAPPING", None)
        for name, place in mapping.items() if isinstance(mapping, Mapping) else ():
            if name.partition(".")[0] not in closure.PACKAGES and not _below(str(place)):
                yield str(place)


def loaded(modules: Mapping[str, ModuleType]) -> Iterator[str]:
    """The files of modules that lie in no place that a closure covers."""
    for module in list(modules.values()):
        # Asked for an attribute, some modules import others.
        spec = vars(module).get("__spec__") if isinstance(module, ModuleType) else None
        origin = getattr(spec, "origin", None)
        if isinstance(origin, str) and os.path.isabs(origin) and not _below(origin):
            yield origin


def _refuse(found: list[str], how: str) -> None:
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise BadInput(f"sys.path: {how} {found[0]}{more}, which no lock covers; {FIX}")


def _below(name: str) -> bool:
    """A link in a covered folder counts as there, since its bytes are read through it: Debian's own
    sitecustomize leads to /etc.
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
