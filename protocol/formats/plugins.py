"""Plugins: the entry points by which other distributions add policies, tasks and graders."""

import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, NamedTuple

from protocol.formats.refusals import Refusal


class PluginGroup(NamedTuple):
    """An entry-point group. kind: what its entry points are. builtin: the names of this package, which no
    entry point may take. error: raised for a plugin that cannot be used.
    """

    group: str
    kind: str
    builtin: frozenset[str]
    error: type[Exception]

    def points(self) -> Mapping[str, EntryPoint]:
        """Return the entry points of the distributions on sys.path by name."""
        return list_points(self, tuple(sys.path))

    def distribution(self, name: str) -> str:
        """Return the normalised name of the distribution that an entry point is of; empty if none has this name."""
        point = self.points().get(name)
        return "" if point is None or point.dist is None else re.sub(r"[-_.]+", "-", point.dist.name).lower()

    def load(self, name: str, build: Callable[[Any], Any] = lambda value: value) -> Any:
        """Return what `build` makes of the value of an entry point. Refusals of `build` are raised as they are."""
        try:
            return build(self.points()[name].load())
        except Refusal:
            raise
        except Exception as error:  # importing or calling an untrusted module may raise anything
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise self.error(
                f"entry point {name} of {self.group} cannot be loaded ({reason}); repair or uninstall its distribution"
            ) from None


@cache  # scanning all distributions takes a hundred times as long as any other part of a look-up
def list_points(plugins: PluginGroup, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """Return the entry points by name of the distributions on `path`, which is sys.path.

    Raises `plugins.error` for a name that is already taken: it would change the meaning of a registration.
    """
    points: dict[str, EntryPoint] = {}
    for point in entry_points(group=plugins.group):
        if point.name in plugins.builtin or points.setdefault(point.name, point) != point:
            raise plugins.error(
                f"entry point {point.name} of {plugins.group}: this name is already in use; rename the "
                f"{plugins.kind} in {point.value}"
            )
    return MappingProxyType(points)
