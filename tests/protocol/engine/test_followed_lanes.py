"""A lane that is fed the full cache's text: what it would have said itself, and how far its shares are from there."""

import math

import numpy as np
import pytest
import torch
from native_lanes import network
from plain_forward import plain_forward
from tiny_networks import tiny

import policies
from protocol import engine
from protocol.engine import Lane, Prompt, Request, sampling
from protocol.engine.batch import Batch
from protocol.engine.run_types import MAX_NATS
from protocol.engine.sampling import Draw
from protocol.formats.refusals import BadInput

CONTEXT, QUERY, NEW, BUDGET, SINKS = 40, 3, 12, 16, 4
SEEDS = (3, 5)


def prompt(query=QUERY):
    ids = torch.randint(10, 90, (CONTEXT + query,), generator=torch.Generator().manual_seed(11)).tolist()
    return Prompt(tuple(ids[:CONTEXT]), tuple(ids[CONTEXT:]))


def lanes():
    full, streaming = policies.get("full"), policies.get("streaming")
    for seed in SEEDS:
        yield Lane(f"evicts {seed}", streaming, BUDGET, seed)
        yield Lane(f"full {seed}", full, None, seed)
        yield Lane(f"holds all {seed}", streaming, CONTEXT, seed)


def run(model, asked, temperature=0.0, **settings):
    requests = [Request("p", asked, tuple(lanes())), Request("q", prompt(0), tuple(lanes()))]
    return (
        engine.run(model, requests, max_new_tokens=NEW, temperature=temperature, follows_full=True, **settings)
        .answers[0]
        .outcomes
    )


def by_one_forward(model, asked, outcome, seed, temperature):
    """Agreement and nats at each position: one forward of the whole text, with and without what was dropped."""
    text = (*asked.context, *asked.query, *outcome.token_ids)
    total = len(text)
    seen = torch.ones(total, total, dtype=torch.bool).tril()
    seen[CONTEXT:, SINKS : CONTEXT - (BUDGET - SINKS)] = False
    first = CONTEXT + len(asked.query) - 1
    config = model.network.config
    allowed = seen.expand(config.num_hidden_layers, config.num_key_value_heads, total, total)
    positions = len(outcome.token_ids) + (outcome.stop == "eos")
    sides = [plain_forward(model.network, text, mask).logits[first:][:positions] for mask in (allowed, None)]
    draws = [Draw("p", seed, step) for step in range(positions)]
    said, expected = (sampling.choose(logits, draws, temperature) for logits in sides)
    own, led = (logits.double().log_softmax(-1) for logits in sides)
    agrees = [a == b or {a, b} <= model.stop_ids for a, b in zip(said, expected, strict=True)]
    return agrees, (led.exp() * (led - own)).sum(-1)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("stops", [False, True])
def test_a_followers_choices_and_nats_are_those_of_one_forward_over_the_leaders_text(temperature, stops):
    model, asked = tiny(), prompt()
    if stops:  # at what the full cache says as its eighth token, and at another token that it never says
        text = run(model, asked, temperature)[1].token_ids
        model = model._replace(stop_ids=frozenset({text[7], 96}))
    outcomes = run(model, asked, temperature)
    differing = 0
    for number, seed in enumerate(SEEDS):
        evicting, full, whole = outcomes[3 * number : 3 * number + 3]
        assert full.divergences == ()
        for follower in (evicting, whole):
            assert (follower.token_ids, follower.stop) == (full.token_ids, full.stop)
        assert {(each.agrees, round(each.nats, 9)) for each in whole.divergences} == {(True, 0.0)}
        agrees, nats = by_one_forward(model, asked, full, seed, temperature)
        assert [each.agrees for each in evicting.divergences] == agrees
        assert [each.nats for each in evicting.divergences] == pytest.approx(nats.tolist(), rel=1e-6)
        differing += agrees.count(False)
    assert differing  # the case can tell


def test_both_kernels_say_the_same_of_a_lane_and_company_changes_nothing():
    model = network("Llama")
    eager, native = (run(model, prompt(), 0.7, kernel=kernel) for kernel in ("eager", "native"))
    for ours, other in zip(eager, native, strict=True):
        assert ours.token_ids == other.token_ids
        assert [each.agrees for each in ours.divergences] == [each.agrees for each in other.divergences]
        nats = [each.nats for each in ours.divergences]
        assert nats == pytest.approx([each.nats for each in other.divergences], abs=1e-4)
    few = (lane for lane in lanes() if lane.seed == SEEDS[1])
    alone = engine.run(
        model,
        [Request("p", prompt(), tuple(few))],
        max_new_tokens=NEW,
        temperature=0.7,
        kernel="native",
        follows_full=True,
        max_concurrent=1,  # which a lane that follows cannot be
    )
    assert [each.divergences for each in alone.answers[0].outcomes] == [each.divergences for each in native[3:]]


def test_a_lane_without_a_full_cache_of_its_seed_is_refused():
    evicting, full, _ = (lane for lane in lanes() if lane.seed == SEEDS[0])
    request = Request("p", prompt(), (evicting, full._replace(seed=9)))
    with pytest.raises(
        BadInput, match=f"lane {evicting.key}: is fed the full cache's text, but p has no full-cache lane"
    ):
        engine.run(tiny(), [request], max_new_tokens=2, follows_full=True)


def test_tokens_that_the_leader_never_says_add_nothing_and_those_that_a_follower_never_says_at_most_the_limit():
    """Infinities: 0 log 0 is 0, and no number of nats is above the limit."""
    half = [0.0, 0.0]
    assert nats_of([*half, -torch.inf], [*half, -torch.inf]) == 0
    assert nats_of([*half, -torch.inf], [*half, 0.0]) == pytest.approx(math.log(1.5))
    assert nats_of([*half, 0.0], [*half, -torch.inf]) == MAX_NATS


def test_two_stop_tokens_are_one_answer_and_a_stop_token_and_another_are_not():
    model = tiny()._replace(stop_ids=frozenset({0, 1}))
    for tokens, agrees in {
        (0, 1): True,
        (1, 0): True,
        (0, 2): False,
        (2, 1): False,
        (2, 2): True,
        (2, 3): False,
    }.items():
        assert follow(model, [[0.0] * 4] * 2, tokens).agrees == agrees, tokens


class Row:
    leader = None

    def __init__(self):
        self.divergences = []


def follow(model, logits, tokens):
    """What is noted of a follower: the leader has chosen tokens[0], itself it would have said tokens[1]."""
    batch = Batch.__new__(Batch)
    batch.model = model
    first, second = (Row() for _ in range(2))
    second.leader = first
    assert batch.follow_leaders([first, second], tokens, torch.tensor(logits), np.arange(2)) == [tokens[0]] * 2
    (divergence,) = second.divergences
    return divergence


def nats_of(leader, follower):
    return follow(tiny(), [leader, follower], [0, 1]).nats
