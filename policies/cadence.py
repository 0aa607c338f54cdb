"""When an event fires."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Cadence"]


@dataclass(frozen=True)
class Cadence:
    """at_prefill: one event, after the last token of the context; without it no event ever fires."""

    at_prefill: bool = True

    @classmethod
    def never(cls) -> Cadence:
        return cls(at_prefill=False)
