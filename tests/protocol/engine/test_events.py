"""Events while decoding: when they fire, what the policy is told, and what happens to one that errs."""

from dataclasses import dataclass

import pytest
import torch
from plain_forward import History, of_lane, plain_forward
from sampled import sampled
from test_run_types import told
from tiny_networks import (
    DIM,
    FAMILIES,
    HEADS,
    KV_HEADS,
    LAYERS,
    Q_HEADS,
    Adaptive,
    Noise,
    Offsets,
    all_kept,
    answer,
    drawn,
    lane,
    noted,
    outside,
    tiny,
)
from torch.nn.functional import pad

from policies import Cadence, Protect, Schedule, TopK
from policies.signals import AttentionSums, HiddenChange, Norms
from protocol.engine import LaneFailure, Outcome

SLOT = 2 * DIM * 8
"""Bytes of a key and a value in float64."""
CADENCES = [Cadence(interval=interval, slack=slack) for interval in (1, 4, 16) for slack in (True, False)]


def lived(context, query, budget, cadence, new, first_event):
    """Slots of a head after every forward, and the events, of a lane that takes `new` tokens: by hand."""
    holds = min(context, budget)
    held, events = [holds], [(0, context, holds)]
    for step, fed in enumerate(([query] if query else [0]) + [1] * (new - 1)):
        holds += fed
        is_on_step = holds > budget and step % cadence.interval == 0
        due = holds >= budget + cadence.interval if cadence.slack else is_on_step
        if due and fed and step >= first_event:
            events.append((step, holds, budget))
            holds = budget
        if fed:
            held.append(holds)
    return held, events


@pytest.mark.parametrize(("first_event", "context", "query"), sampled([0, 1, 2, 7, 50], [30, 6], [0, 3, 9], of=6))
def test_slots_held_and_events_are_those_of_a_count_by_hand(context, query, first_event):
    lanes = [
        lane(drawn(1, routing, cadence), budget)
        for cadence in CADENCES
        for routing in (None, Adaptive())
        for budget in (8, 11)
    ]
    outcomes = answer(tiny(), outside(context, query), lanes, max_new_tokens=20, first_event=first_event)
    for given, outcome in zip(lanes, outcomes, strict=True):
        held, events = lived(context, query, given.budget, given.policy.cadence, 20, first_event)
        assert [total / HEADS for total in outcome.slots] == held
        assert [(step, a / HEADS, b / HEADS) for step, a, b in outcome.events] == events
        assert all(slots * SLOT <= room for slots, room in zip(outcome.slots, outcome.allocated, strict=True))


def test_two_lives_written_out_agree_with_the_count():
    slack, exact = Cadence(interval=2), Cadence(interval=2, slack=False)
    assert lived(30, 0, 8, slack, 6, 1) == ([8, 9, 8, 9, 8, 9], [(0, 30, 8), (2, 10, 8), (4, 10, 8)])
    assert lived(6, 3, 8, exact, 4, 0) == ([6, 8, 9, 8, 9], [(0, 6, 6), (0, 9, 8), (2, 10, 8)])
    # The query of 3 stays whole until the answer has begun.
    assert lived(6, 3, 8, exact, 4, 1) == ([6, 9, 10, 8, 9], [(0, 6, 6), (2, 11, 8)])
    assert lived(6, 5, 8, slack, 3, 1) == ([6, 11, 8, 9], [(0, 6, 6), (1, 12, 8)])


CATALOGUE_CADENCES = [
    *(Cadence(interval=interval, slack=slack) for interval in (1, 3, 50) for slack in (True, False)),
    *(Schedule(interval=interval, load=load) for interval in (1, 3, 50) for load in ("front", "back")),
]


@pytest.mark.parametrize("cadence", CATALOGUE_CADENCES, ids=str)
def test_the_query_is_whole_until_the_answer_has_begun(cadence):
    """A query of 12 after a prompt of 80, at a budget of 30: more than one interval of some cadences."""
    given = [lane(drawn(1, cadence=cadence), 30)]
    prompt = outside(80, 12)
    (outcome,) = answer(tiny(), prompt, given, max_new_tokens=5)
    first, *later = outcome.events
    assert first[:2] == (0, 80 * HEADS)
    assert all(step >= 1 for step, *_ in later)
    assert outcome.slots[1] - outcome.slots[0] == 12 * HEADS
    (earlier,) = answer(tiny(), prompt, given, max_new_tokens=5, first_event=0)
    at_once = [step for step, *_ in earlier.events[1:]].count(0)
    slack = cadence.slack and not isinstance(cadence, Schedule)
    assert at_once == (0 if slack and cadence.interval == 50 else 1)


MEASURED = (
    AttentionSums(),
    AttentionSums(3),
    AttentionSums(6),
    HiddenChange((1,), None),
    HiddenChange((0,), None),
    Norms(),
)


def watching(routing=None, cadence=None):
    return noted(Noise(1, frozenset(MEASURED)), routing, cadence)


def accumulated(plain, seen):
    """Attention received by every position from the first `seen` queries, added row by row."""
    received = {}
    for layer, heads in enumerate(plain.weights.tolist()):
        for head, rows in enumerate(heads):
            for row in range(seen):
                for position in range(row + 1):
                    key = (layer, head, position)
                    received[key] = received.get(key, 0.0) + rows[row][position]
    return received


def of_window(plain, history, seen, window):
    """Attention of the last `window` queries over the positions that their head still holds."""
    received = {}
    for (layer, head), positions in history.held.items():
        for query_head in (2 * head, 2 * head + 1):
            received |= {(layer, query_head, position): 0.0 for position in positions}
            for row in range(max(0, seen - window), seen):
                left = [position for position in positions if position <= row]
                logits = plain.keys[layer, head, left] @ plain.queries[layer, query_head, row] * DIM**-0.5
                for position, weight in zip(left, logits.softmax(0).tolist(), strict=True):
                    received[layer, query_head, position] += weight
    return received


def assert_slots_equal(states, expected, history):
    """states: [q_head, n] a layer. A column that no slot of the head has is 0."""
    for (layer, head), positions in history.held.items():
        for query_head in (2 * head, 2 * head + 1):
            row = states[layer][query_head]
            wanted = [expected[layer, query_head, position] for position in positions]
            wanted = torch.tensor(wanted, dtype=torch.float64)
            torch.testing.assert_close(row[: len(positions)].cpu(), wanted, rtol=1e-9, atol=1e-10)
            assert not row[len(positions) :].any()


@pytest.mark.parametrize(
    ("family", "routing", "cadence"),
    sampled(FAMILIES, [None, Offsets(), Adaptive()], [Cadence(interval=5), Cadence(interval=1)], of=3),
)
def test_what_a_policy_is_told_at_every_event_is_what_loops_over_a_plain_forward_find(family, routing, cadence, device):
    model, prompt, policy = tiny(family, device=device), outside(24, 7), watching(routing, cadence)
    new = 4 if cadence.interval == 1 else 9
    # Two lanes of other slots share the batch: one whose layout is the same at times, one with other signals.
    alike = noted(Noise(2, frozenset({AttentionSums()})), routing, cadence)
    other = noted(Noise(3, frozenset({AttentionSums(2)})), Adaptive(), Cadence(interval=3))
    lanes = [lane(alike, 10), lane(policy, 10), lane(other, 6)]
    _, outcome, _ = answer(model, prompt, lanes, max_new_tokens=new, prefill_chunk=10)
    text = prompt.context + prompt.query + outcome.token_ids[:-1]
    plain = plain_forward(model.network, text, of_lane(policy, len(text)).allowed)
    history = History(len(text))
    assert len(policy.notes) == len(outcome.events) >= 3
    for view, kept in policy.notes:
        seen = len(view.token_ids)
        history.feed(seen)
        assert tuple(view.token_ids.tolist()) == text[:seen]
        positions = view.positions.expand(LAYERS, KV_HEADS, -1)
        for (layer, head), held in history.held.items():
            assert [p for p in positions[layer, head].tolist() if p >= 0] == held
            assert positions[layer, head, : len(held)].tolist() == held
        assert view.slots == max(map(len, history.held.values()))
        assert_slots_equal(view.signals[AttentionSums()], accumulated(plain, seen), history)
        for window in (3, 6):
            expected = of_window(plain, history, seen, window)
            assert_slots_equal(view.signals[AttentionSums(window)], expected, history)
        for layer in (0, 1):
            hidden = plain.hidden[layer, :seen]
            changes = [0.0] + [float((hidden[i] - hidden[i - 1]).norm()) for i in range(1, seen)]
            found = view.signals[HiddenChange((layer,), None)][layer].changes.cpu()
            torch.testing.assert_close(found, torch.tensor(changes, dtype=torch.float64))
        for (layer, head), held in history.held.items():
            for name in ("key", "value"):
                found = getattr(view.signals[Norms()][layer], name)[head, : len(held)]
                stored = getattr(plain, f"{name}s")[layer, head, held]
                torch.testing.assert_close(found, stored.square().sum(-1).sqrt())
        history.evict(kept)


def test_a_new_token_adds_one_unit_of_attention_to_the_slots_left_and_gives_none_to_others():
    policy = watching(cadence=Cadence(interval=2))
    answer(tiny(), outside(20), [lane(policy, 5)], max_new_tokens=4)
    (first, kept), (later, _) = policy.notes
    for layer in range(LAYERS):
        for head in range(Q_HEADS):
            old = first.signals[AttentionSums()][layer][head][kept[layer, head // 2]]
            now = later.signals[AttentionSums()][layer][head]
            assert (now[:5] > old).all()
            torch.testing.assert_close(float(now.sum() - old.sum()), 2.0)


def test_the_memory_of_a_policy_is_counted_at_its_largest():
    signals = frozenset({AttentionSums(), AttentionSums(3), AttentionSums(5), HiddenChange((1,), None)})
    lanes = [
        lane(noted(Noise(1, signals), cadence=Cadence(interval=4)), 10),
        lane(noted(Noise(1, signals), Offsets(), Cadence(interval=4)), 10),
        lane(noted(Noise(1), cadence=Cadence(interval=4)), 10),
        lane(noted(Noise(1, signals)), 10),
        lane(all_kept()),
    ]
    outcomes = answer(tiny(), outside(30), lanes, max_new_tokens=10)
    # With hidden states the most is there after step 7: three tokens beyond the event of step 4 wait to be folded,
    # each as wide as that of the last folded one, and the trace is of 30 + 4 tokens.
    queries, trace = LAYERS * Q_HEADS * 5 * DIM * 8, (34 + 4 * 64) * 8

    def slots(fullest, since):
        positions, sums = HEADS * fullest * 8, LAYERS * Q_HEADS * (fullest + since) * 8
        return positions, sums

    uniform = sum(slots(10, 3)) + queries + trace
    ragged = sum(slots(20, 3)) + queries + trace
    assert [o.state_bytes for o in outcomes] == [uniform, ragged, slots(10, 1)[0], 0, 0]


@dataclass(frozen=True)
class Broken(TopK):
    """Breaks its promise at the event at which the fullest head holds `at` slots."""

    how: str = ""
    at: int = 0

    def select(self, view, scores, protected, allocation):
        kept = super().select(view, scores, protected, allocation)
        return getattr(self, self.how)(kept) if kept.shape[-1] == self.at else kept

    def indices(self, kept):
        return kept.nonzero()[:, 2].view(*kept.shape[:2], -1)

    def wider(self, kept):
        return pad(kept, (0, 1))

    def narrower(self, kept):
        return kept[..., :-1]

    def numbers(self, kept):
        return kept.double()

    def one_head_for_all(self, kept):
        return kept[:, :1]

    def more(self, kept):
        return change(kept, False)

    def fewer(self, kept):
        return change(kept, True)

    def unprotected(self, kept):
        kept = change(kept, False)
        kept[1, 0, 0] = False
        return kept


def change(kept, flag):
    """The last slot of one head with this flag, the other way round."""
    kept = kept.clone()
    row = kept[1, 0]
    row[int((row == flag).nonzero()[-1])] = not flag
    return kept


MASK = "selection must return a bool mask of shape"
BROKEN = {
    "indices": f"{MASK} [3, 2, N], not int64 of shape [3, 2, 10]",
    "wider": f"{MASK} [3, 2, N], not bool of shape [3, 2, M]",
    "narrower": f"{MASK} [3, 2, N], not bool of shape [3, 2, L]",
    "numbers": f"{MASK} [3, 2, N], not float64 of shape [3, 2, N]",
    "one_head_for_all": f"{MASK} [3, 2, N], not bool of shape [3, 1, N]",
    "more": "selection kept [[10, 10], [11, 10], [10, 10]] slots, but ",
    "fewer": "selection kept [[10, 10], [9, 10], [10, 10]] slots, but ",
    "unprotected": "selection dropped a protected slot",
}


@pytest.mark.parametrize(("at", "query"), [(30, 0), (14, 0), (14, 4)], ids=["first", "later", "right after the query"])
def test_a_broken_selection_fails_its_own_lane_by_name_at_any_event(at, query):
    cadence = Cadence(interval=4)

    def broken(how):
        protect = Protect(1, 0)
        return lane(noted(Noise(1), cadence=cadence, protect=protect, selection=Broken(how, at)), 10)

    sound = [lane(drawn(2, Adaptive(), cadence), 10), lane(drawn(3, cadence=cadence), 10), lane(all_kept())]
    lanes = [sound[0], *map(broken, BROKEN), *sound[1:]]
    model, prompt = tiny(), outside(30, query)
    settings = {"max_new_tokens": 12, "first_event": 0}
    first, *failed, second, third = answer(model, prompt, lanes, **settings)
    for outcome, reason in zip(failed, BROKEN.values(), strict=True):
        assert isinstance(outcome, LaneFailure), outcome
        for letter, size in (("N", at), ("M", at + 1), ("L", at - 1)):
            reason = reason.replace(f"{letter}]", f"{size}]")
        assert outcome.reason.startswith(reason)
    without = answer(model, prompt, sound, **settings)
    assert list(map(told, (first, second, third))) == list(map(told, without))


@dataclass(frozen=True)
class Reaching(TopK):
    """At later events, moves a kept slot of each shorter head to where that head has none."""

    def select(self, view, scores, protected, allocation):
        kept = super().select(view, scores, protected, allocation)
        missing = scores.slots[..., -1].isneginf() & kept.any(-1)
        for layer, head in missing.nonzero().tolist():
            kept[layer, head, kept[layer, head].nonzero()[0]] = False
            kept[layer, head, -1] = True
        return kept


def test_a_slot_that_its_head_does_not_hold_cannot_be_kept():
    cadence = Cadence(interval=4)
    lanes = [lane(drawn(1, Offsets(), cadence, selection=Reaching()), 10), lane(drawn(1, Offsets(), cadence), 10)]
    failed, sound = answer(tiny(), outside(30), lanes, max_new_tokens=8)
    assert failed == LaneFailure("selection kept a slot that its head does not contain")
    assert isinstance(sound, Outcome)


def test_the_place_of_a_lane_that_fails_while_decoding_goes_to_the_next():
    cadence = Cadence(interval=4)
    broken = lane(noted(Noise(1), cadence=cadence, selection=Broken("more", 14)), 10)
    lanes = [broken, lane(drawn(1), 10), broken, lane(all_kept())]
    model, prompt = tiny(), outside(30, 2)
    outcomes = answer(model, prompt, lanes, max_new_tokens=8, max_concurrent=1)
    assert [type(outcome) for outcome in outcomes] == [LaneFailure, Outcome, LaneFailure, Outcome]
    alone = answer(model, prompt, [lanes[1], lanes[3]], max_new_tokens=8)
    assert list(map(told, outcomes[1::2])) == list(map(told, alone))
