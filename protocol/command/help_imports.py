"""Imports for help and completion: libraries that take seconds to load are replaced by placeholders."""

import sys
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

SLOW_LIBRARIES = frozenset(
    {"jinja2", "matplotlib", "numpy", "pandas", "PIL", "scipy", "statsmodels", "torch", "transformers"}
)


class Placeholder:
    """What a module imports, subclasses, calls or computes with while it is imported."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __getattr__(self, name: str) -> "Placeholder":
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder()

    def __call__(self, *_: Any, **__: Any) -> "Placeholder":
        return Placeholder()

    def __mro_entries__(self, bases: tuple[type, ...]) -> tuple[type, ...]:
        return ()

    def __iter__(self) -> Iterator["Placeholder"]:
        return iter((Placeholder(), Placeholder()))  # unpacked into two names

    def _combine(self, *_: Any) -> "Placeholder":
        return Placeholder()

    __getitem__ = __neg__ = __and__ = __or__ = __ror__ = __lshift__ = __rshift__ = _combine
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = _combine


class _Library(ModuleType):
    def __getattr__(self, name: str) -> Placeholder:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder()


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in SLOW_LIBRARIES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Library(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def replace_slow_libraries() -> None:
    """Replace the libraries in all later imports of this process, which prints what its parsers say and ends."""
    sys.meta_path.insert(0, _Finder())
