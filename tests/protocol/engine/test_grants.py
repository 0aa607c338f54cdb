"""What a cadence grants is held against the registered budget, and recorded."""

from dataclasses import dataclass, replace

import pytest
from tiny_networks import HEADS, all_kept, answer, drawn, lane, outside, tiny

from policies import Cadence, Schedule
from protocol.engine import LaneFailure, Outcome
from protocol.engine.prefill_fan_out import granted_budget


@dataclass(frozen=True)
class Generous(Cadence):
    """Two slots more than were registered, without saying so."""

    since: int = 0

    def budget(self, budget: int, step: int) -> int:
        return budget + 2 if step >= self.since else budget


@dataclass(frozen=True)
class Rich(Cadence):
    """Says so."""

    def budgets(self, budget: int) -> tuple[int, ...]:
        return (budget - 1, budget + 3)


def test_130_slots_for_128_are_refused_by_name():
    with pytest.raises(ValueError, match="Generous grants 130 slots at step 0, but declares 128 there"):
        granted_budget(Generous(), 128, 0)


@pytest.mark.parametrize("since", [0, 6])
def test_a_grant_above_the_registered_budget_fails_its_lane_and_no_other(since):
    greedy = drawn(1, cadence=Generous(interval=3, since=since))
    lanes = [lane(greedy, 10), lane(drawn(1, cadence=Cadence(interval=3)), 10)]
    failed, sound = answer(tiny(), outside(30, 2), lanes, max_new_tokens=12)
    assert failed == LaneFailure(
        f"Generous grants 12 slots at step {since}, but declares 10 there (the registered budget is 10)"
    )
    assert isinstance(sound, Outcome)


def test_rounds_that_are_richer_than_the_registered_budget_on_average_fail_their_lane():
    (failed,) = answer(tiny(), outside(30, 0), [lane(drawn(1, cadence=Rich()), 10)], max_new_tokens=2)
    assert failed == LaneFailure(
        "Rich declares [9, 13] slots for its rounds, but the registered budget is 10; write at least 1 for "
        "each round, with a mean of at most the budget"
    )


@pytest.mark.parametrize("rounds", [(), (0, 2)])
def test_rounds_without_slots_are_refused(rounds):
    class Empty(Cadence):
        def budgets(self, budget: int) -> tuple[int, ...]:
            return rounds

    with pytest.raises(ValueError, match="Empty declares"):
        granted_budget(Empty(), 8, 0)


def test_what_each_event_was_granted_is_kept_beside_it():
    # 10 slots, half of them up and down: 15 in the first two of four rounds (of 3 steps each), then 5.
    schedule = Schedule(interval=3, load="inverted", amplitude=0.5, rounds=4)
    front = replace(schedule, load="front")
    lanes = [lane(drawn(1, cadence=each), 10) for each in (schedule, front, Cadence(interval=3), Cadence())]
    outcomes = answer(tiny(), outside(30, 0), lanes, max_new_tokens=17)
    found = [[(event[0], one) for event, one in zip(o.events, o.granted, strict=True)] for o in outcomes]
    assert found[0] == [(0, 5), (3, 5), (15, 15)]  # a head holds 5, 8, 11 and 14 until step 15
    assert found[1] == [(0, 15), (3, 11), (6, 8), (9, 5), (12, 5), (15, 5)]  # 15, 11.67, 8.33, 5
    assert found[2] == [(0, 10), (3, 10), (6, 10), (9, 10), (12, 10), (15, 10)]
    assert found[3] == [(0, 10)]
    for outcome in outcomes:
        assert [after / HEADS for _, _, after in outcome.events] == list(outcome.granted)


def test_a_lane_that_never_evicts_is_granted_nothing():
    (outcome,) = answer(tiny(), outside(30, 0), [lane(all_kept())], max_new_tokens=3)
    assert (outcome.events, outcome.granted) == ((), ())
