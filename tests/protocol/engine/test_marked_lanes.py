"""Marked lines of an answer: what a policy is told of them, and lanes that pin them."""

from dataclasses import replace

import pytest
import torch
from plain_forward import of_lane, plain_forward
from tiny_networks import all_kept, answer, drawn, lane, outside, tiny

from policies import Adaptive, Cadence, Mark, Marked, PerHead, Preserve, Protect, StateLines
from protocol import engine

STATE = Mark("State:")


def pinning(draw, cadence, routing=None, **parts):
    return drawn(draw, routing or PerHead(), cadence, decoding=StateLines(), **parts)


def lines_in(answer, first, mark):
    """By hand: from a token that the length of the mark divides, up to the next such one or five tokens."""
    found, place = [], 0
    while place < len(answer):
        if answer[place] % len(mark.text):
            place += 1
            continue
        stop = place + 1
        while stop < len(answer) and stop < place + 5 and answer[stop] % len(mark.text):
            stop += 1
        found.append(range(first + place, first + stop))
        place = stop
    return tuple(found)


@pytest.mark.parametrize(
    ("routing", "query"), [(PerHead(), 4), (Adaptive(floor=0.5), 0)], ids=["equal heads", "ragged heads"]
)
def test_lanes_that_pin_lines_say_what_the_slots_that_they_kept_give(routing, query):
    """In company, after many events, against one forward in float64 that masks what was evicted."""
    model, prompt = tiny(), outside(30, query)
    policy = pinning(2, Cadence(interval=3), routing)
    other = pinning(5, Cadence(interval=4, slack=False))
    given = [lane(other, 14), lane(policy, 14), lane(all_kept())]
    _, outcome, _ = answer(model, prompt, given, max_new_tokens=28)
    assert isinstance(outcome, engine.Outcome), outcome
    text = prompt.context + prompt.query + outcome.token_ids[:-1]
    plain = plain_forward(model.network, text, of_lane(policy, len(text)).allowed)
    said = plain.logits[len(prompt.context) + len(prompt.query) - 1 :].argmax(-1).tolist()
    assert tuple(said) == outcome.token_ids
    assert len(outcome.events) > 5
    first = 30 + query
    pinned = 0
    for view, kept in policy.notes[1:]:
        said = tuple(view.token_ids.tolist())
        assert view.lines == {STATE: lines_in(said[first:], first, STATE)}
        pins = policy.decoding.pins(view, 14)
        assert (kept | ~pins).all()
        pinned += int(pins.sum(-1).max())
    assert pinned > 20
    assert policy.notes[0][0].lines == {STATE: ()}  # the prompt has such tokens, and no line


def test_a_decoding_and_a_protection_may_look_for_lines_of_their_own():
    model, prompt, other = tiny(), outside(20, 2), Mark("Known:-")
    policy = pinning(1, Cadence(interval=2), protect=Marked(Preserve(prompt=False, recent=1), other.text))
    (outcome,) = answer(model, prompt, [lane(policy, 24)], max_new_tokens=30)
    assert isinstance(outcome, engine.Outcome), outcome
    view, kept = policy.notes[-1]
    said = tuple(view.token_ids[22:].tolist())
    assert view.lines == {mark: lines_in(said, 22, mark) for mark in (STATE, other)}
    assert all(len(lines) > 1 for lines in view.lines.values())
    own = view.lines[other][-1]
    held = [position in own for position in view.stored[0, 0].tolist()]
    assert kept[0, 0][torch.tensor(held)].all()


def test_a_text_is_read_where_somebody_looks_for_marks_and_nowhere_else():
    class Unread(type(tiny())):
        def lines(self, token_ids, mark):
            raise AssertionError("nobody looks for marks")

    model = Unread(*tiny())
    cadence = Cadence(interval=2)
    quiet = replace(pinning(1, cadence), decoding=StateLines(pinned=False))
    plain = drawn(1, cadence=cadence, protect=Protect(0, 2))
    for outcome in answer(model, outside(20), [lane(quiet, 8), lane(plain, 8)], max_new_tokens=9):
        assert isinstance(outcome, engine.Outcome), outcome
        assert len(outcome.events) > 2
    with pytest.raises(AssertionError, match="nobody looks for marks"):
        answer(model, outside(20), [lane(pinning(1, cadence), 8)], max_new_tokens=9)
