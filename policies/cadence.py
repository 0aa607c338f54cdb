"""When an event fires, and how many slots it leaves."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

__all__ = ["Cadence", "Schedule"]

Load: TypeAlias = Literal["front", "back", "inverted"]
NEVER = sys.maxsize


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

    in_blocks: ClassVar[bool] = False
    """Whether events fire before the last token of the context too."""

    def __post_init__(self) -> None:
        if self.interval is not None and self.interval < 1:
            raise ValueError(f"interval must be 1 or more, not {self.interval}")
        if self.interval is not None and not self.at_prefill:
            raise ValueError("interval needs at_prefill: a policy that never evicts has no events")

    @classmethod
    def never(cls) -> Cadence:
        return cls(at_prefill=False)

    def budgets(self, budget: int) -> tuple[int, ...]:
        """What of the registered budget the events of each round may leave, in order. A round is `interval`
        steps, and the last one lasts. Their mean is at most `budget`: the engine fails a lane that is granted
        more, or anything else than this.
        """
        return (budget,)

    def budget(self, budget: int, step: int) -> int:
        """What an event may leave once `step` new tokens have been fed."""
        rounds = self.budgets(budget)
        return rounds[0 if self.interval is None else min(step // self.interval, len(rounds) - 1)]

    def most(self, budget: int) -> int:
        """The largest of these."""
        return max(self.budgets(budget))

    def least(self, budget: int) -> int:
        """The smallest of these."""
        return min(self.budgets(budget))

    def due(self, step: int, held: float, budget: int) -> bool:
        """Whether an event fires when `step` new tokens have been fed and a head holds `held` on average.

        budget: what the event may leave.
        """
        if self.interval is None or held <= budget:
            return False
        return held >= budget + self.interval if self.slack else step % self.interval == 0

    def next_due(self, step: int, held: float, budget: int) -> int:
        """A step before which no event fires, for a lane whose heads hold `held` at `step` and one slot more
        each step. budget: the registered one. A class that fires otherwise says this anew, or is asked at
        every step.
        """
        if self.interval is None:
            return NEVER
        if self.slack:
            return step + max(1, int(self.least(budget) + self.interval - held))
        return step + self.interval - step % self.interval


@dataclass(frozen=True)
class Schedule(Cadence):
    """Budgets that change from round to round, a round being `interval` steps, around the registered one.

    The gate `schedule` of Sun and Harn, which they describe by "front-loaded", "back-loaded" and "a
    budget-step inversion test". Our readings, for budget b and A = amplitude * b:
        front     b + A in the first round, falling by equal steps to b - A in the last
        back      the other way round
        inverted  one step, the low half first: b - A, and b + A from the middle round on
    Budgets are rounded down, so that their mean may fall short of b, by less than one slot: for b = 64 it is
    63.6 (front, back) and 64 (inverted). The last round lasts until the answer ends. An event fires at the
    end of every round in which a head holds more than the budget of the next: with slack, an event that falls
    below the one before would be followed by all of the remaining ones at once. Rounds in which nothing is
    evicted count. Without an interval there are no rounds, and the budget is b. The mean that counts is the
    measured one: a lane never gets back what an early low budget has evicted.

    amplitude: of the budget, more than 0 and less than 1. rounds: how many events the answers are expected to
    have, an even number; 8 is ours.
    """

    load: Load = "front"
    amplitude: float = 0.5
    rounds: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.load not in get_args(Load):
            raise ValueError(f"load must be one of {', '.join(get_args(Load))}, not {self.load!r}")
        if not 0 < self.amplitude < 1 or self.rounds < 2 or self.rounds % 2:
            raise ValueError(
                f"amplitude must be between 0 and 1 and rounds even, not {self.amplitude} and {self.rounds}"
            )

    def budgets(self, budget: int) -> tuple[int, ...]:
        if self.interval is None:
            return (budget,)
        tilts = map(self._tilt, range(self.rounds))
        return tuple(max(1, int(budget + self.amplitude * budget * tilt)) for tilt in tilts)

    def _tilt(self, place: int) -> float:
        """Of a round: how far it lies from the registered budget, -1 to 1 of the amplitude."""
        if self.load == "inverted":
            return -1 if 2 * place < self.rounds else 1
        front = 1 - 2 * place / (self.rounds - 1)
        return front if self.load == "front" else -front

    def due(self, step: int, held: float, budget: int) -> bool:
        return self.interval is not None and step % self.interval == 0 and held > budget

    def next_due(self, step: int, held: float, budget: int) -> int:
        return NEVER if self.interval is None else step + self.interval - step % self.interval
