"""What code that is not of this project keeps: a digest of everything that can be reached from its modules.

The interpreter itself says what an object refers to (`gc.get_referents`): items, attributes, slots, closures,
defaults, cells, attributes of classes. What it holds besides is compared by bytes for the kinds that are listed here,
and an object of any other kind with such memory is refused: an iterator, a generator, a lock, a context variable, a
hash. Nothing here runs a method that the code itself could define.
"""

import array
import copyreg
import gc
import hashlib
import io
import logging
import mmap
import operator
import random
import re
import struct
import sys
import types
import weakref
from abc import ABC, ABCMeta
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

MAX_OBJECTS = 200_000  # of the modules of an own policy
HEADER = 2 * struct.calcsize("P")
POINTER = struct.calcsize("P")
_OF_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that may have a `__sizeof__` of its own
PLAIN = (type(None), bool, int, float, complex, str, bytes)


class Keeps(ValueError):
    """An object whose state can be neither compared nor counted. Its message continues "its code"."""


class ReachableState(NamedTuple):
    """Digests by the name of a root. objects: what was walked, so that no identity is used again."""

    digests: Mapping[str, bytes]
    objects: Collection[object]

    def first_change(self, later: "ReachableState") -> str:
        """Return the root that differs; empty if none does."""
        names = self.digests.keys() | later.digests.keys()
        return min((name for name in names if self.digests.get(name) != later.digests.get(name)), key=len, default="")


def read_state(roots: Iterable[tuple[str, object]], foreign: Collection[Collection[int]]) -> ReachableState:
    """Return the digests of what can be reached from each root.

    foreign: sets of identities of modules, of their namespaces and of classes, at which the walk ends. Raises Keeps for
    an object whose state cannot be compared.
    """
    seen: dict[int, object] = {}
    digests: dict[str, bytes] = {}
    for name, root in roots:
        digest, waiting = hashlib.blake2b(digest_size=16), deque([root])
        while waiting:
            value = waiting.popleft()
            kind = type(value)
            if kind in PLAIN:
                digest.update(_describe_plain(value))
                continue
            digest.update(struct.pack("N", id(value)))
            if id(value) in seen or any(id(value) in each for each in foreign):
                continue
            seen[id(value)] = value
            if len(seen) > MAX_OBJECTS:
                raise Keeps(f"stores more than {MAX_OBJECTS:,} objects in {name}; a policy may store only its settings")
            content, children = _describe(name, value)
            digest.update(repr(content).encode() if not isinstance(content, bytes) else content)
            waiting.extend(children)
        digests[name] = digests.get(name, b"") + digest.digest()  # `a.b` may be a name of `a` and a module
    return ReachableState(digests, seen.values())


def count_reachable_bytes(name: str, state: object) -> int:
    """Return the bytes of all that a state leads to, up to what stands in a module: of tensors and arrays the whole
    memory, of which they may show a part. Raises Keeps for an object whose memory cannot be counted.
    """
    seen: dict[int, object] = {}
    sizes: dict[int, int] = {}  # of a memory that several tensors share, once
    waiting = [state]
    while waiting:
        value = waiting.pop()
        if value is None or id(value) in seen or _stands_in_module(name, value):
            continue
        seen[id(value)] = value
        content, children = ("", ()) if type(value) in PLAIN else _describe(name, value)
        waiting.extend(children)
        if issubclass(type(value), Tensor):
            with torch._C.DisableTorchFunctionSubclass():
                storage = _TENSOR.untyped_storage(value)
            if not storage.resizable():
                raise Keeps("stores a tensor in memory that is not torch's: copy it with `.clone()`")
            sizes[storage.data_ptr()] = storage.nbytes()
            sizes[id(value)] = 2 * POINTER * _TENSOR.dim(value)  # sizes and strides
        else:
            base: Any = next(base for base in read_bases(type(value)) if not _FLAGS(base) & _OF_PYTHON)
            sizes[id(value)] = base.__sizeof__(value) + (len(content) if isinstance(content, bytes) else 0)
            if buffer := next((each for each in read_bases(type(value)) if each in _BUFFERS), None):
                sizes[id(value)] += len(_BUFFERS[buffer](value))
    return sum(sizes.values())


def _stands_in_module(name: str, value: Any) -> bool:
    """Return whether a value is a module, or a class or function that its module has by its name, which is compared
    there. Raises Keeps for any other, which can hold whatever it was made with.
    """
    kind = type(value)
    if kind is types.CodeType:
        return True
    if not issubclass(kind, (type, types.FunctionType, types.ModuleType)):
        return False
    if kind is types.FunctionType:
        module, path = value.__module__, value.__qualname__
    elif issubclass(kind, type):
        module, path = (vars(type)[name].__get__(value) for name in ("__module__", "__qualname__"))
    else:
        module, path = next((name for name, loaded in sys.modules.items() if loaded is value), None), ""
    is_plain = type(module) is str and type(path) is str
    found: Any = sys.modules.get(module) if is_plain else None
    for part in filter(None, path.split(".") if is_plain else ()):
        entries = read_names(found) if issubclass(type(found), type) else _read_module(found)
        found = entries.get(part)
    if type(found) in (staticmethod, classmethod):
        found = found.__func__
    if found is not value:
        raise Keeps(f"stores a function, class or module in {name} that it made: define it in a module")
    return True


def _read_module(value: object) -> Mapping[str, Any]:
    return _NAMES.__get__(value) if issubclass(type(value), types.ModuleType) else {}


def _describe_plain(value: Any) -> bytes:
    """Return the bytes of a number, a text or bytes: two NaN of the same bits are equal."""
    if type(value) is float:
        return b"f" + struct.pack("d", value)
    if type(value) is complex:
        return b"c" + struct.pack("dd", value.real, value.imag)
    return f"{type(value).__name__} {value!r};".encode("utf-8", "surrogatepass")


def _describe(name: str, value: Any) -> tuple[object, Iterable[object]]:
    """Return the memory of an object that is no reference, and the objects that it refers to."""
    kind = type(value)
    if kind is types.FunctionType:
        value.__annotations__, value.__dict__  # noqa: B018 - made when first read
    bases = read_bases(kind)
    if logging.Logger in bases:  # leads to all others
        attributes = {key: inner for key, inner in _attributes(value).items() if key not in ("_cache", "manager")}
        known = {key: attributes.pop(key, None) for key in ("parent", "handlers", "filters")}
        lists = [id(each) for key in ("handlers", "filters") for each in known[key] or ()]
        return [id(each) for each in known.values()] + lists, [*attributes, *attributes.values()]
    if type in bases:
        with suppress(AttributeError):  # of a class of the interpreter
            _ANNOTATIONS(value)  # made when first read
        if kind in (type, ABCMeta):
            copyreg._slotnames(value)  # type: ignore[attr-defined]  # set when an object is first copied
        found = gc.get_referents(value)
        return "", [*found, *(key for each in found if type(each) is dict for key in each), *_list_followers(value)]
    if kind is _Registrations:
        return "", ()  # counted by the process, and what has been asked
    _attributes(value)
    native = next((base for base in bases if base in _CONTENTS), None)
    if native is None and _has_hidden_memory(kind):  # type: ignore[arg-type]
        raise Keeps(
            f"stores {_article(kind.__name__)} in {name}, whose state cannot be compared: create it inside "
            "`score`, where it is used"
        )
    content = "" if native is None else _CONTENTS[native](value)
    return content, [*gc.get_referents(value), *_more_referents(value, bases)]


@lru_cache
def _answer(value: int) -> int:
    return value


_answer(0)


class _Pair(NamedTuple):
    first: int


_Registrations: Any = type(vars(ABC)["_abc_impl"])
_TENSOR: Any = torch._C.TensorBase
_LruCache: Any = type(lru_cache(_describe))
read_bases: Callable[[type], tuple[type, ...]] = vars(type)["__mro__"].__get__
read_names: Callable[[type], Mapping[str, Any]] = vars(type)["__dict__"].__get__
_NAMES: Any = vars(types.ModuleType)["__dict__"]
_ANNOTATIONS: Callable[[type], object] = vars(type)["__annotations__"].__get__
_BASIC_SIZE: Callable[[type], int] = vars(type)["__basicsize__"].__get__
_FLAGS: Callable[[type], int] = vars(type)["__flags__"].__get__
_ITEM_SIZE: Callable[[type], int] = vars(type)["__itemsize__"].__get__
_DICT_OFFSET: Callable[[type], int] = vars(type)["__dictoffset__"].__get__
_WEAK_OFFSET: Callable[[type], int] = vars(type)["__weakrefoffset__"].__get__


def _attributes(value: object) -> dict[str, Any]:
    """Return the attributes of an object, which from then on has a dict of them; empty without one."""
    for base in read_bases(type(value)):
        getter = read_names(base).get("__dict__")
        if type(getter) is types.GetSetDescriptorType:
            attributes: dict[str, Any] = getter.__get__(value)
            return attributes
    return {}


@cache
def _has_hidden_memory(kind: Any) -> bool:
    """Return whether objects of a class have memory besides attributes and slots, as those of C code have."""
    slots = sum(
        type(entry) is types.MemberDescriptorType and entry.__objclass__ is base
        for base in read_bases(kind)
        for entry in read_names(base).values()
    )
    pointers = slots + (_DICT_OFFSET(kind) > 0) + (_WEAK_OFFSET(kind) > 0)
    return _ITEM_SIZE(kind) != 0 or _BASIC_SIZE(kind) > HEADER + pointers * POINTER


def _more_referents(value: Any, bases: tuple[type, ...]) -> Iterator[object]:
    """Yield what an object refers to and does not tell the collector."""
    if dict in bases:
        yield from dict.keys(value)  # if all are texts, only the values are told
    elif np.ndarray in bases:
        yield from (np.ndarray.base.__get__(value), np.ndarray.dtype.__get__(value))
        if np.ndarray.dtype.__get__(value).hasobject:
            yield from np.ndarray.tolist(np.ndarray.reshape(value, -1))
    elif np.dtype in bases:
        yield from (value.names, *(value.subdtype or ()))
        for items in (value.metadata or {}, value.fields or {}):  # which are made anew each time
            yield from (*items, *items.values())
    elif np.void in bases:
        yield from (value.base, value.dtype)
    elif Tensor in bases:
        with torch._C.DisableTorchFunctionSubclass():
            held = _attributes(_TENSOR.untyped_storage(value))  # of an object that may be made anew each time
            yield from (_TENSOR.grad.__get__(value), *held, *held.values())
    elif memoryview in bases:
        yield value.obj
    elif weakref.ref in bases:
        yield weakref.ref.__call__(value)
    elif range in bases:
        yield from (value.start, value.stop, value.step)
    elif datetime in bases or time in bases:
        yield (datetime if datetime in bases else time).tzinfo.__get__(value)


def _list_followers(value: Any) -> Iterator[object]:
    """Yield the classes that derive from a class of Python's, and the weak references to it that hold more."""
    if not _FLAGS(value) & _OF_PYTHON:
        return
    yield from type.__subclasses__(value)
    yield from (each for each in weakref.getweakrefs(value) if type(each) is not weakref.ref)


def _tensor_bytes(tensor: Any) -> object:
    with torch._C.DisableTorchFunctionSubclass():
        names = ("dtype", "shape", "device", "layout", "grad_fn", "requires_grad", "is_quantized", "is_meta")
        dtype, shape, device, layout, graph, *flags = (getattr(_TENSOR, name).__get__(tensor) for name in names)
        if graph is not None or layout is not torch.strided or any(flags[1:]):
            raise Keeps(
                "stores a tensor that is sparse or has a graph, or is quantised or meta: make it dense, or detach it"
            )
        storage = torch.empty(0, dtype=torch.uint8, device=device).set_(_TENSOR.untyped_storage(tensor))
        content = hashlib.blake2b(storage.cpu().clone().numpy().tobytes()).hexdigest()  # `numpy` marks what it shares
        places = _TENSOR.stride(tensor), _TENSOR.storage_offset(tensor)
        bits = flags[0], _TENSOR.is_neg(tensor), _TENSOR.is_conj(tensor)
        version = None if _TENSOR.is_inference(tensor) else _TENSOR._version.__get__(tensor)
        return str(dtype), tuple(shape), *places, bits, version, content


def _array_bytes(values: Any) -> object:
    fields = [getattr(np.ndarray, name).__get__(values) for name in ("dtype", "shape", "strides")]
    is_of_objects = fields[0].hasobject
    return (
        *map(str, fields),
        bool(np.ndarray.flags.__get__(values).writeable),
        "" if is_of_objects else hashlib.blake2b(np.ndarray.tobytes(values)).hexdigest(),
    )


def _buffer_bytes(values: Any) -> object:
    return hashlib.blake2b(bytes(memoryview(values))).hexdigest()


def _nothing(value: object) -> str:
    """All that an object of this kind holds are references, or it never changes and is known by its identity."""
    return ""


_BUFFERS: dict[type, Callable[[Any], Any]] = {
    array.array: lambda value: bytes(memoryview(value)),
    io.BytesIO: io.BytesIO.getvalue,
    io.StringIO: io.StringIO.getvalue,
}

# By the class of the interpreter or of a library that an object is, or derives from.
_CONTENTS: dict[type, Callable[[Any], object]] = {
    Tensor: _tensor_bytes,
    np.ndarray: _array_bytes,
    **dict.fromkeys((bytearray, memoryview, array.array, mmap.mmap), _buffer_bytes),
    torch.Generator: lambda value: torch.Generator.get_state(value).numpy().tobytes(),
    random.Random: lambda value: random.Random.getstate(value),
    np.void: lambda value: np.void.tobytes(value),
    timezone: lambda value: timezone.__repr__(value).encode(),
    struct.Struct: lambda value: struct.Struct.format.__get__(value),
    io.BytesIO: lambda value: (io.BytesIO.getvalue(value), io.BytesIO.tell(value)),
    io.StringIO: lambda value: (io.StringIO.getvalue(value), io.StringIO.tell(value)),
    str: lambda value: str.__repr__(value),
    bytes: lambda value: bytes.__repr__(value),
    int: lambda value: int.__repr__(value),
    float: lambda value: struct.pack("d", float.__float__(value)),
    complex: lambda value: complex.__repr__(value),
    _LruCache: lambda value: tuple(_LruCache.cache_info(value)),
    **dict.fromkeys(
        (
            *(dict, list, tuple, set, frozenset, deque, property, staticmethod, classmethod, slice, range),
            *(date, time, timedelta, tzinfo, Decimal, re.Pattern, re.Match, weakref.ref, super, BaseException),
            *(operator.itemgetter, operator.attrgetter, operator.methodcaller),
            *(types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.CodeType, types.CellType),
            *(types.WrapperDescriptorType, types.MethodWrapperType, types.MethodDescriptorType, types.ModuleType),
            *(types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType),
            *(types.MappingProxyType, types.SimpleNamespace, types.GenericAlias, types.UnionType),
            *(np.dtype, np.ufunc, np.generic, torch.dtype, torch.device, torch.layout, torch.memory_format),
            *(type(__import__("_abc")._abc_init), type(torch.ops)),
            type(vars(_Pair)["first"]),
            *(type(entry) for each in gc.get_referents(_answer) if type(each) is dict for entry in each.values()),
        ),
        _nothing,
    ),
}


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
