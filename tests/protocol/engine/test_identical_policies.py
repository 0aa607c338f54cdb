"""Which policies of the catalogue are one and the same experiment under two names.

Two arms that keep the same slots are one experiment that is paid for twice. Every pair that does so here, on
random views, is listed by hand; a new name that repeats an older one fails until it is listed.
"""

from dataclasses import replace
from itertools import combinations

import pytest
import torch
from tiny_networks import answer, competing, lane, outside, tiny, watched

import policies
from protocol.engine import LaneFailure

DEEPER = 8
"""Layers, so that a band of layers is more than one layer."""
EVICTING = tuple(name for name in policies.names() if policies.get(name).evicts)

ALIKE_UNTIL_DECODING = [
    {"1d", "schedule-front", "schedule-back", "schedule-inverted", "subspace", "state_ask", "state_emit"},
    {"syn_mem", "syn_mem-2", "syn_mem-3", "syn_mem-attention", "syn_mem-massless", "syn_mem-attention-massless"},
    {"1d_div-1.0", "1d_div-scheduled"},
    {"thinkv", "thinkv-annealed"},
    {"crystal", "crystal-static-graph", "crystal-still"},
    {"crystal-kv-lite", "crystal-kv"},
    {"epikv", "segment-hs"},
]
"""Keep the same slots of a prompt, by construction: they differ in what happens at later events. Spans are of
equal cuts while those of syn_mem-2 are shorter than its longest.
"""

ALIKE_WITH_ROOM = [{"crystal", "crystal-static-graph", "crystal-still", "crystal-over-budget"}]
"""Keep the same slots wherever the budget holds the protected trunks, by construction."""

ALIKE_FOR_LONG = [{"crystal-kv-lite", "crystal-kv"}, {"epikv", "segment-hs"}, {"thinkv", "thinkv-annealed"}]
"""Keep the same slots of short answers too: budgets first move, and a segment closes, after 128 tokens."""

ALIKE_UNASKED = [{"1d", "subspace", "state_ask"}]
"""Keep the same slots of the same text: here nothing is asked, and values are coded without loss."""

ALIKE_IN_ALL = [{"streaming", "streamingllm-rkv"}, {"syn_mem", "syn_mem-3"}]
"""Differ in nothing that can be seen here: one experiment, under two names of papers."""


def kept(budget, *, seed=0, ends=24, interval=None, new=1, names=EVICTING):
    """What each policy keeps at every event on a random prompt of 300 tokens, or how it fails, by name.

    ends: how many of 97 tokens end a sentence; 24 give about 70 sentences, and none gives trunks of 32.
    """
    model = tiny(dtype=torch.float32, num_hidden_layers=DEEPER)._replace(sentence_ends=frozenset(range(ends)))
    noting = {}
    for name in names:
        policy = competing(policies.get(name))
        if interval and policy.prefill_only_signals:
            continue
        noting[name] = watched(replace(policy, cadence=replace(policy.cadence, interval=interval)))
    lanes = [lane(policy, budget, seed=1) for policy in noting.values()]
    outcomes = answer(model, outside(300, seed=seed), lanes, max_new_tokens=new)
    return {
        name: (
            outcome.reason if isinstance(outcome, LaneFailure) else "",
            tuple(mask.numpy().tobytes() for _, mask in policy.notes),
        )
        for (name, policy), outcome in zip(noting.items(), outcomes, strict=True)
    }


@pytest.fixture(scope="module")
def with_room():
    return [kept(budget, seed=seed) for seed, budget in enumerate((200, 215, 240, 270))]


@pytest.fixture(scope="module")
def tight():
    """Below what the trunks of these prompts protect, and above the 132 slots that their ends are."""
    return [kept(budget, seed=seed, ends=0) for seed, budget in enumerate((140, 150))]


@pytest.fixture(scope="module")
def later():
    return [kept(210, interval=8, new=34)]


def alike(views):
    """Every pair that keeps the same in all of these views."""
    names = [name for name in EVICTING if all(name in view for view in views)]
    return {frozenset(pair) for pair in combinations(names, 2) if all(view[pair[0]] == view[pair[1]] for view in views)}


def pairs(groups):
    return {frozenset(pair) for group in groups for pair in combinations(sorted(group), 2)}


def test_policies_that_keep_the_same_slots_of_a_prompt_are_known(with_room):
    assert alike(with_room) == pairs(ALIKE_UNTIL_DECODING + ALIKE_WITH_ROOM + ALIKE_IN_ALL)


def test_what_a_budget_below_the_protected_trunks_tells_apart(with_room, tight):
    assert alike(with_room + tight) == pairs(ALIKE_UNTIL_DECODING + ALIKE_IN_ALL)


def test_no_two_policies_keep_the_same_slots_at_every_event(with_room, tight, later):
    assert alike(with_room + tight + later) == pairs(ALIKE_IN_ALL + ALIKE_FOR_LONG + ALIKE_UNASKED)


@pytest.mark.soak
def test_a_long_answer_tells_apart_what_short_ones_do_not():
    for names in ALIKE_FOR_LONG:
        assert not alike([kept(100, interval=16, new=150, names=sorted(names))])


def test_a_second_name_of_a_policy_would_be_noticed(with_room):
    """And so would one that differs in a setting which decides nothing."""
    again = [view | {"streaming": view["h2o"]} for view in with_room]
    assert alike(again) - alike(with_room) == pairs([{"streaming", "h2o"}])


def test_the_two_ablations_of_the_impact_dissolve_the_same_trunks(with_room):
    """`crystal-uniform` and `crystal-d-only` rank trunks by D: what they keep differs by a part of one trunk,
    which has 32 slots at most.
    """
    for view in with_room:
        one, other = (
            torch.frombuffer(bytearray(view[name][1][0]), dtype=torch.bool).view(DEEPER, 2, -1)
            for name in ("crystal-uniform", "crystal-d-only")
        )
        differing = (one != other)[0, 0].nonzero().flatten().tolist()
        assert len(differing) % 2 == 0
        assert not differing or differing[-1] - differing[0] < 32
