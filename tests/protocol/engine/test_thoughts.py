"""ThinKV's sparsity and segments, as a lane decodes: against loops over one forward of its whole text."""

from dataclasses import replace

import pytest
import torch
from plain_forward import History, of_lane, plain_forward
from tiny_networks import HEADS, KV_HEADS, LAYERS, Noted, answer, lane, outside, tiny, watched

import policies
from policies import Thresholds
from policies.epikv import Epiphany
from policies.signals import AttentionSums
from policies.thinkv import Sparsity, Whenever
from protocol.formats.refusals import BadInput

SIZE, INTERVAL = 4, 4


def shortened(name: str, interval: int = INTERVAL) -> Noted:
    """A policy of the catalogue with short segments, which notes its views."""
    policy = policies.get(name)
    short = replace(policy.scoring, size=SIZE, reasoning=3, execution=2, transition=1, least=1)
    if name == "segment-hs":  # the bands of the paper are one layer of three
        short = replace(short, base=Epiphany((0,), (2,), depth=None))
    return watched(policy, scoring=short, cadence=Whenever(interval=interval))


def sparse_of(weights: torch.Tensor, allowed: torch.Tensor) -> list[list[float]]:
    """weights [layer, q_head, query, key], allowed [layer, kv_head, query, key] -> by layer and query."""
    found = []
    for layer in range(LAYERS):
        row = []
        for query in range(weights.shape[2]):
            shares = []
            for head in range(weights.shape[1]):
                seen = weights[layer, head, query][allowed[layer, head // 2, query]].tolist()
                shares.append(sum(weight < 0.01 * max(seen) for weight in seen) / len(seen))
            row.append(sum(shares) / len(shares))
        found.append(row)
    return found


@pytest.mark.parametrize("name", ["thinkv", "segment-hs"])
def test_the_sparsity_of_every_token_is_that_of_its_row_over_the_slots_that_were_there(name, device):
    model, prompt = tiny(device=device), outside(12, 3)
    policy, other = shortened(name), shortened("thinkv", 6)
    _, outcome = answer(model, prompt, [lane(other, 30), lane(policy, 30)], max_new_tokens=18)
    text = prompt.context + prompt.query + outcome.token_ids[:-1]
    history = of_lane(policy, len(text))
    plain = plain_forward(model.network, text, history.allowed)
    expected = sparse_of(plain.weights, history.allowed)
    assert len(policy.notes) == 5
    for view, _ in policy.notes:
        seen = len(view.token_ids)
        for layer in range(LAYERS):
            found = view.signals[Sparsity()][layer]
            assert found.shape == (1, seen)
            assert found[0].tolist() == pytest.approx(expected[layer][:seen])
    flat = [share for row in expected for share in row]
    assert min(flat) < 0.2 < 0.4 < max(flat)


@pytest.mark.parametrize(("low", "high", "kinds"), [(0.65, 0.71, 3), (0.0, 1.0, 1)])
def test_an_event_keeps_of_each_segment_its_best_as_loops_find_them(low, high, kinds):
    """The prompt of 12, of segments of 4 their budget of 3 (R), 2 (E) or 1 (T), and the last 10."""
    model = tiny()._replace(statistics={"thoughts": Thresholds((0, 2), low, high)})
    prompt, policy = outside(12), shortened("thinkv")
    (outcome,) = answer(model, prompt, [lane(policy, 40)], max_new_tokens=26)
    text = prompt.context + outcome.token_ids[:-1]
    history, told = History(len(text)), of_lane(policy, len(text))
    plain = plain_forward(model.network, text, told.allowed)
    sparse = sparse_of(plain.weights, told.allowed)
    seen_kinds = set()
    for view, kept in policy.notes:
        seen = len(view.token_ids)
        history.feed(seen)
        for (layer, head), held in history.held.items():
            received = plain.weights[layer, 2 * head : 2 * head + 2, :seen].sum((0, 1))
            expected = set(held[-10:]) | set(range(12))
            for first in range(12, seen - SIZE + 1, SIZE):
                own = range(first, first + SIZE)
                mean = sum(sparse[each][position] for each in (0, 2) for position in own) / (2 * SIZE)
                kind = "T" if mean >= high else "R" if mean >= low else "E"
                seen_kinds.add(kind)
                compete = [position for position in held[:-10] if position in own]
                best = sorted(compete, key=lambda position: (-received[position], position))
                expected |= set(best[: {"R": 3, "E": 2, "T": 1}[kind]])
            stays = kept[layer, head].tolist()
            assert {position for position, stay in zip(held, stays, strict=False) if stay} == expected
        history.evict(kept)
    assert len(seen_kinds) == kinds
    assert outcome.events[-1][2] < outcome.events[-1][1] < HEADS * 40


def test_events_fire_where_nothing_is_over_the_budget_and_free_what_they_drop():
    policy = shortened("thinkv")
    (outcome,) = answer(tiny(), outside(10), [lane(policy, 1000)], max_new_tokens=17)
    assert [step for step, *_ in outcome.events] == [0, 4, 8, 12, 16]
    # Nothing of the prompt goes; recency is 128, so neither does anything of the answer yet.
    assert all(before == after for _, before, after in outcome.events)
    (outcome,) = answer(tiny(), outside(10), [lane(policy, 40)], max_new_tokens=17)
    assert [step for step, *_ in outcome.events] == [0, 4, 8, 12, 16]
    assert outcome.events[-1][2] < outcome.events[-1][1] < HEADS * 40


def test_sparsity_counts_in_the_bytes_of_the_state():
    """An entry a layer and token fed, beside positions and sums of the slots that are left."""
    policy = shortened("thinkv", 100)
    (outcome,) = answer(tiny(), outside(20), [lane(policy, 15)], max_new_tokens=6)
    positions, sums = KV_HEADS * LAYERS * 15 * 8, 4 * LAYERS * (15 + 5) * 8
    assert outcome.state_bytes == positions + sums + LAYERS * (20 + 5) * 8


def test_thresholds_are_read_by_name_and_kind():
    lanes = [lane(shortened("thinkv"), 30)]
    for held in ({}, {"thoughts": tiny().statistics["text"]}):
        with pytest.raises(BadInput, match="needs 'thoughts', which have not been measured; run: kv-prereg"):
            answer(tiny()._replace(statistics=held), outside(20), lanes, max_new_tokens=3)


def test_a_prompt_that_does_not_fit_is_cut_to_the_budget_by_what_it_received():
    policy = shortened("thinkv")
    (outcome,) = answer(tiny(), outside(40), [lane(policy, 20)], max_new_tokens=2)
    assert outcome.events[0] == (0, HEADS * 40, HEADS * 20)
    view, kept = policy.notes[0]
    for layer in range(LAYERS):
        received = view.signals[AttentionSums()][layer].view(KV_HEADS, 2, -1).mean(1)
        for head in range(KV_HEADS):
            best = sorted(range(35), key=lambda slot: (-received[head, slot], slot))[:15]
            expected = sorted({*best, *range(35, 40)})
            assert kept[layer, head].nonzero().flatten().tolist() == expected
