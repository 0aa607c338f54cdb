"""Observe a policy: pass each of its eviction steps to a callback without changing them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TypeAlias

from policies.contract import View
from policies.policy import Eviction, Policy

Observer: TypeAlias = Callable[[View, int, Eviction], None]
"""Called after an eviction step with the view, the budget per KV head and layer, and the eviction."""


@dataclass(frozen=True)
class ObservedPolicy(Policy):
    """A policy with the parts of `inner`, to which it delegates evictions. Lanes are not batched."""

    inner: Policy = field(kw_only=True)
    observer: Observer = field(kw_only=True, compare=False)

    def evict(self, view: View, budget: int) -> Eviction:
        event = self.inner.evict(view, budget)
        self.observer(view, budget, event)
        return event


def observe(policy: Policy, observer: Observer) -> Policy:
    """Return the policy with a callback after each eviction step. Equality ignores the callback."""
    parts = {part.name: getattr(policy, part.name) for part in fields(Policy)}
    return ObservedPolicy(**parts, inner=policy, observer=observer)
