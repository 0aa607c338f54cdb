"""The modules and classes that an own policy has to leave as they are, and what it loads while it runs."""

import abc
import functools
import gc
import importlib
import operator
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, groupby
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from protocol.engine.own_state import PLAIN, read_bases, read_names

PROTECTED = ("protocol.engine", "protocol.run", "policies", "protocol.models.load")
LIBRARIES = (
    "builtins",
    "torch",
    "torch.nn.functional",
    "torch.nn.modules.module",
    "os",
    "sys",
    "time",
    "math",
    "threading",
    "gc",
)
LAZY_NAMES = (  # set when first read
    *("__warningregistry__", "__abstractmethods__", "__annotations__", "__path__", "__slotnames__"),
    *("_can_set_attn_implementation_cached_value", "_can_set_experts_implementation_cached_value"),  # of transformers
)
_CHANGING = ("sys.modules", "sys.path_importer_cache", "threading._active", "threading._limbo")  # by Python itself
_HARMLESS_KINDS = (type(None), bool, type(threading.Lock()), type(threading.RLock()), torch.library.Library)
_HOLDERS = (functools.partial, MethodType, operator.itemgetter, operator.attrgetter, operator.methodcaller)
_NOT_MODULES: tuple[type, ...] = (dict, list, tuple, str, bytes, int, float, Tensor, np.ndarray)
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, type)
_NAMES_OF_MODULE: Callable[[ModuleType], dict[str, Any]] = vars(ModuleType)["__dict__"].__get__


# The number of registrations of abstract classes until now.
count_registrations: Callable[[], int] = abc.get_cache_token  # type: ignore[assignment]


class Namespace(NamedTuple):
    """A module, a class or a dict in one; its names and values, and those that it had when they were last accepted.

    is_guarded: no value may change, of whatever kind.
    """

    module: str
    where: str
    owner: Any
    entries: Mapping[str, Any]
    accepted: dict[str, Any]
    is_guarded: bool

    def accept(self) -> None:
        """Compare it from now on with what it is now."""
        self.accepted.clear()
        self.accepted.update(self.entries)


class LoadRecorder:
    """What modules were when they had been loaded, before the code that loads them could change them.

    begin: starts a new record of loading. registrations: of abstract classes, that loading made.
    """

    def __init__(self) -> None:
        self.registrations = 0
        self.modules: dict[str, object] = {}
        self.namespaces: list[Namespace] = []
        self._read: Callable[[str, ModuleType], Iterable[Namespace]] | None = None

    def begin(self, read: Callable[[str, ModuleType], Iterable[Namespace]]) -> None:
        self._read = read
        self.take()

    def take(self) -> tuple[dict[str, object], list[Namespace]]:
        """Return what was loaded since this was called last."""
        loaded = self.modules, self.namespaces
        self.modules, self.namespaces = {}, []
        return loaded

    def record(self, load: Callable[[Any], ModuleType]) -> Callable[[Any], ModuleType]:
        """Return what loads a module as `load` does, and records all that came with it."""
        depth = 0

        def load_and_record(spec: Any) -> ModuleType:
            nonlocal depth
            read = self._read
            if read is None or depth:
                return load(spec)
            before, registrations = dict(sys.modules), count_registrations()
            depth += 1
            try:
                return load(spec)
            finally:
                depth -= 1
                self.registrations += count_registrations() - registrations
                added = [(name, value) for name, value in sys.modules.items() if name not in before]
                loaded = {name for name, value in added if getattr(value, "__spec__", None) is not None}
                added = [each for each in added if each[0] in loaded or each[0].rpartition(".")[0] in loaded]
                self.modules.update(added)
                for name, value in added:
                    if issubclass(type(value), ModuleType):
                        self.namespaces += read(name, value)

        return load_and_record


@cache
def get_load_recorder() -> LoadRecorder:
    """Return the recorder of this process, through which Python loads every module from then on."""
    recorder, loading = LoadRecorder(), vars(importlib)["_bootstrap"]
    loading._load_unlocked = recorder.record(loading._load_unlocked)
    return recorder


class Surroundings:
    """All modules and their classes but those of own code.

    own: first names of the modules of own code. code: its files and folders.
    """

    def __init__(self, own: frozenset[str], code: tuple[str, ...]) -> None:
        self._own, self._code = own, code
        self._core = {id(kind) for kind in (Tensor, nn.Module, nn.Linear)}
        self._libraries = set(LIBRARIES)
        self._recorder = get_load_recorder()
        # What a callback of the garbage collector counts changes at any time; own code can add none.
        self._counting = {getattr(callback, "__module__", None) for callback in gc.callbacks}
        self.foreign = set[int]()
        self._modules: dict[str, object] = {}
        self._namespaces: dict[str, list[Namespace]] = {}
        self.accept_modules()

    def guard(self, classes: Collection[type]) -> None:
        """Guard the classes of a network too, and their modules; compare all others with what they are now."""
        self._core |= {id(kind) for kind in classes}
        self._libraries |= {kind.__module__ for kind in classes}
        for name in {kind.__module__ for kind in classes} & self._namespaces.keys():
            self._add(name, self._read(name, sys.modules[name]))
        self.accept_modules()
        for namespace, _ in self.find_changes():
            namespace.accept()

    def _add(self, module: str, namespaces: Iterable[Namespace]) -> None:
        self._namespaces[module] = added = list(namespaces)
        self.foreign |= {id(each) for namespace in added for each in (namespace.owner, namespace.entries)}

    def _read(self, name: str, module: ModuleType) -> Iterator[Namespace]:
        """Yield a module and its classes, unless they are own code's or counted."""
        is_guarded = name in self._libraries or name.startswith(PROTECTED)
        if name.partition(".")[0] in self._own or name in self._counting:
            return
        entries = _NAMES_OF_MODULE(module)
        yield from _read_namespace(name, name, module, entries, is_guarded=is_guarded)
        for value in list(entries.values()):
            if issubclass(type(value), type) and value.__module__ == name:
                is_core = (is_guarded and name.startswith(PROTECTED)) or id(value) in self._core
                where = f"{name}.{value.__name__}"
                yield from _read_namespace(name, where, value, read_names(value), is_guarded=is_core)

    def record_loads(self) -> None:
        """Record, from now on, what modules are when they have been loaded."""
        self._recorder.begin(self._read)

    def has_new_modules(self) -> bool:
        return not _is_same(sys.modules, self._modules)

    def accept_loads(self) -> str | None:
        """Compare from now on what was loaded, with what it was then; return what own code changed of it, if
        anything: a module was made, replaced or removed, or a name in one.
        """
        loaded, namespaces = self._recorder.take()
        now: dict[str, object] = dict(sys.modules)
        odd = [name for name in self._modules if now.get(name, self) is not self._modules[name]]
        odd += [name for name in now if name not in self._modules and loaded.get(name, self) is not now[name]]
        if odd:
            return (
                "the loaded modules, "
                f"{next((name for name in odd if type(name) is str), '<a name of another class than str>')}"
            )
        for namespace in namespaces:
            if (name := self._find_first_change(namespace)) is not None:
                return f"{namespace.where}.{name}"
        self._modules = now
        for name, added in groupby(namespaces, operator.attrgetter("module")):
            self._add(name, added)
        return None

    def accept_modules(self) -> None:
        """Compare from now on what was loaded until now."""
        known, self._modules = self._modules, dict(sys.modules)
        for name, module in self._modules.items():
            if issubclass(type(module), ModuleType) and known.get(name) is not module:
                self._add(name, self._read(name, module))  # type: ignore[arg-type]

    def find_changes(self) -> Iterator[tuple[Namespace, str]]:
        """Yield each module or class that changed, with the first name at which another value stands."""
        for namespace in chain.from_iterable(self._namespaces.values()):
            if _is_same(namespace.entries, namespace.accepted):
                continue
            if (name := self._find_first_change(namespace)) is not None:
                yield namespace, name
            else:
                namespace.accept()

    def _find_first_change(self, namespace: Namespace) -> str | None:
        """Return the first name at which another value stands; None if there is none. Submodules may be added, and
        what Python sets when it is first read; what a library sets late may be added to what is not guarded.
        """
        now, before = namespace.entries, namespace.accepted
        if not {id(name) for name in now if type(name) is not str} <= {*map(id, before)}:
            return "<a name of another class than str>"  # which would be asked here
        changed = [name for name in {**before, **now} if not _is_alike(now.get(name, before), before.get(name, before))]
        return min((name for name in changed if not self._is_harmless(name, namespace)), default=None)

    def _is_harmless(self, name: str, namespace: Namespace) -> bool:
        now, before = namespace.entries.get(name), namespace.accepted.get(name)
        if name in LAZY_NAMES or issubclass(type(now), ModuleType):
            return True
        is_added = not issubclass(type(before), _FUNCTIONS)
        return not namespace.is_guarded and is_added and (type(now) in _HARMLESS_KINDS or self._may_be_late(now))

    def _may_be_late(self, value: object) -> bool:
        """Return whether a library may set this when it is first used: it can be called, and is not own code's."""
        kind: Any = type(value)
        holds = kind in _HOLDERS or (kind is BuiltinFunctionType and type(value.__self__) in _NOT_MODULES)  # type: ignore[attr-defined]
        return callable(value) and not holds and not self.is_own(value)

    def is_own(self, value: object) -> bool:
        """Return whether a function, a class or an object of one is of own code."""
        kind: Any = type(value)
        if kind is FunctionType:
            return bool(value.__code__.co_filename.startswith(self._code))  # type: ignore[attr-defined]
        classes = read_bases(value if issubclass(kind, type) else kind)  # type: ignore[arg-type]
        names = [read_names(base) for base in classes]
        modules = {each["__module__"] for each in names if type(each.get("__module__")) is str}
        inner = [value for each in names for value in each.values() if type(value) is FunctionType]
        return not self._own.isdisjoint(name.partition(".")[0] for name in modules) or any(map(self.is_own, inner))

    def find_patch(self, classes: Collection[type]) -> str | None:
        """Return where a function of own code stands in the engine, in torch or in the network's classes."""
        spaces = {
            each.where: each.entries for each in chain.from_iterable(self._namespaces.values()) if each.is_guarded
        }
        names = {kind.__module__ for kind in classes} & sys.modules.keys()
        spaces |= {name: vars(sys.modules[name]) for name in names}
        spaces |= {f"{kind.__module__}.{kind.__name__}": vars(kind) for kind in classes}
        for where, entries in sorted(spaces.items()):
            for name, value in list(entries.items()):
                if type(value) is FunctionType and self.is_own(value):
                    return f"{where}.{name}"
        return None


def _read_namespace(
    module: str, where: str, owner: Any, entries: Mapping[str, Any], *, is_guarded: bool
) -> Iterator[Namespace]:
    """Yield a module or class and, if it is guarded, the dicts in it, such as the hooks of all networks."""
    yield Namespace(module, where, owner, entries, dict(entries), is_guarded)
    for name, value in list(entries.items()) if is_guarded else ():
        if type(value) in (dict, OrderedDict) and name[:2] != "__" and f"{where}.{name}" not in _CHANGING:
            yield Namespace(module, f"{where}.{name}", value, value, dict(value), is_guarded)


def _is_alike(now: object, before: object) -> bool:
    return now is before or (type(now) is type(before) and type(now) in PLAIN and now == before)


def _is_same(now: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether the very same values stand at the very same names; no class of theirs is asked."""
    return (
        len(now) == len(before)
        and all(map(operator.is_, now, before))
        and all(map(operator.is_, now.values(), before.values()))
    )
