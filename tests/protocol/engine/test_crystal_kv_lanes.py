"""Crystal-KV in the engine, against loops over one plain forward: what is hit, kept and granted to a head."""

from dataclasses import replace
from math import floor, log

import pytest
from plain_forward import History, of_lane, plain_forward
from tiny_networks import HEADS, KV_HEADS, LAYERS, answer, lane, outside, tiny, watched

import policies
from policies import Cadence
from policies.crystal_kv import Recency, References, Utilised
from protocol.engine import Outcome

DECAY, P = 0.6, 0.9
EVERY_STEP = Cadence(interval=1)
KEYS = [(layer, head) for layer in range(LAYERS) for head in range(KV_HEADS)]


class Loop:
    """(crf, last) of every position that a head holds, counted one reference at a time."""

    def __init__(self, plain):
        self.plain = plain
        self.recorded = {key: {} for key in KEYS}

    def feed(self, first, end):
        """The tokens first..end-1 arrive together, and the last of them looks at what its head holds."""
        for (layer, head), own in self.recorded.items():
            own |= dict.fromkeys(range(first, end), (1.0, end - 1))
            rows = self.plain.weights[layer, 2 * head : 2 * head + 2, end - 1].double()
            row, total = ((rows[0] + rows[1]) / 2).tolist(), 0.0
            for position in sorted(own, key=lambda position: (-row[position], position)):
                if total >= P - 1e-9:
                    break
                total += row[position]
                crf, last = own[position]
                own[position] = (DECAY ** (end - last) * crf + 1, end)
            own[end - 1] = (1.0, end)

    def value(self, key, position, now):
        crf, last = self.recorded[key][position]
        return log(crf) + (now - last) * log(DECAY)

    def ranked(self, key, now):
        """Positions, the first to be kept first."""
        return sorted(self.recorded[key], key=lambda position: (-round(self.value(key, position, now), 5), position))

    def evict(self, key, left):
        self.recorded[key] = {position: self.recorded[key][position] for position in left}


def forwards(prompt, new):
    """(first, end) of the tokens of every forward."""
    context, whole = len(prompt.context), len(prompt.context) + len(prompt.query)
    yield 0, context
    if prompt.query:
        yield context, whole
    yield from ((fed, fed + 1) for fed in range(whole, whole + new - 1))


def replayed(model, policy, prompt, budget, new):
    """For every event: the view, the mask that was kept, and the loop as it stands then."""
    (outcome,) = answer(model, prompt, [lane(policy, budget)], max_new_tokens=new)
    assert isinstance(outcome, Outcome), outcome
    text = prompt.context + prompt.query + outcome.token_ids[:-1]
    plain = plain_forward(model.network, text, of_lane(policy, len(text)).allowed)
    loop, notes, history = Loop(plain), iter(policy.notes), History(len(text))
    view, kept = next(notes)
    for first, end in forwards(prompt, new):
        loop.feed(first, end)
        while view is not None and len(view.token_ids) == end:
            history.feed(end)
            yield view, kept, loop
            history.evict(kept)
            for key, left in history.held.items():
                loop.evict(key, left)
            view, kept = next(notes, (None, None))
    assert view is None
    assert len(policy.notes) == len(outcome.events)


@pytest.mark.parametrize("query", [0, 1, 6])
@pytest.mark.parametrize(("family", "cadence"), [("Llama", Cadence(interval=1)), ("Qwen3", Cadence(interval=4))])
def test_what_lite_counts_and_keeps_is_what_a_loop_over_all_references_says(family, query, cadence, device):
    model, prompt = tiny(family, device=device), outside(24, query)
    policy, events, unhit = watched("crystal-kv-lite", cadence=cadence), 0, 0
    for view, kept, loop in replayed(model, policy, prompt, 9, 16):
        now, events = len(view.token_ids), events + 1
        for layer, head in KEYS:
            state = view.signals[References(P, DECAY)][layer]
            own = sorted(loop.recorded[layer, head].items())
            count = len(own)
            assert state.last[head].tolist() == [last for _, (_, last) in own]
            found = state.crf[head, :count].tolist()
            assert found == pytest.approx([crf for _, (crf, _) in own], rel=1e-5)
            assert not state.crf[head, count:].any()
            unhit += sum(last < now for _, (_, last) in own)
            positions = [position for position, _ in own]
            left = [position for position, stays in zip(positions, kept[layer, head].tolist(), strict=True) if stays]
            assert left == sorted(loop.ranked((layer, head), now)[:9])
    assert events >= 4
    assert unhit > 50


def algorithm_2(crf, budget, total):
    """Line by line, then by largest remainder."""
    eta = [sum(c) / sum(b) for c, b in zip(crf, budget, strict=True)]
    layers = [total * one / sum(eta) for one in eta]
    real = []
    for layer, (c, b) in zip(layers, zip(crf, budget, strict=True), strict=True):
        heads = [one / other for one, other in zip(c, b, strict=True)]
        real += [layer * one / sum(heads) for one in heads]
    whole = [floor(one) for one in real]
    for place in sorted(range(len(real)), key=lambda place: whole[place] - real[place])[: total - sum(whole)]:
        whole[place] += 1
    return [whole[at : at + KV_HEADS] for at in range(0, len(whole), KV_HEADS)]


@pytest.mark.parametrize("cadence", [Cadence(interval=1), Cadence(interval=3, slack=False)], ids=["1", "3"])
@pytest.mark.parametrize("query", [0, 5])
def test_every_head_gets_what_its_use_of_its_slots_earns(cadence, query, device):
    """Budgets of 12 and a period of 6: new ones at the first event after so many tokens, and no sooner."""
    model, prompt = tiny(device=device), outside(26, query)
    policy = watched("crystal-kv", cadence=cadence, routing=Utilised(period=6, least=1))
    budgets, since, moved, ragged, short = [[12] * KV_HEADS] * LAYERS, 26, 0, 0, 0
    for view, kept, loop in replayed(model, policy, prompt, 12, 40):
        now = len(view.token_ids)
        if now - since >= 6:
            crf = [
                [
                    sum(DECAY ** (now - last) * crf for crf, last in loop.recorded[layer, head].values())
                    for head in range(KV_HEADS)
                ]
                for layer in range(LAYERS)
            ]
            budgets, since, moved = algorithm_2(crf, budgets, 12 * HEADS), now, moved + 1
            assert min(map(min, budgets)) > 1
            assert sum(map(sum, budgets)) == 12 * HEADS
        counts = kept.sum(-1).tolist()
        for layer, head in KEYS:
            held = len(loop.recorded[layer, head])
            granted = budgets[layer][head]
            assert counts[layer][head] == min(granted, held)
            short += held < granted
            positions = sorted(loop.recorded[layer, head])
            flags = kept[layer, head, :held].tolist()
            left = [position for position, stays in zip(positions, flags, strict=True) if stays]
            assert left == sorted(loop.ranked((layer, head), now)[: counts[layer][head]])
        ragged += len({count for row in counts for count in row}) > 1
    assert moved >= 3
    assert ragged >= 3
    assert short >= 3


def test_what_is_held_is_summed_over_heads_of_different_sizes_and_never_above_the_budget():
    policy = policies.get("crystal-kv", cadence=Cadence(interval=2), routing=Utilised(period=4, least=2))
    (outcome,) = answer(tiny(), outside(40), [lane(policy, 10)], max_new_tokens=40)
    assert isinstance(outcome, Outcome), outcome
    for _, before, after in outcome.events:
        assert after <= 10 * HEADS < before
    assert min(after for *_, after in outcome.events) < 10 * HEADS
    assert max(outcome.slots) <= (10 + 2) * HEADS


def test_the_bytes_of_its_state_are_counted():
    """A float32 and an int32 of every slot and KV head, beside its position; for the heads' budgets an int64
    each and one for their time.
    """
    model, prompt, counted = tiny(), outside(20), {}
    for name in ("crystal-kv-lite", "crystal-kv", "knorm"):
        policy = policies.get(name, cadence=Cadence(interval=4))
        if name == "knorm":
            policy = replace(policy, routing=policies.PerHead())
        (outcome,) = answer(model, prompt, [lane(policy, 8)], max_new_tokens=4)
        counted[name] = outcome.state_bytes
    # Positions of the slots at the last event, and what 3 tokens have added to the state since.
    assert counted["knorm"] == 8 * 8 * HEADS
    assert counted["crystal-kv-lite"] - counted["knorm"] == (4 + 4) * (8 + 3) * HEADS
    assert counted["crystal-kv"] - counted["crystal-kv-lite"] == 8 * HEADS + 8


def test_up_to_a_half_every_decay_keeps_the_same_slots_and_says_the_same():
    """What Figure 5 of the paper varies from 0.1 to 0.5 changes nothing, event by event; above, it does."""
    tenths = (1, 2, 3, 4, 5, 6, 9)
    watching = [watched("crystal-kv-lite", cadence=EVERY_STEP, scoring=Recency(P, tenth / 10)) for tenth in tenths]
    outcomes = answer(tiny(), outside(24, 3), [lane(policy, 10) for policy in watching], max_new_tokens=40)
    kept = [[mask.tolist() for _, mask in policy.notes] for policy in watching]
    assert len(kept[0]) >= 38
    for place in (1, 2, 3, 4):
        assert kept[place] == kept[0]
        assert outcomes[place].token_ids == outcomes[0].token_ids
    assert kept[5] != kept[0] != kept[6]
