"""A device that is called "cuda" and computes on the CPU: what mixes devices fails on it as on a GPU.

A tensor on it holds its numbers in a plain tensor beside it. A function that is given one together with a
tensor of the CPU is refused, as CUDA refuses it; numbers of no axis, copies between devices and indices on
the CPU are let through. Functions that CUDA has no deterministic kernel for are refused too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

from protocol.engine import sampling

DEVICE = torch.device("cuda", 0)
SUMS = {"cumsum", "cumsum_", "histc"}
"""What raises on CUDA for floats, by the docstring of torch.use_deterministic_algorithms; with `put_`, the
place of a median, and counts that are weighed."""
COPIES = {"copy_", "__setitem__"}
VIEWS = {"T", "mT", "H", "real", "imag", "data"}


class Mixed(RuntimeError):
    """Tensors of two devices, or what the device cannot do reproducibly."""


@dataclass
class Traffic:
    """What the functions of torch cost a device: by name, each in its order.

    operations: what launches a kernel, and so no view. copies: numbers that went to the device. waits: numbers that
    came from it, sizes that follow from them, and copies to it that are not asked to go on alone.
    """

    operations: list[str] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)

    def note(self, name: str, args: Any, kwargs: Any, here: list[OnDevice], goes: torch.device | None) -> None:
        """For a function, before it runs; `operations` are noted after it."""
        first = args[0] if args else None
        if (
            name in READS
            or (goes is not None and goes.type == "cpu" and here)
            or (name == "repeat_interleave" and any(isinstance(each, Tensor) for each in (*args[1:], *kwargs.values())))
            or (name == "where" and len(args) == 1)
        ):
            self.waits.append(name)
        elif name in ("__getitem__", "__setitem__") and isinstance(first, OnDevice):
            indices = tree_flatten(args[1], is_leaf=lambda each: isinstance(each, list))[0]
            masks = [each for each in indices if isinstance(each, OnDevice) and each.dtype == torch.bool]
            lists = [each for each in indices if isinstance(each, list) or is_of_cpu(each)]
            lists += [each for each in args[2:] if is_of_cpu(each)]
            self.waits += [name] * (len(masks) + len(lists))
            self.copies += [name] * len(lists)
        elif (name == "copy_" and isinstance(first, OnDevice) and is_of_cpu(args[1])) or (
            goes is not None and goes.type == "cuda" and (name in ("tensor", "as_tensor") or is_of_cpu(first))
        ):
            self.copied(name, kwargs.get("non_blocking", False))

    def copied(self, name: str, goes_on: bool) -> None:
        self.copies.append(name)
        if not goes_on:
            self.waits.append(name)

    def ran(self, name: str, given: list[Any], found: Any) -> None:
        storages = {each.untyped_storage().data_ptr() for each in map(inner, given) if isinstance(each, Tensor)}
        results = [each for each in tree_flatten(found)[0] if isinstance(each, Tensor)]
        in_place = name in COPIES or name.startswith("__i") or (name.endswith("_") and not name.endswith("__"))
        if in_place or any(each.untyped_storage().data_ptr() not in storages for each in results):
            self.operations.append(name)


READS = {
    *("cpu", "tolist", "item", "numpy", "nonzero", "argwhere", "masked_select", "unique", "equal", "allclose"),
    *("bincount", "__bool__", "__int__", "__float__", "__index__", "__contains__"),
}
"""Functions whose result, or its size, the host reads."""


def is_of_cpu(value: Any) -> bool:
    return isinstance(value, Tensor) and not isinstance(value, OnDevice)


class OnDevice(Tensor):
    """`held` is a tensor of the CPU with its numbers."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> OnDevice:
        sizes = {"strides": held.stride(), "dtype": held.dtype, "device": DEVICE}
        made: OnDevice = Tensor._make_wrapper_subclass(cls, held.size(), requires_grad=False, **sizes)
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise Mixed(f"{func}: reached the device past the functions of torch")


class Pretended(TorchFunctionMode):
    def __init__(self, traffic: Traffic) -> None:
        super().__init__()
        self.traffic = traffic

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "__get__" and getattr(func.__self__, "__name__", "") not in VIEWS:
            return func(*args, **kwargs)  # what the tensor says of itself, its device above all
        if name == "__set__":
            return func(*args, **kwargs)
        args, kwargs, goes = placed(name, args, kwargs)
        given = tree_flatten((args, kwargs))[0]
        here = [each for each in given if isinstance(each, OnDevice)]
        check(name, args, given, here)
        on_device = bool(here) if goes is None else goes.type == "cuda"
        if here or on_device:
            self.traffic.note(name, args, kwargs, here, goes)
        found = func(*tree_map(inner, args), **tree_map(inner, kwargs))
        if on_device:
            self.traffic.ran(name, given, found)
        if not on_device or name in ("tolist", "item"):
            return found
        owners = {id(each.held): each for each in here}  # what was written in place is what was given
        if name == "__iter__":
            return iter([outer(each, owners) for each in found])
        return tree_map(lambda each: outer(each, owners), found)


def inner(value: Any) -> Any:
    return value.held if isinstance(value, OnDevice) else value


def outer(value: Any, owners: dict[int, OnDevice]) -> Any:
    if not isinstance(value, Tensor) or isinstance(value, OnDevice):
        return value
    own = owners.get(id(value))
    return OnDevice(value) if own is None else own


def placed(name: str, args: Any, kwargs: Any) -> tuple[Any, Any, torch.device | None]:
    """The arguments without the device that the result is to lie on, and that device."""
    if name == "to" and len(args) > 1 and isinstance(args[1], Tensor):
        goes = args[1].device
        return (args[0], goes_dtype(args[1]), *args[2:]), kwargs, goes
    if name == "to" and len(args) > 1 and isinstance(args[1], torch.device | str):
        args, kwargs = (args[0], *args[2:]), {**kwargs, "device": args[1]}
    if name == "to" and len(args) > 1 and isinstance(args[1], torch.dtype) and "device" in kwargs:
        args, kwargs = (args[0], *args[2:]), {**kwargs, "dtype": args[1]}
    if name in ("cpu", "cuda"):
        return args[:1], {}, torch.device(name)
    if kwargs.get("device") is None:
        return args, kwargs, None
    goes = torch.device(kwargs["device"])
    kwargs = {**kwargs, "device": torch.device("cpu")}
    if name == "to":
        # A copy, as one between devices is.
        kwargs["copy"] = isinstance(args[0], OnDevice) != (goes.type == "cuda")
    return args, kwargs, goes


def goes_dtype(like: Tensor) -> torch.dtype:
    return like.dtype


def check(name: str, args: Any, given: list[Any], here: list[OnDevice]) -> None:
    """Raises Mixed for what CUDA refuses."""
    if not here:
        return
    if name == "numpy":
        raise Mixed("numpy: of a tensor on cuda")
    there = [each for each in given if isinstance(each, Tensor) and not isinstance(each, OnDevice)]
    if name in ("__getitem__", "__setitem__"):
        indices = [each for each in tree_flatten(args[1])[0] if isinstance(each, Tensor)]
        if not isinstance(args[0], OnDevice) and any(isinstance(each, OnDevice) for each in indices):
            raise Mixed(f"{name}: a tensor of the CPU is indexed by one on cuda")
        there = [each for each in args[2:] if indices and not isinstance(each, OnDevice | int | float | bool)]
    elif name in COPIES:
        there = []
    if mixed := [tuple(each.shape) for each in there if each.dim()]:
        raise Mixed(f"{name}: tensors on cuda and on the CPU, {mixed}")
    if not torch.are_deterministic_algorithms_enabled():
        return
    floats = any(each.is_floating_point() for each in here)
    weighed = name == "bincount" and len(here) > 1
    if (name in SUMS and floats) or weighed or name == "put_" or (name == "median" and len(args) > 1):
        raise Mixed(f"{name}: has no deterministic kernel on CUDA")


def carried(value: Any) -> Any:
    """What was calibrated, on the device."""
    if isinstance(value, Tensor):
        return OnDevice(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(carried, value))
    return value


def moved(model: Any) -> Any:
    """A tiny model whose weights and statistics lie on the device."""
    for module in model.network.modules():
        for own in (module._parameters, module._buffers):
            for name, tensor in list(own.items()):
                if tensor is not None:
                    own[name] = OnDevice(tensor.detach())
    return model._replace(statistics={name: carried(each) for name, each in model.statistics.items()})


def gumbel_kernel(traffic: Traffic) -> Any:
    """In place of the compiled kernel: numpy's generator, one stream for each pair of keys, as one operation."""

    def compute(tokens: Tensor, keys: Tensor, other_keys: Tensor) -> Tensor:
        traffic.operations.append("gumbel")
        unsigned = (inner(part).flatten().numpy().view(np.uint64) for part in (keys, other_keys))
        streams = [np.random.Philox(key=int(low) + (int(high) << 64)) for low, high in zip(*unsigned, strict=True)]
        noise = np.stack([sampling.gumbel(each.random_raw(tokens.shape[0])) for each in streams])
        return OnDevice(torch.from_numpy(noise.view(np.int64)))

    return compute


@contextlib.contextmanager
def pretended() -> Iterator[Traffic]:
    """With deterministic algorithms, as the executor sets them."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        traffic = Traffic()
        with mock.patch.object(sampling, "gumbel_kernel", return_value=gumbel_kernel(traffic)), Pretended(traffic):
            yield traffic
    finally:
        torch.use_deterministic_algorithms(before)
