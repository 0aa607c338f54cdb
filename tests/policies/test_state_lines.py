"""Lines that the model is asked for and that are pinned once it wrote them; a protection that sees them."""

import random
from dataclasses import replace

import pytest
import torch
from looped import looped
from policy_prompts import Given, a_prompt, a_view

import policies
from policies import Cadence, Mark, Marked, Policy, Preserve, Protect, StateLines, View
from policies.contract import UnitSelection
from policies.policy import pin_prompt
from policies.protect import newest_lines

STATE = Mark("State:")


def seen(tokens, lines=(), prompt=0, stored=None, **marks):
    """A view of an event in an answer; every slot is there, or those `stored`."""
    stored = torch.arange(tokens).view(1, 1, -1) if stored is None else torch.tensor(stored)
    found = {STATE: tuple(lines), **marks}
    return View(torch.zeros(tokens, dtype=torch.long), 1, 1, frozenset(), 0, {}, stored, prompt=prompt, lines=found)


def slots(mask):
    return [head.nonzero().flatten().tolist() for head in mask[0]]


# The scores of twelve slots, of which three make a line and two are the last ones.
SCORES = (0.9, 0.1, 0.2, 0, 0, 0, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)


@pytest.mark.parametrize(
    ("decoding", "kept"),
    [
        (StateLines(), [0, 3, 4, 5, 6, 10, 11]),
        (StateLines(pinned=False), [0, 6, 7, 8, 9, 10, 11]),
        (StateLines(recent=0), [0, 3, 4, 5, 6, 7, 8]),
        (StateLines(share=0.4), [0, 6, 7, 8, 9, 10, 11]),  # 2 of 7 slots, less than the line has
    ],
    ids=["pinned", "asked alone", "no recency", "more than its share"],
)
def test_a_line_and_the_last_slots_stay_whatever_their_scores(decoding, kept):
    """Worked out by hand, for 7 slots, of which lines may take 3."""
    policy = Policy(Given(SCORES), protect=Protect(0, 0), decoding=decoding)
    assert slots(policy.keep(seen(12, [range(3, 6)], prompt=2), 7)) == [kept]


def test_gates_differ_from_their_parents_in_what_is_decoded_alone():
    get = policies.get
    assert policies.diff(get("state_ask"), get("1d")).keys() == {"decoding"}
    assert policies.diff(get("state_emit"), get("state_ask")).keys() == {"decoding"}
    assert get("state_emit").decoding.extra_prompt == get("state_ask").decoding.extra_prompt
    assert '"State:"' in get("state_ask").decoding.extra_prompt
    assert get("state_ask").marks == ()
    assert get("state_emit").marks == (STATE,)
    quiet = get("state_emit", {"decoding.asked": False, "decoding.line": "=", "decoding.end": ";"})
    assert quiet.decoding.extra_prompt == ""
    assert quiet.marks == (Mark("=", ";"),)


def test_the_oldest_lines_are_let_go_first_and_whole():
    """Against a count from the end, line by line."""
    draw = random.Random(1)
    for _ in range(200):
        ends = sorted(draw.sample(range(1, 60), 6))
        lines = [range(start, stop) for start, stop in zip(ends[::2], ends[1::2], strict=True)]
        most = draw.randint(0, 60)
        kept, room = [], most
        while len(kept) < len(lines) and len(lines[-1 - len(kept)]) <= room:
            room -= len(lines[-1 - len(kept)])
            kept.insert(0, lines[-1 - len(kept)])
        assert newest_lines(lines, most) == kept


def test_a_line_that_was_let_go_stays_so_though_few_of_its_slots_are_left():
    """Budget 8: lines may take 4. The second has 4, so the first has no room, of which one slot is left."""
    stored = [[[0, 2, 5, 6, 7, 8, 9, 10, 11]]]
    view = seen(12, [range(2, 5), range(5, 9)], prompt=1, stored=stored)
    assert slots(StateLines(recent=0).pins(view, 8)) == [[2, 3, 4, 5]]  # places of positions 5 to 8


def test_each_head_pins_the_slots_that_it_holds():
    stored = [[[0, 3, 4, 5, 8, 9], [1, 2, 4, 9, -1, -1]]]
    view = seen(10, [range(3, 6)], prompt=2, stored=stored)._replace(kv_heads=2)
    assert slots(StateLines().pins(view, 8)) == [[1, 2, 3, 4, 5], [2, 3]]


def test_nothing_is_pinned_before_the_answer_begins():
    view = seen(12, prompt=12)._replace(stored=None)
    assert not StateLines().pins(view, 8).any()
    assert StateLines().pins(view._replace(token_ids=torch.zeros(13, dtype=torch.long)), 8).sum() == 2


@looped("budget", range(8))
def test_pins_never_take_more_than_what_is_left(budget):
    """Of 12 slots; the last two come first, and lines take half of the budget at most."""
    found = StateLines().pins(seen(12, [range(1, 3), range(3, 4), range(4, 6)], prompt=1), budget)
    assert int(found.sum()) == [0, 1, 2, 2, 4, 4, 5, 5][budget]
    protecting = Policy(Given(SCORES), protect=Protect(sinks=3, recent=0), decoding=StateLines())
    if budget >= 3:
        kept = protecting.keep(seen(12, [range(1, 3), range(3, 4), range(4, 6)], prompt=1), budget)
        assert kept[..., :3].all()
        assert int(kept.sum()) == budget


@looped(("share", "slots"), [(0.29, 29), (0.5, 50), (0.07, 7), (0, 0), (1, 100)])
def test_a_share_is_of_the_number_as_it_is_written(share, slots):
    """In floats, 0.29 of 100 is 28.999999999999996."""
    lines = [range(at, at + 1) for at in range(110)]
    found = Marked(Protect(0, 0), "State:", share).slots_in_text(seen(220, lines), 100)
    assert int(found.sum()) == slots


MARKED = Marked(Preserve(prompt=False, recent=4), "State:")
# Policies that keep whole units may need more than there is: they are refused where they are registered.
SLOTS = [
    name
    for name in policies.names()
    if policies.get(name).evicts and not isinstance(policies.get(name).selection, UnitSelection)
]


@looped("name", SLOTS)
def test_marked_lines_stay_in_every_policy(name):
    """Budget 32: the last 4 slots, and of lines 12 tokens, but no third line of 8."""
    policy = replace(policies.get(name), protect=MARKED, cadence=Cadence())
    lines = (range(10, 18), range(24, 30), range(34, 40))
    view = a_view(a_prompt(60), [policy], asked=8)._replace(prompt=8, lines={STATE: lines})
    kept = policy.keep(view, 32)
    for line in (*lines[1:], range(56, 60)):
        assert kept[..., line.start : line.stop].all(), line
    assert kept.sum() <= 32 * kept[..., 0].numel()


def test_lines_take_what_the_others_leave():
    """Budget 12: the prompt has 6 slots and 3 are recent, so that 3 are left, though half of 12 is 6."""
    protect = Marked(Preserve(recent=3), "State:")
    view = seen(30, [range(8, 10), range(12, 14), range(16, 17)], prompt=6)
    assert slots(protect.slots_in_text(view, 12)) == [[*range(6), 12, 13, 16, 27, 28, 29]]
    assert slots(protect.slots_in_text(view, 40)) == [[*range(6), 8, 9, 12, 13, 16, 27, 28, 29]]
    assert slots(protect.slots_in_text(view, 9)) == [[*range(6), 27, 28, 29]]


def test_a_pinned_prompt_does_not_blind_a_protection_that_sees():
    policy = pin_prompt(policies.get("knorm", protect=Marked(Protect(0, 1), "State:")))
    assert policy.marks == (STATE,)
    found = policy.protected(seen(12, [range(6, 8)], prompt=3), 9)
    assert slots(found) == [[0, 1, 2, 6, 7, 11]]
    assert slots(policy.protect.slots(torch.ones(1, 1, 5, dtype=torch.bool), 9, decoding=False)) == [[*range(5)]]
