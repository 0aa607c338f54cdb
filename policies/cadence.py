"""The eviction schedule: when an eviction step fires, and how many slots it leaves."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

Fires: TypeAlias = Literal["never", "prefill", "interval", "slack", "every", "own"]

Load: TypeAlias = Literal["front", "back", "inverted"]
NEVER = sys.maxsize


@dataclass(frozen=True)
class Cadence:
    """The eviction schedule of a policy.

    at_prefill: evict after the last token of the context; without it no eviction step ever fires.
    interval: decode steps between eviction steps, None for no eviction while decoding.
    slack: evict once the lane holds budget + interval slots (the buffer of TriAttention and R-KV, so a lane
        holds more than its budget between eviction steps); without slack, evict every `interval` steps if
        the lane holds more than its budget.
    """

    at_prefill: bool = True
    interval: int | None = None
    slack: bool = True

    in_blocks: ClassVar[bool] = False
    """Whether eviction steps also fire before the last token of the context."""

    @property
    def parked_caches(self) -> int:
        """The most caches that a lane stores besides the active one."""
        return 0

    @property
    def fires(self) -> Fires:
        """When eviction steps fire: "never"; once the "prefill" is read, and not while decoding; or also by the
        rule of `due`, with "slack", without it at an "interval", or at "every" interval whatever the cache
        size. A class that overrides `due` has its "own" rule, unless it declares another word here.
        """
        if not self.at_prefill:
            return "never"
        if self.interval is None:
            return "prefill"
        if type(self).due is not Cadence.due:
            return "own"
        return "slack" if self.slack else "interval"

    @property
    def grants_budget(self) -> bool:
        """Whether every eviction step may leave the registered budget, and no other number."""
        return type(self).budgets is Cadence.budgets and type(self).budget is Cadence.budget

    def __post_init__(self) -> None:
        if self.interval is not None and self.interval < 1:
            raise ValueError(f"interval must be 1 or more, not {self.interval}")
        if self.interval is not None and not self.at_prefill:
            raise ValueError(
                "interval needs at_prefill, because a policy that never evicts has no eviction steps; set "
                "at_prefill to true"
            )

    @classmethod
    def never(cls) -> Cadence:
        return cls(at_prefill=False)

    def budgets(self, budget: int) -> tuple[int, ...]:
        """Return the slots that the eviction steps of each round may leave, in order. A round is `interval`
        steps; the last round is unlimited. The mean is at most the registered `budget`: the engine fails a
        lane that is granted more, or any other number.
        """
        return (budget,)

    def budget(self, budget: int, step: int) -> int:
        """Return the slots that an eviction step may leave once `step` new tokens have been fed."""
        rounds = self.budgets(budget)
        return rounds[0 if self.interval is None else min(step // self.interval, len(rounds) - 1)]

    def largest_budget(self, budget: int) -> int:
        """Return the largest of `budgets`."""
        return max(self.budgets(budget))

    def smallest_budget(self, budget: int) -> int:
        """Return the smallest of `budgets`."""
        return min(self.budgets(budget))

    def due(self, step: int, slots_per_head: float, budget: int) -> bool:
        """Whether to evict after `step` new tokens if heads hold `slots_per_head` slots on average.

        budget: the slots that the eviction step may leave.
        """
        if self.interval is None or slots_per_head <= budget:
            return False
        return slots_per_head >= budget + self.interval if self.slack else step % self.interval == 0

    def next_due(self, step: int, slots_per_head: float, budget: int) -> int:
        """Return a step before which no eviction fires, for a lane whose heads hold `slots_per_head` slots at `step`
        and gain one slot per step. budget: the registered one. A subclass that changes `due` overrides this too.
        """
        if self.interval is None:
            return NEVER
        if self.slack:
            return step + max(1, int(self.smallest_budget(budget) + self.interval - slots_per_head))
        return step + self.interval - step % self.interval


@dataclass(frozen=True)
class Schedule(Cadence):
    """Budgets that vary around the registered one from round to round; a round is `interval` steps.

    The gate `schedule` of Sun and Harn, which they describe by "front-loaded", "back-loaded" and "a
    budget-step inversion test". Our readings, for budget b and A = amplitude * b:
        front     b + A in the first round, falling by equal steps to b - A in the last
        back      the other way round
        inverted  one step, the low half first: b - A, and b + A from the middle round on
    Budgets are rounded down, so their mean may be below b by less than one slot: for b = 64 it is 63.6
    (front, back) and 64 (inverted). The last round lasts until the answer ends. An eviction step fires at the
    end of every round if a head holds more than the budget of the next round, without slack: with slack, one
    step to a lower budget would trigger all remaining ones at once. Rounds without an eviction count. Without
    an interval there are no rounds, and the budget is b. Memory is compared as measured: a lane never
    recovers what an early low budget has evicted.

    amplitude: a fraction of the budget, more than 0 and less than 1. rounds: the expected number of eviction
    steps of an answer, an even number; 8 is ours.
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

    def _tilt(self, round_index: int) -> float:
        """Return the deviation of a round from the registered budget, -1 to 1 of the amplitude."""
        if self.load == "inverted":
            return -1 if 2 * round_index < self.rounds else 1
        front = 1 - 2 * round_index / (self.rounds - 1)
        return front if self.load == "front" else -front

    def due(self, step: int, slots_per_head: float, budget: int) -> bool:
        return self.interval is not None and step % self.interval == 0 and slots_per_head > budget

    def next_due(self, step: int, slots_per_head: float, budget: int) -> int:
        return NEVER if self.interval is None else step + self.interval - step % self.interval
