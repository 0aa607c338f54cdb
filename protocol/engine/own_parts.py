"""Parts of a policy that are not of this project: copies of what they see, so that what they write changes no other
lane, and the bytes of what they have the engine keep.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

import torch
from torch import Tensor

from policies import Policy, View

T = TypeVar("T")
_SIZE: dict[type, Callable[[Any], int]] = {
    kind: kind.__sizeof__ for kind in (list, dict, set, tuple, frozenset, str, bytes, bytearray, int, float, deque)
}
CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, torch.dtype, torch.device)


def copy_for(part: object, state: T) -> T:
    """Return a state, a tensor or a (named) tuple of states, with tensors of its own if the part is not ours."""
    if _is_ours(type(part)):
        return state
    copied: T = map_tensors(torch.clone, state)
    return copied


def copy_view(policy: Policy, view: View) -> View:
    """Return the view of a policy, with tensors of its own if one of its parts is not ours."""
    parts = (policy.scoring, policy.selection, policy.routing, policy.cadence, policy.state, policy.decoding)
    if all(_is_ours(type(part)) for part in (*parts, policy.protect, *policy.needs)):
        return view
    signals = {signal: map_tensors(torch.clone, value) for signal, value in view.signals.items()}
    copied: Any = map_tensors(torch.clone, view)
    return View(*copied)._replace(signals=signals)


def map_tensors(change: Callable[[Tensor], Tensor], state: Any) -> Any:
    """Apply `change` to every tensor of a state, which is a tensor or a (named) tuple of states."""
    if isinstance(state, Tensor):
        return change(state)
    if isinstance(state, tuple):
        parts = [map_tensors(change, part) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    return state


def is_plain(state: object) -> bool:
    """Return whether a state is a tensor or a tuple of them, or of a class of ours: nothing of it can be hidden."""
    if type(state) is tuple or (isinstance(state, tuple) and _is_ours(type(state))):
        return all(map(is_plain, state))
    if type(state) is Tensor:
        return not state.__dict__
    return type(state) in (type(None), bool, int, float) or _is_ours(type(state))


def count_reachable_bytes(states: Iterable[object]) -> int:
    """Count the bytes of all that states lead to, whatever they say of themselves: a tensor by its whole storage."""
    waiting, seen, storages, total = [*states], set[int](), dict[int, int](), 0
    while waiting:
        value = waiting.pop()
        if id(value) in seen or issubclass(type(value), CODE) or value is None:
            continue
        seen.add(id(value))
        if issubclass(type(value), Tensor):
            with torch._C.DisableTorchFunctionSubclass():
                storage = Tensor.untyped_storage(value)  # type: ignore[arg-type]
                storages[storage.data_ptr()] = storage.nbytes()
        else:
            total += _SIZE.get(type(value), object.__sizeof__)(value)
        waiting += gc.get_referents(value)
    return total + sum(storages.values())


def _is_ours(kind: type[Any]) -> bool:
    """Return whether a class is one of this project's; what its `__module__` says is not believed."""
    module, name = kind.__module__, kind.__qualname__
    return module.startswith(("policies.", "protocol.presses.")) and vars(sys.modules[module]).get(name) is kind
