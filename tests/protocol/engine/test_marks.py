"""A mark ends the thinking: no event fires any more, and the lane gets room for the rest of its answer."""

import pytest
import torch
from plain_forward import of_lane, plain_forward
from sampled import sampled
from test_max_concurrent import SLOT as IN_ALL_HEADS
from test_memory import SLOT, rows
from tiny_networks import HEADS, Adaptive, Noise, Offsets, all_kept, answer, drawn, lane, noted, outside, tiny

from policies import Cadence, Schedule
from policies.signals import AttentionSums
from protocol.engine import Request, batch, max_concurrent

CADENCES = [Cadence(interval=interval, slack=slack) for interval in (1, 4) for slack in (True, False)]


def marked_at(token_ids, place):
    """A token that stands at this place of a text for the first time, or at the nearest such place."""
    first = [at for at, token in enumerate(token_ids, 1) if token not in token_ids[: at - 1]]
    place = min((at for at in first if at >= place), default=first[-1])
    return token_ids[place - 1], place


def lived(context, query, budget, cadence, new, first_event, mark):
    """Slots of a head after every forward, and the steps of its events: by hand, token by token."""
    holds = min(context, budget)
    held, events = [holds], [0]
    for step, fed in enumerate(([query] if query else [0]) + [1] * (new - 1)):
        holds += fed
        full = holds >= budget + cadence.interval
        due = full if cadence.slack else holds > budget and step % cadence.interval == 0
        if due and fed and first_event <= step < mark:
            events.append(step)
            holds = budget
        if fed:
            held.append(holds)
    return held, events


@pytest.mark.parametrize(("place", "asked"), sampled([1, 7, 8, 16], [(0, 1), (3, 0), (9, 11)], of=3))
def test_events_fire_before_the_mark_alone(place, asked):
    query, first_event = asked
    """Up to the mark a lane is the one without it; then it grows by one slot a token, which all fit."""
    model, prompt, settings = tiny(), outside(30, query), {"max_new_tokens": 16, "first_event": first_event}
    lanes = [lane(drawn(1, Adaptive(), cadence), 8) for cadence in CADENCES]
    for given, before in zip(lanes, answer(model, prompt, lanes, **settings), strict=True):
        token, at = marked_at(before.token_ids, place)
        (outcome,) = answer(model, prompt, [given], marks={token}, **settings)
        held, events = lived(30, query, 8, given.policy.cadence, 16, first_event, at)
        assert outcome.token_ids[:at] == before.token_ids[:at]
        assert [total / HEADS for total in outcome.slots] == held
        assert [step for step, *_ in outcome.events] == events
        assert len(outcome.granted) == len(events)
        assert all(a * SLOT <= b for a, b in zip(outcome.slots, outcome.allocated, strict=True))


def test_a_life_written_out_agrees_with_the_count():
    cadence = Cadence(interval=2)
    assert lived(30, 0, 8, cadence, 8, 1, 99) == ([8, 9, 8, 9, 8, 9, 8, 9], [0, 2, 4, 6])
    assert lived(30, 0, 8, cadence, 8, 1, 5) == ([8, 9, 8, 9, 8, 9, 10, 11], [0, 2, 4])
    assert lived(30, 0, 8, cadence, 8, 1, 4) == ([8, 9, 8, 9, 10, 11, 12, 13], [0, 2])
    assert lived(30, 0, 8, cadence, 8, 1, 1) == ([8, 9, 10, 11, 12, 13, 14, 15], [0])


@pytest.mark.parametrize("routing", [None, Offsets(), Adaptive()], ids=["uniform", "offsets", "adaptive"])
def test_what_is_said_after_the_mark_is_what_the_kept_slots_give(routing):
    """Beside lanes that never come to it, and move to other places meanwhile."""
    policy, prompt, model = drawn(2, routing, Cadence(interval=3)), outside(30, 4), tiny()
    (before,) = answer(model, prompt, [lane(policy, 10)], max_new_tokens=24)
    token, at = marked_at(before.token_ids, 8)
    policy.notes.clear()
    others = [lane(drawn(3, cadence=Cadence(interval=2)), 10), lane(all_kept())]
    given = [others[0], lane(policy, 10), others[1]]
    _, outcome, _ = answer(model, prompt, given, max_new_tokens=24, marks={token})
    text = prompt.context + prompt.query + outcome.token_ids[:-1]
    plain = plain_forward(model.network, text, of_lane(policy, len(text)).allowed)
    said = plain.logits[len(prompt.context) + len(prompt.query) - 1 :].argmax(-1).tolist()
    assert tuple(said) == outcome.token_ids
    assert [step for step, *_ in outcome.events[1:]] == [step for step, *_ in before.events[1:] if step < at]
    assert len(before.events) > len(outcome.events) > 1


def test_a_lane_grows_at_its_mark_to_what_it_may_still_say_and_not_before():
    """Heads of 10 slots and room for 4 more, until the mark; 40 new tokens in all."""
    given = [lane(drawn(1, cadence=Cadence(interval=4)), 10)]
    (before,) = answer(tiny(), outside(40), given, max_new_tokens=40)
    assert before.allocated == (rows(16),) * 40
    token, at = marked_at(before.token_ids, 6)
    assert at == 6  # so that the lane holds 12 slots of a head when it has fed it, and 34 are to come
    (outcome,) = answer(tiny(), outside(40), given, max_new_tokens=40, marks={token})
    assert outcome.allocated == (rows(16),) * 6 + (rows(48),) * 34
    assert outcome.slots[6] == 12 * HEADS
    assert outcome.slots[-1] == (12 + 33) * HEADS


@pytest.mark.parametrize("policy", [all_kept(), drawn(1)], ids=["full", "without an interval"])
def test_a_lane_without_events_while_decoding_knows_no_mark(policy):
    given = [lane(policy, 10 if policy.evicts else None)]
    (before,) = answer(tiny(), outside(30), given, max_new_tokens=12)
    (after,) = answer(tiny(), outside(30), given, max_new_tokens=12, marks=set(before.token_ids))
    assert before._replace(seconds=0) == after._replace(seconds=0)


def test_a_mark_in_the_prompt_is_none():
    given, prompt = [lane(drawn(1, cadence=Cadence(interval=2)), 8)], outside(30, 3)
    (before,) = answer(tiny(), prompt, given, max_new_tokens=12)
    marks = set(prompt.context + prompt.query) - set(before.token_ids)
    (after,) = answer(tiny(), prompt, given, max_new_tokens=12, marks=marks)
    assert len(marks) > 10
    assert before._replace(seconds=0) == after._replace(seconds=0)


def test_a_policy_carries_nothing_once_its_lane_answers(monkeypatch):
    watched = []
    step_of = batch.build_step

    def noting(*given):
        made = step_of(*given)
        watched.append(len(made.watches))
        return made

    monkeypatch.setattr(batch, "build_step", noting)
    policy = noted(Noise(1, frozenset({AttentionSums()})), cadence=Cadence(interval=4))
    (before,) = answer(tiny(), outside(30), [lane(policy, 8)], max_new_tokens=16)
    token, at = marked_at(before.token_ids, 6)
    watched.clear()
    (after,) = answer(tiny(), outside(30), [lane(policy, 8)], max_new_tokens=16, marks={token})
    assert watched == [1] * at + [0] * (15 - at)
    # Its most is that of 12 slots, which it held at its events already.
    assert after.state_bytes == before.state_bytes > 0


@pytest.mark.parametrize(("cadence", "place"), sampled([*CADENCES, Schedule(interval=4)], [1, 3, 9], of=3))
def test_no_lane_holds_more_than_what_it_is_taken_to_hold(cadence, place, monkeypatch):
    given, prompt = lane(drawn(1, cadence=cadence), 8), outside(30, 2)
    (before,) = answer(tiny(), prompt, [given], max_new_tokens=16)
    token, _ = marked_at(before.token_ids, place)
    (outcome,) = answer(tiny(), prompt, [given], max_new_tokens=16, marks={token})
    taken = []

    def noting(device, each, lanes):
        taken.append(each // (HEADS * SLOT))
        return lanes

    monkeypatch.setattr(max_concurrent, "lanes_that_fit", noting)
    network, requests = tiny().network, [Request("p", prompt, (given,))]
    max_concurrent.max_concurrent_for(network, requests, 16, marks={token})
    max_concurrent.max_concurrent_for(network, requests, 16)
    assert max(outcome.slots) <= HEADS * taken[0]
    assert taken[0] == cadence.largest_budget(8) + 2 + 16
    assert taken[1] == cadence.largest_budget(8) + 2 + cadence.interval
    assert IN_ALL_HEADS == HEADS * SLOT


def test_an_answering_lane_is_not_written_over_by_its_neighbours():
    """Eight lanes of one pool, each with its mark at another step: they leave it one after the other."""
    model, prompt = tiny(), outside(30)
    policies = [drawn(draw, cadence=Cadence(interval=3)) for draw in range(8)]
    given = [lane(policy, 8) for policy in policies]
    before = answer(model, prompt, given, max_new_tokens=20)
    said = {before[0].token_ids[9], before[1].token_ids[14]}
    for policy in policies:
        policy.notes.clear()
    outcomes = answer(model, prompt, given, max_new_tokens=20, marks=said)
    for policy, outcome in zip(policies, outcomes, strict=True):
        text = prompt.context + outcome.token_ids[:-1]
        plain = plain_forward(model.network, text, of_lane(policy, len(text)).allowed)
        assert tuple(plain.logits[29:].argmax(-1).tolist()) == outcome.token_ids
    assert len({len(outcome.events) for outcome in outcomes}) > 1


def test_marks_are_no_reason_to_compute_otherwise():
    given = [lane(drawn(1, cadence=Cadence(interval=4)), 10)]
    (plain,), (never,) = (
        answer(tiny(), outside(40), given, max_new_tokens=12, marks=marks) for marks in ((), {torch.iinfo(int).max})
    )
    assert plain._replace(seconds=0) == never._replace(seconds=0)
