"""CrystalCache while the engine decodes: what it is told at a breath, and that its memory comes back."""

from dataclasses import replace

import pytest
import torch
from plain_forward import History, of_lane, plain_forward
from sampled import sampled
from tiny_networks import FAMILIES, HEADS, Noted, answer, lane, noted, outside, tiny

import policies
from policies import Cadence, Protect
from policies.crystal.breath import InverseKeyNorms
from policies.crystal.coattention import CoAttention
from policies.crystal.table import TrunkTable
from protocol.engine.own_parts import iterate_tensors

CLOSE = CoAttention(chunk=1024, intra_k=3, intra_threshold=0.6, cross_k=2, cross_threshold=0.05)


def crystal(name="crystal", interval=6) -> Noted:
    policy = policies.get(name)
    return noted(
        replace(policy.scoring, coattention=CLOSE, max_trunk=5),
        policy.routing,
        Cadence(interval=interval),
        Protect(2, 6, always=False),
        selection=policy.selection,
    )


def looped(attention, old, new):
    """Mass of the new positions and edges by position, from attention [q_head, query, key] and two lists."""
    mean = attention.mean(0)
    mass = []
    for key in new:
        received = sorted(sum(float(head[query, key]) for query in new) for head in attention)
        mass.append(sum(received[-3:]))
    edges = {}
    for i in new:
        row = mean[i, new]
        cosine = {}
        for j in new:
            other = mean[j, new]
            cosine[j] = float(row @ other / ((row.norm() + 1e-8) * (other.norm() + 1e-8)))
        near = sorted((j for j in new if j != i), key=lambda j: (-cosine[j], j))[: CLOSE.intra_k]
        edges |= {(i, j): cosine[j] for j in near if cosine[j] > CLOSE.intra_threshold}
        strongest = sorted(old, key=lambda k: (-float(mean[i, k]), k))[: CLOSE.cross_k]
        edges |= {(k, i): float(mean[i, k]) for k in strongest if mean[i, k] > CLOSE.cross_threshold}
    return mass, edges


@pytest.mark.parametrize(("family", "query"), sampled(FAMILIES, [0, 4], of=2))
def test_a_breath_sees_the_tokens_fed_since_the_last_one_as_a_loop_over_a_plain_forward_does(family, query, device):
    model, prompt, policy = tiny(family, device=device), outside(40, query), crystal()
    # A lane that reads every layer shares the batch, and one of another crystal with other events.
    lanes = [lane(policies.get("h2o"), 20), lane(policy, 24), lane(crystal(interval=4), 30)]
    _, outcome, _ = answer(model, prompt, lanes, max_new_tokens=24)
    text = prompt.context + prompt.query + outcome.token_ids[:-1]
    plain = plain_forward(model.network, text, of_lane(policy, len(text)).allowed)
    history, fed = History(len(text)), 0
    assert len(policy.notes) == len(outcome.events) >= 4
    for number, (view, kept) in enumerate(policy.notes):
        seen = len(view.token_ids)
        old = list(history.held[0, 0])
        history.feed(seen)
        new = list(range(fed, seen))
        held = old + new
        assert history.held[0, 0] == held
        mass, edges = looped(plain.weights[0].cpu(), old, new)
        origin, found, recorded = view.signals[CLOSE][0]
        assert origin == len(old)
        torch.testing.assert_close(found.cpu(), torch.tensor(mass, dtype=torch.float64))
        pairs = zip(*(column.tolist() for column in recorded), strict=True)
        by_position = {(held[i], held[j]): weight for i, j, weight in pairs}
        assert by_position.keys() == edges.keys()
        assert by_position == pytest.approx(edges, abs=1e-9)
        norms = torch.stack([1 / plain.keys[0, head, held].norm(dim=-1) for head in range(2)]).mean(0)
        torch.testing.assert_close(view.signals[InverseKeyNorms()][0], norms)
        if number:
            assert isinstance(view.memory, TrunkTable)
            assert len(view.memory.slots) == len(old)
            assert view.memory.token_count == fed
        history.evict(kept)
        fed = seen


def test_the_memory_of_an_event_is_what_the_next_one_is_given():
    policy = crystal()
    answer(tiny(), outside(40, 3), [lane(policy, 24)], max_new_tokens=24)
    for (before, kept), (after, _) in zip(policy.notes, policy.notes[1:], strict=False):
        expected = policy.scoring.score(before).memory.retain(kept)
        assert after.memory.spans == expected.spans
        for one, other in zip(iterate_tensors(after.memory), iterate_tensors(expected), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_what_is_remembered_counts_as_memory_of_the_policy():
    with_events, without = (
        answer(tiny(), outside(40), [lane(crystal(interval=interval), 30)], max_new_tokens=12)[0]
        for interval in (6, None)
    )
    assert without.state_bytes == 0
    positions = HEADS * 30 * 8
    assert with_events.state_bytes > positions + 30 * 8  # at least M_i of each slot beside the positions


@pytest.mark.parametrize("name", ["crystal", "crystal-static-graph", "crystal-still", "crystal-blog"])
def test_long_generations_breathe_many_times_within_their_budget(name):
    outcomes = answer(tiny(dtype=torch.float32), outside(60, 5), [lane(crystal(name, 8), 40)], max_new_tokens=200)
    (outcome,) = outcomes
    assert len(outcome.events) >= 20
    assert max(outcome.slots[1:]) <= HEADS * (40 + 8)
    assert all(HEADS * 38 <= after <= HEADS * 40 for _, _, after in outcome.events)


def test_a_lane_that_is_below_its_budget_at_first_learns_of_its_prompt_all_the_same():
    policy = crystal(interval=5)
    (outcome,) = answer(tiny(), outside(20), [lane(policy, 30)], max_new_tokens=30)
    assert outcome.events[0] == (0, HEADS * 20, HEADS * 20)
    second, _ = policy.notes[1]
    assert len(second.memory.slots) == 20
    assert len(second.token_ids) == 35
