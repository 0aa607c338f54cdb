"""When an event fires."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Cadence"]


@dataclass(frozen=True)
class Cadence:
    """at_prefill: one event after the last token of the context; without it no event ever fires.

    interval: decode steps between events, None for no event while decoding.
    slack: an event fires once the lane holds budget + interval slots (TriAttention's and R-KV's buffer, so
        that a lane holds more than its budget between events); without slack it fires every `interval`
        steps, whenever the lane holds more than its budget.
    """

    at_prefill: bool = True
    interval: int | None = None
    slack: bool = True

    def __post_init__(self) -> None:
        if self.interval is not None and self.interval < 1:
            raise ValueError(f"interval must be 1 or more, not {self.interval}")
        if self.interval is not None and not self.at_prefill:
            raise ValueError("interval needs at_prefill: a policy that never evicts has no events")

    @classmethod
    def never(cls) -> Cadence:
        return cls(at_prefill=False)

    def due(self, step: int, held: float, budget: int) -> bool:
        """Whether an event fires when `step` new tokens have been fed and a head holds `held` on average."""
        if self.interval is None or held <= budget:
            return False
        return held >= budget + self.interval if self.slack else step % self.interval == 0
