"""What the newer seams show a policy, against a plain forward of the whole text and loops over its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from plain_forward import of_lane, plain_forward
from sampled import sampled
from tiny_networks import DIM, HEADS, KV_HEADS, LAYERS, Q_HEADS, Adaptive, Noise, answer, lane, noted, outside, tiny

from policies import Allocation, AttentionRows, Cadence, FedTokens, PerHead, Shared
from policies.signals import EveryLayer, add_earlier
from protocol.engine import LaneFailure, Outcome
from protocol.formats.refusals import BadInput

CONTEXT, QUERY, NEW = 24, 7, 14


@dataclass(frozen=True)
class Kept:
    """Every key and value that was fed, with the prompt's length and where each piece began."""

    layers: tuple[int, ...] = (0, 1, 2)

    def reads(self, layer: int) -> bool:
        return layer in self.layers

    def fold(self, fed: FedTokens, before: Any) -> Any:
        count = fed.keys.shape[-2]
        place = torch.arange(fed.start, fed.start + count).expand(*fed.keys.shape[:-3], count)
        new = (fed.keys, fed.values, place, torch.full_like(place, fed.prompt))
        if before is None:
            return new
        axes = (-2, -2, -1, -1)
        return tuple(torch.cat(pair, axis) for *pair, axis in zip(before, new, axes, strict=True))

    def result(self, state: Any) -> Any:
        return state


@dataclass(frozen=True)
class LargestLogits(EveryLayer):
    """The largest logit of each row, token by token, and whether its token is the answer's."""

    layers: tuple[int, ...] = (0, 1, 2)
    window: ClassVar[None] = None
    raw: ClassVar[bool] = True
    of_tokens: ClassVar[bool] = True

    def reads(self, layer: int) -> bool:
        return layer in self.layers

    def attend(self, rows: AttentionRows, before: Any) -> Any:
        assert rows.kv_heads == KV_HEADS
        torch.testing.assert_close(rows.logits.softmax(-1), rows.attention)
        largest = rows.logits.amax(-1)
        new = (largest, torch.full_like(largest, float(rows.decoded)))
        return new if before is None else tuple(torch.cat(pair, -1) for pair in zip(before, new, strict=True))


@dataclass(frozen=True)
class Received(EveryLayer):
    """Attention summed over rows and heads: one head's worth of state a layer."""

    window: ClassVar[None] = None

    def attend(self, rows: AttentionRows, before: Any) -> Any:
        return add_earlier(rows.attention.sum(-2).sum(-2, keepdim=True), before)


@pytest.mark.parametrize(("interval", "chunk", "layers"), sampled([1, 3, 5], [None, 10], [(0, 1, 2), (1,)], of=2))
def test_what_is_folded_per_token_outlives_the_slots(interval, chunk, layers):
    signals = frozenset({Kept(layers), LargestLogits(layers)})
    policy = noted(Noise(1, signals), Adaptive(), Cadence(interval=interval))
    prompt, lanes = outside(CONTEXT, QUERY), [lane(noted(Noise(2)), 6), lane(policy, 10)]
    model = tiny()
    _, outcome = answer(model, prompt, lanes, max_new_tokens=NEW, prefill_chunk=chunk)
    text = prompt.context + prompt.query + outcome.token_ids[:-1]
    plain = plain_forward(model.network, text, of_lane(policy, len(text)).allowed)
    assert len(policy.notes) >= 3
    for view, _ in policy.notes:
        seen = len(view.token_ids)
        found, logits = view.signals[Kept(layers)], view.signals[LargestLogits(layers)]
        assert [layer for layer in range(LAYERS) if found[layer] is not None] == list(layers)
        for layer in layers:
            keys, values, place, length = found[layer]
            torch.testing.assert_close(keys, plain.keys[layer, :, :seen])
            torch.testing.assert_close(values, plain.values[layer, :, :seen])
            assert place.tolist() == list(range(seen))
            assert set(length.tolist()) == {CONTEXT + QUERY}
            largest, decoded = logits[layer]
            assert decoded.tolist() == Q_HEADS * [[float(p >= CONTEXT + QUERY) for p in range(seen)]]
            for head in range(Q_HEADS):
                most = []
                for row in range(seen):
                    sees = plain.weights[layer, head, row] > 0
                    own = plain.keys[layer, head // 2][sees] @ plain.queries[layer, head, row] * DIM**-0.5
                    most.append(own.max())
                torch.testing.assert_close(largest[head], torch.stack(most))


def test_one_state_for_all_heads_is_compacted_with_their_slots():
    policy = noted(Noise(1, frozenset({Received()})), Shared(), Cadence(interval=3))
    model, prompt = tiny(), outside(CONTEXT)
    (outcome,) = answer(model, prompt, [lane(policy, 10)], max_new_tokens=NEW)
    text = prompt.context + outcome.token_ids[:-1]
    plain = plain_forward(model.network, text, of_lane(policy, len(text)).allowed)
    for view, _ in policy.notes:
        seen, held = len(view.token_ids), view.positions[0, 0]
        for layer in range(LAYERS):
            expected = plain.weights[layer, :, :seen].sum((0, 1))[held]
            torch.testing.assert_close(view.signals[Received()][layer], expected[None])


def test_one_state_for_heads_that_hold_different_slots_fails_the_lane():
    policy = noted(Noise(1, frozenset({Received()})), PerHead(), Cadence(interval=3))
    (outcome,) = answer(tiny(), outside(CONTEXT), [lane(policy, 10)], max_new_tokens=NEW)
    assert outcome == LaneFailure(
        "one state for all heads of a layer needs the same slots in each head, but they differ"
    )


@dataclass(frozen=True)
class Counting(PerHead):
    """Of the budget `less` slots less for each event before, counted in what it carries."""

    less: int = 1
    bounds: ClassVar[bool] = True

    def allocate(self, view, scores, protected, budget):
        before = 0 if view.routing_state is None else int(view.routing_state[0])
        counts = torch.full(scores.slots.shape[:2], min(view.slots, budget - self.less * before))
        return Allocation(counts, (torch.tensor([before + 1]),))


@dataclass(frozen=True)
class Halved(PerHead):
    """Half of what is held, whatever the budget."""

    bounds: ClassVar[bool] = True

    def allocate(self, view, scores, protected, budget):
        return Allocation(torch.full(scores.slots.shape[:2], view.slots // 2))


def test_a_routing_gets_back_what_it_carried_and_its_budget_is_an_upper_bound():
    policy = noted(Noise(1), Counting(), Cadence(interval=4, slack=False))
    (outcome,) = answer(tiny(), outside(CONTEXT), [lane(policy, 10)], max_new_tokens=NEW)
    assert [view.routing_state and int(view.routing_state[0]) for view, _ in policy.notes] == [None, 1, 2, 3]
    assert [after for _, _, after in outcome.events] == [10 * HEADS, 9 * HEADS, 8 * HEADS, 7 * HEADS]
    assert outcome.granted == (10, 10, 10, 10)
    plain = noted(Noise(1), PerHead(), Cadence(interval=4, slack=False))
    (other,) = answer(tiny(), outside(CONTEXT), [lane(plain, 10)], max_new_tokens=NEW)
    # A position for each slot of the last event, and 8 bytes that are carried; most after the first one.
    assert other.state_bytes == 10 * HEADS * 8
    assert 8 <= outcome.state_bytes - other.state_bytes < 200  # of code that is not ours: its objects count too


def test_a_routing_that_bounds_is_asked_although_all_would_fit():
    policy = noted(Noise(1), Counting(less=-3))
    (outcome,) = answer(tiny(), outside(CONTEXT), [lane(policy, 30)], max_new_tokens=2)
    assert isinstance(outcome, Outcome)
    assert [view.slots for view, _ in policy.notes] == [CONTEXT]
    assert outcome.events == ((0, CONTEXT * HEADS, CONTEXT * HEADS),)
    halved = noted(Noise(1), Halved())
    (outcome,) = answer(tiny(), outside(CONTEXT), [lane(halved, 30)], max_new_tokens=2)
    assert outcome.events == ((0, CONTEXT * HEADS, CONTEXT // 2 * HEADS),)


def test_a_routing_that_spends_more_than_its_budget_fails_its_lane():
    policy = noted(Noise(1), Counting(less=-1), Cadence(interval=2))
    (outcome,) = answer(tiny(), outside(CONTEXT), [lane(policy, 10)], max_new_tokens=NEW)
    assert isinstance(outcome, LaneFailure)
    assert outcome.reason.startswith("routing allocated [[11, 11]")
    assert outcome.reason.endswith("whose mean is above 10")


@dataclass(frozen=True)
class Halfway:
    """An attention signal without `raw` and `of_tokens`: of a policy written for an older contract."""

    window: int | None = None
    carried: bool = True
    afresh: bool = False

    def reads(self, layer):
        return True

    def attend(self, rows, before):
        return rows.attention.sum(-2)

    def result(self, state):
        return state


def test_a_signal_of_no_kind_is_refused_by_name_and_not_left_out():
    policy = noted(Noise(1, frozenset({Halfway()})))
    with pytest.raises(BadInput, match="policy of lane a lane: Halfway is not a signal that the engine can measure"):
        answer(tiny(), outside(CONTEXT), [lane(policy, 10)], max_new_tokens=2)
