"""A policy that is watched: it keeps what it would, and each of its events is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TypeAlias

from policies.contract import View
from policies.policy import Event, Policy

__all__ = ["Told", "watched"]

Told: TypeAlias = Callable[[View, int, Event], None]
"""Of an event: what the lane saw, the slots per KV head and layer that might be left, and what was kept."""


@dataclass(frozen=True)
class Watched(Policy):
    """The parts of `inner`, whose events it is asked for. Each lane is asked alone, with its own view."""

    inner: Policy = field(kw_only=True)
    told: Told = field(kw_only=True, compare=False)

    def event(self, view: View, budget: int) -> Event:
        event = self.inner.event(view, budget)
        self.told(view, budget, event)
        return event


def watched(policy: Policy, told: Told) -> Policy:
    """The policy, which tells of each event after it has decided. Equal whoever is told."""
    parts = {part.name: getattr(policy, part.name) for part in fields(Policy)}
    return Watched(**parts, inner=policy, told=told)
