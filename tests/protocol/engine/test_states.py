"""Lanes with coded and merged slots against lists of slots, one token at a time, with no code of the engine."""

import pytest
import torch
from coded_and_merged import Coded, Gathered, Told, affine
from plain_slots import PlainLane
from tiny_networks import (
    DIM,
    KV_HEADS,
    LAYERS,
    Adaptive,
    Noise,
    Offsets,
    answer,
    lane,
    outside,
    tiny,
)

from policies import Cadence, PerHead, Protect, Shared, Verbatim
from policies.signals import AttentionSums, Norms

STATES = {
    "coded": Coded(),
    "merged": Gathered(),
    "merged without mass": Gathered(mass=False),
    "merged and coded": Gathered(rank=6),
}
MEASURED = frozenset({AttentionSums(), AttentionSums(3), Norms()})


def keeping(state, routing=None, cadence=None, draw=1, needs=frozenset()):
    return Told(
        Noise(draw, needs),
        routing=routing or PerHead(),
        cadence=cadence or Cadence(),
        protect=Protect(0, 1),
        state=state,
    )


def plain_lane(model, policy, prompt, outcome):
    """Logits at every step of a lane, and what its slots are at each event: (view, slots, lane) by `look`."""
    state = policy.state
    rank = getattr(state, "rank", 0)
    plain = PlainLane(model.network, affine(rank) if rank else None, state.merges and state.mass)
    events = {len(view.token_ids): (view, event) for view, event in policy.notes}
    logits = plain.prefill(prompt.context)
    _, first = events.pop(len(prompt.context))
    plain.evict(first.kept, first.merging)
    plain.code()
    chosen = [] if prompt.query else [logits]
    for number, token in enumerate((*prompt.query, *outcome.token_ids[:-1])):
        logits = plain.feed(token)
        if number + 1 >= len(prompt.query):
            chosen.append(logits)
        if plain.seen in events:
            view, event = events.pop(plain.seen)
            compare(plain, view)
            plain.evict(event.kept, event.merging)
    assert not events
    return chosen, plain


def compare(plain, view):
    """What a policy is told of its slots."""
    weights = None if view.weights is None else view.weights.expand(LAYERS, KV_HEADS, -1)
    positions = view.positions.expand(LAYERS, KV_HEADS, -1)
    windows = plain.of_window(3, DIM**-0.5) if view.signals else {}
    for (layer, head), slots in plain.held.items():
        assert positions[layer, head, : len(slots)].tolist() == [slot.position for slot in slots]
        assert positions[layer, head, len(slots) :].eq(-1).all()
        if weights is not None:
            assert weights[layer, head, : len(slots)].tolist() == [slot.weight for slot in slots]
            assert weights[layer, head, len(slots) :].eq(0).all()
        if not view.signals:
            continue
        norms, n = view.signals[Norms()][layer], len(slots)
        close(norms.key[head, :n], [slot.key.norm() for slot in slots])
        close(norms.value[head, :n], [plain.read(layer, head, slot.value).norm() for slot in slots])
        for query_head in (2 * head, 2 * head + 1):
            found = view.signals[AttentionSums()][layer][query_head]
            close(found[:n], [slot.received[query_head] for slot in slots])
            found = view.signals[AttentionSums(3)][layer][query_head]
            close(found[:n], [windows.get((layer, query_head, number), 0.0) for number in range(n)])


def close(found, expected):
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found.double(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("family", "routing"), [("Qwen3", Shared()), ("Llama", Offsets()), ("Qwen3", Adaptive())], ids=str
)
def test_every_step_is_that_of_plain_lists_of_slots(family, routing, logits_of):
    model, prompt = tiny(family), outside(26, 5)
    cadence = Cadence(interval=3)
    company = [lane(keeping(Verbatim(), Adaptive(), Cadence(interval=2), draw=2), 9, seed=9)]
    policies = [keeping(state, routing, cadence, needs=MEASURED) for state in STATES.values()]
    lanes = [lane(policy, 12, seed=seed) for seed, policy in enumerate(policies)]
    *outcomes, _ = answer(model, prompt, [*lanes, *company], max_new_tokens=9)
    for seed, (policy, outcome) in enumerate(zip(policies, outcomes, strict=True)):
        chosen, plain = plain_lane(model, policy, prompt, outcome)
        assert len(policy.notes) == len(outcome.events) >= 3
        assert len(chosen) == len(outcome.token_ids) == 9
        for step, logits in enumerate(chosen):
            (found,) = (made for draw, made in logits_of.items() if draw[1:] == (seed, step))
            torch.testing.assert_close(found, logits, rtol=1e-9, atol=1e-9)
        assert outcome.held[-1] == sum(map(len, plain.held.values()))
