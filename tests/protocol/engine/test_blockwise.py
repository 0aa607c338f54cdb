"""Prompts that are read block by block, each block over what the event before it left."""

import pytest
import torch
from plain_forward import History, of_lane, plain_forward
from sampled import sampled
from test_events import accumulated, assert_slots_equal, of_window, watching
from test_run_types import told
from tiny_networks import (
    FAMILIES,
    HEADS,
    KV_HEADS,
    LAYERS,
    Adaptive,
    Offsets,
    Refusing,
    all_kept,
    answer,
    drawn,
    lane,
    noted,
    outside,
    tiny,
)

import policies
from policies import Blockwise, Cadence, Protect
from policies.caote import caote
from policies.keydiff import keydiff
from policies.lagkv import lag_scores, lagkv
from policies.signals import AttentionSums, Norms
from protocol.engine import LaneFailure, Outcome


def boundaries(context, block, budget):
    """Tokens fed at each event, by hand: blocks are counted from the first token of the text."""
    fed = [stop for stop in range(block, context, block) if stop > budget]
    return [*fed, context]


ROUTINGS = {"uniform": None, "offsets": Offsets(((-2, 2), (2, -2), (0, 0))), "adaptive": Adaptive()}


@pytest.mark.parametrize(
    ("family", "routing", "chunk", "interval"), sampled(FAMILIES, tuple(ROUTINGS), [None, 4], [None, 5], of=6)
)
def test_what_is_told_and_said_is_what_loops_over_a_plain_forward_find(
    family, routing, chunk, interval, device, logits_of
):
    """At every event, in the prompt and in the answer, and at every step: ragged, and in company."""
    model, prompt = tiny(family, device=device), outside(45, 4)
    policy = watching(ROUTINGS[routing], Blockwise(block=6, interval=interval))
    company = [lane(drawn(2, Adaptive()), 10, seed=1), lane(all_kept(), seed=2)]
    lanes = [company[0], lane(policy, 10), company[1]]
    outcome = answer(model, prompt, lanes, max_new_tokens=8, prefill_chunk=chunk)[1]
    assert isinstance(outcome, Outcome), outcome
    text = prompt.context + prompt.query + outcome.token_ids[:-1]
    plain = plain_forward(model.network, text, of_lane(policy, len(text)).allowed)
    for step in range(8):
        torch.testing.assert_close(
            logits_of["p", 0, step], plain.logits[len(prompt.context) + 3 + step], rtol=1e-9, atol=1e-9
        )
    in_prompt = [len(view.token_ids) for view, _ in policy.notes if len(view.token_ids) <= 45]
    assert in_prompt == boundaries(45, 6, 10) == [12, 18, 24, 30, 36, 42, 45]
    assert (len(policy.notes) > len(in_prompt)) == (interval is not None)
    history = History(len(text))
    for view, kept in policy.notes:
        seen = len(view.token_ids)
        assert view.prompt == min(seen, 49)
        history.feed(seen)
        positions = view.positions.expand(LAYERS, KV_HEADS, -1)
        for (layer, head), held in history.held.items():
            assert [place for place in positions[layer, head].tolist() if place >= 0] == held
            for name in ("key", "value"):
                found = getattr(view.signals[Norms()][layer], name)[head, : len(held)]
                stored = getattr(plain, f"{name}s")[layer, head, held]
                torch.testing.assert_close(found, stored.square().sum(-1).sqrt())
        assert_slots_equal(view.signals[AttentionSums()], accumulated(plain, seen), history)
        assert_slots_equal(view.signals[AttentionSums(6)], of_window(plain, history, seen, 6), history)
        history.evict(kept)
    # One entry for the prompt: all of its tokens, and what the last of its events left.
    assert outcome.events[0] == (0, HEADS * 45, HEADS * 10)
    assert outcome.slots[:2] == (HEADS * 10, HEADS * 14)
    assert outcome.granted[0] == 10
    assert (outcome.state_bytes == 0) == (interval is None)


def by_loops(model, context, block, budget, scores):
    """Positions that every head holds at the end: after each block the best `budget` by `scores` of what a
    plain forward of the text so far finds; later tokens see these alone.
    """
    history = History(len(context))
    for stop in boundaries(len(context), block, budget):
        plain = plain_forward(model.network, context[:stop], history.allowed[..., :stop, :stop])
        history.feed(stop)
        kept = torch.zeros(LAYERS, KV_HEADS, max(map(len, history.held.values())), dtype=torch.bool)
        for (layer, head), held in history.held.items():
            rows = plain.weights[layer, 2 * head : 2 * head + 2, -1, held]
            worth = scores(plain.keys[layer, head, held], plain.values[layer, head, held], rows)
            best = sorted(range(len(held)), key=lambda slot, worth=worth: (-worth[slot], slot))[:budget]
            kept[layer, head, best] = True
        history.evict(kept)
    return history


def unlike_the_mean(keys, values, rows):
    units = [key / key.norm() for key in keys]
    mean = sum(units) / len(units)
    return [-float(unit @ mean / mean.norm()) for unit in units]


def lagging(keys, values, rows):
    return lag_scores(keys[None], values[None], sinks=2, lag=5)[0].tolist()


def missed(keys, values, rows):
    """How far the output of the last query moves without a slot, the mean of the two heads of a group."""
    worth = [0.0] * len(values)
    for shares in rows:
        output = shares @ values
        for slot, value in enumerate(values):
            without = (output - shares[slot] * value) / (1 - shares[slot])
            worth[slot] += float((without - output).norm()) / 2
    return worth


LOOPS = {"keydiff": (keydiff(), unlike_the_mean), "lagkv": (lagkv(sinks=2, lag=5), lagging), "caote": (caote(), missed)}


@pytest.mark.parametrize("name", LOOPS)
def test_keydiff_lagkv_and_caote_in_blocks_keep_what_plain_loops_keep(name):
    policy, scores = LOOPS[name]
    model, prompt = tiny(), outside(50)
    cadence = Blockwise(block=7)
    watched = noted(policy.scoring, policy.routing, cadence, policy.protect)
    answer(model, prompt, [lane(watched, 14)], max_new_tokens=1)
    expected = by_loops(model, prompt.context, 7, 14, scores)
    assert of_lane(watched, 50).held == expected.held
    # In one go the same policy keeps other slots, since it saw other keys and all of them at once.
    whole = noted(policy.scoring, policy.routing, Cadence(), policy.protect)
    answer(model, prompt, [lane(whole, 14)], max_new_tokens=1)
    assert of_lane(whole, 50).held != expected.held
    plain = plain_forward(model.network, prompt.context, expected.allowed)
    torch.testing.assert_close(of_lane(watched, 50).allowed, expected.allowed)
    again = answer(model, prompt, [lane(watched, 14)], max_new_tokens=1)
    assert again[0].token_ids == (int(plain.logits[-1].argmax()),)


@pytest.mark.parametrize("name", ["keydiff", "lagkv", "h2o", "snapkv"])
@pytest.mark.parametrize("interval", [None, 4])
def test_a_block_as_long_as_the_prompt_is_the_parent_exactly(name, interval):
    settings = {"protect": Protect(2, 3)} if name != "h2o" else {}
    given = [
        lane(policies.get(name, cadence=cadence, **settings), 40)
        for cadence in (Cadence(interval=interval), Blockwise(interval=interval, block=60))
    ]
    parent, child = answer(tiny(), outside(60, 3), given, max_new_tokens=8)
    assert isinstance(parent, Outcome)
    assert told(parent) == told(child)
    shorter = lane(policies.get(name, cadence=Blockwise(interval=interval, block=30), **settings), 40)
    (other,) = answer(tiny(), outside(60, 3), [shorter], max_new_tokens=8)
    assert other.events[0] == parent.events[0]


def test_a_budget_for_all_of_the_prompt_reads_it_once():
    one, other = (lane(drawn(1, cadence=cadence), 45) for cadence in (Cadence(), Blockwise(block=6)))
    first, second = answer(tiny(), outside(45), [one, other], max_new_tokens=6)
    assert told(first) == told(second)
    assert len(other.policy.notes) == 1


def test_samples_and_lanes_in_places_of_their_own_are_those_of_each_alone():
    """Five lanes in two places, which they take in their order: those that wait keep what they read."""
    cadence = Blockwise(block=8)
    lanes = [lane(drawn(1, routing, cadence), 10, seed=seed) for seed in (0, 1) for routing in (None, Adaptive())]
    lanes.insert(2, lane(drawn(3, Adaptive()), 12))
    together = answer(tiny(), outside(40, 2), lanes, max_new_tokens=6, max_concurrent=2)
    alone = [answer(tiny(), outside(40, 2), [one], max_new_tokens=6)[0] for one in lanes]
    assert list(map(told, together)) == list(map(told, alone))
    joined = [outcome.joined for outcome in together]
    assert joined == sorted(joined)
    assert joined[1] == 0 < joined[2]


def test_a_policy_that_refuses_a_block_fails_its_lane_alone():
    small = lane(noted(Refusing(), cadence=Blockwise(block=6)), 10)
    late = lane(noted(Late(), cadence=Blockwise(block=6)), 10)
    sound = lane(drawn(1, cadence=Blockwise(block=6)), 10)
    first, second, third = answer(tiny(), outside(30), [small, late, sound], max_new_tokens=2)
    assert first == LaneFailure("scores: a prompt of 40 tokens is too short; lengthen it")
    assert second == LaneFailure("scores: 24 tokens are too many")
    assert isinstance(third, Outcome)


class Late(type(Refusing())):
    def score(self, view):
        if len(view.token_ids) == 24:
            raise ValueError("scores: 24 tokens are too many")
        return drawn(1).scoring.score(view)


def test_blocks_are_whole_numbers_of_tokens_of_a_policy_that_evicts():
    with pytest.raises(ValueError, match="block must be 1 token or more, not 0"):
        Blockwise(block=0)
    with pytest.raises(ValueError, match="block needs at_prefill"):
        Blockwise(at_prefill=False)
    cadence = Blockwise(block=128)
    assert [cadence.initial_tokens(1000, budget) for budget in (1, 127, 128, 200, 999)] == [128, 128, 256, 256, 1000]


@pytest.mark.parametrize("name", LOOPS)
def test_the_published_forms_differ_from_their_parents_in_the_cadence_alone(name):
    assert set(policies.diff(policies.get(name), policies.get(f"{name}-blocks"))) == {"cadence"}
