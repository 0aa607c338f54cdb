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
from typing import Any, NamedTuple

from protocol.formats.refusals import BadInput
from protocol.lock import closure, installed_files
from protocol.workspace.drift import ROOT

FIX = "unset PYTHONPATH, and install the packages that are there without --editable"
SITES = {"site-packages", "dist-packages"}  # below Python's library, but not part of it


def refuse_uncovered() -> None:
    """Raise BadInput if Python searches a location that no closure covers, or has imported from one.

    The working folder is ignored, since the locked tree is started without it.
    """
    _refuse([*uncovered_entries(sys.path), *uncovered_mappings(sys.meta_path)], "Python imports from")
    refuse_loaded()


def refuse_loaded() -> None:
    """Raise BadInput for an imported module outside of the closure, however Python got there."""
    _refuse([*uncovered_modules(sys.modules)], "Python has imported")


def refuse_elsewhere(group: str, names: Iterable[str]) -> None:
    """Raise BadInput for an entry point of these names whose module is outside of the closure, as in an
    editable install, which its author may still change.
    """
    covered = _list_covered()
    for point in entry_points(group=group):
        if point.name in names:
            spec = importlib.util.find_spec(point.module.partition(".")[0])
            locations = [spec.origin, *(spec.submodule_search_locations or ())] if spec else []
            for location in locations:
                if location and os.path.isabs(location) and not covered.has(location):
                    raise BadInput(
                        f"entry point {point.name} of {group}: is in {location}, which no lock covers; {FIX}"
                    )


def uncovered_entries(path: Iterable[str]) -> Iterator[str]:
    """Yield the existing entries of a search path that no closure covers; a covered folder covers none below it."""
    working_folder, covered = os.path.realpath(os.getcwd()), _library_folders() | _site_folders() | {str(ROOT)}
    for entry in path:
        location = os.path.realpath(entry or working_folder)
        if os.path.exists(location) and location != working_folder and location not in covered:
            yield entry


def uncovered_mappings(finders: Iterable[Any]) -> Iterator[str]:
    """Yield the locations to which finders of editable installs map packages other than our own."""
    covered = _list_covered()
    for finder in finders:
        module = sys.modules.get(getattr(finder, "__module__", ""))
        mapping = getattr(module, "MAPPING", None)
        for name, location in mapping.items() if isinstance(mapping, Mapping) else ():
            if name.partition(".")[0] not in (*closure.PACKAGES, closure.LIBRARY) and not covered.has(str(location)):
                yield str(location)


def uncovered_modules(modules: Mapping[str, ModuleType]) -> Iterator[str]:
    """Yield the files of modules that no closure covers."""
    covered = _list_covered()
    for module in list(modules.values()):
        # vars(), since getattr makes some modules import others.
        spec = vars(module).get("__spec__") if isinstance(module, ModuleType) else None
        origin = getattr(spec, "origin", None)
        if isinstance(origin, str) and os.path.isabs(origin) and not covered.has(origin):
            yield origin


def _refuse(locations: list[str], how: str) -> None:
    if locations:
        more = f" (and {len(locations) - 1} more)" if len(locations) > 1 else ""
        raise BadInput(f"sys.path: {how} {locations[0]}{more}, which no lock covers; {FIX}")


class _Covered(NamedTuple):
    """The folders that a closure covers. libraries: without their `SITES`."""

    folders: frozenset[str]
    libraries: frozenset[str]

    def has(self, name: str) -> bool:
        """Return whether a path is covered as it is or resolved. A link in a covered folder counts, since its
        target is hashed through it: Debian's sitecustomize links to /etc.
        """
        return self._has_path(os.path.abspath(name)) or self._has_path(os.path.realpath(name))

    def _has_path(self, location: str) -> bool:
        if any(_is_within(location, folder) for folder in self.folders):
            return True
        relative_parts = [
            os.path.relpath(location, folder).split(os.sep) for folder in self.libraries if _is_within(location, folder)
        ]
        return any(not SITES & set(parts) for parts in relative_parts)


def _list_covered() -> _Covered:
    """Return the covered folders, for all the paths of one check."""
    return _Covered(frozenset({*_site_folders(), str(ROOT)}), frozenset(_library_folders()))


def _is_within(location: str, folder: str) -> bool:
    return os.path.commonpath([location, folder]) == folder


def _library_folders() -> set[str]:
    folders = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    return {os.path.realpath(path) for folder in folders for path in (folder, os.path.join(folder, "lib-dynload"))}


def _site_folders() -> set[str]:
    return {os.path.realpath(folder) for folder in installed_files.site_folders()}
