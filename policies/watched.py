"""Observe a policy: pass each of its eviction steps to a callback without changing them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TypeAlias

from policies.contract import View
from policies.policy import Event, Policy

__all__ = ["Told", "watched"]

Told: TypeAlias = Callable[[View, int, Event], None]
"""Called after an eviction step with the view, the budget per KV head and layer, and the eviction."""


@dataclass(frozen=True)
class Watched(Policy):
    """A policy with the parts of `inner`, to which it delegates evictions. Lanes are not batched."""

    inner: Policy = field(kw_only=True)
    told: Told = field(kw_only=True, compare=False)

    def event(self, view: View, budget: int) -> Event:
        event = self.inner.event(view, budget)
        self.told(view, budget, event)
        return event


def watched(policy: Policy, told: Told) -> Policy:
    """Return the policy with a callback after each eviction step. Equality ignores the callback."""
    parts = {part.name: getattr(policy, part.name) for part in fields(Policy)}
    return Watched(**parts, inner=policy, told=told)
