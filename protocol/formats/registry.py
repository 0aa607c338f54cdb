"""Registries: values by name that are imported when they are asked for, so that a command loads what it uses."""

import importlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class Registry(Mapping[str, Value], Generic[Value]):
    """Values by name. loaders: a function for each that returns it; it is called at the first look-up."""

    def __init__(self, loaders: Mapping[str, Callable[[], Value]]) -> None:
        self._loaders = {name: cache(load) for name, load in loaders.items()}

    def __getitem__(self, name: str) -> Value:
        return self._loaders[name]()

    def __contains__(self, name: object) -> bool:
        return name in self._loaders

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaders)

    def __len__(self) -> int:
        return len(self._loaders)


def load_attribute(path: str) -> Any:
    """Return the attribute that a path "module:attribute" names; of a path "module:" the module."""
    module, _, attribute = path.partition(":")
    loaded = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


def loader(path: str, *arguments: Any, **settings: Any) -> Callable[[], Any]:
    """Return a function that loads the attribute at `path` and, if there are arguments, calls it with them."""

    def load() -> Any:
        value = load_attribute(path)
        return value(*arguments, **settings) if arguments or settings else value

    return load
