"""Copies for parts of a policy that are not of this project: what they write into tensors changes no other lane."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from policies import Policy, View

T = TypeVar("T")


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


def _is_ours(kind: type[Any]) -> bool:
    """Return whether a class is one of this project's; what its `__module__` says is not believed."""
    module, name = kind.__module__, kind.__qualname__
    return module.startswith(("policies.", "protocol.presses.")) and vars(sys.modules[module]).get(name) is kind
