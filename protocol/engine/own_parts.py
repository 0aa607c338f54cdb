"""Parts of a policy that are not of this project: what they write changes no other lane, what they keep is counted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

from policies import Eviction, Policy, View
from protocol.engine.own_state import count_reachable_bytes

T = TypeVar("T")


def copy_for(part: object, state: T) -> T:
    """Return a state, a tensor or a (named) tuple of states, with tensors of its own if the part is not ours."""
    if is_ours(type(part)):
        return state
    copied: T = map_tensors(torch.clone, state)
    return copied


def copy_view(policy: Policy, view: View) -> View:
    """Return the view of a policy, with tensors of its own if one of its parts is not ours."""
    if not has_own_part(policy):
        return view
    signals = {signal: map_tensors(torch.clone, value) for signal, value in view.signals.items()}
    copied: Any = map_tensors(torch.clone, view)
    return View(*copied)._replace(signals=signals)


def has_own_part(policy: Policy) -> bool:
    """Return whether some part of a policy is not of this project."""
    parts = (policy.scoring, policy.selection, policy.routing, policy.cadence, policy.state, policy.decoding)
    return not all(is_ours(type(part)) for part in (*parts, policy.protect, *policy.needs))


def map_tensors(change: Callable[[Tensor], Tensor], state: Any) -> Any:
    """Apply `change` to every tensor of a state, which is a tensor or a (named) tuple of states."""
    if isinstance(state, Tensor):
        return change(state)
    if isinstance(state, tuple):
        parts = [map_tensors(change, part) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    return state


def iterate_tensors(state: Any) -> Iterator[Tensor]:
    """Yield every tensor of a state, which is a tensor or a (named) tuple of states."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from iterate_tensors(part)


def count_bytes(state: Any, *, is_own: bool) -> int:
    """Return the bytes of the tensors in a state; if it is of own code, of all that it leads to."""
    if not is_own:
        return sum(tensor.nbytes for tensor in iterate_tensors(state))
    return count_reachable_bytes("the state of a policy", state)


def refuse_hidden_state(policy: Policy, event: Eviction) -> None:
    """Raise ValueError if what an event of a policy that is not ours hands on cannot be counted."""
    if has_own_part(policy):
        count_bytes((event.memory, event.routing_state), is_own=True)


def is_ours(kind: type[Any]) -> bool:
    """Return whether a class is one of this project's; what its `__module__` says is not believed."""
    module, name = kind.__module__, kind.__qualname__
    return module.startswith(("policies.", "protocol.presses.")) and vars(sys.modules[module]).get(name) is kind
