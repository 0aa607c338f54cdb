"""Problems that follow each other with the same context, as questions about one document, feed it once."""

from dataclasses import dataclass
from dataclasses import field as dataclass_field

import pytest
import torch
from many_lanes import two_dozen_lanes
from test_run_types import shapes_of_forwards
from tiny_networks import all_kept, drawn, lane, tiny, words
from transformers import DynamicCache

from policies import FedTokens, Policy, Protect, Scores, read_signal
from protocol import engine
from protocol.engine import Prompt, Request
from protocol.presses import pressed
from protocol.presses.pressed import AsThePress, LanePrefill, Pressed

CONTEXT, OTHER = words(32), words(32, seed=1)
PARTS = dict.fromkeys(("scoring", "selection", "routing", "state", "protect"), AsThePress())


def questions(contexts, lanes):
    """A problem for each context, whose query has a length and tokens of its own."""
    return [
        Request(f"p{number}", Prompt(context, words(2 + 3 * number, seed=number + 5)), tuple(lanes))
        for number, context in enumerate(contexts)
    ]


def outcomes(model, requests):
    """One lane decodes at a time, so that no lane depends on which others there are."""
    ran = engine.run(model, requests, max_new_tokens=7, max_concurrent=1)
    return [[outcome._replace(seconds=0.0, joined=0) for outcome in each.outcomes] for each in ran.answers]


@pytest.mark.parametrize("quarter", range(4))
def test_every_problem_answers_as_it_does_alone(quarter):
    model = tiny()
    requests = questions([CONTEXT] * 3, two_dozen_lanes()[quarter::4])
    assert outcomes(model, requests) == [outcomes(model, [request])[0] for request in requests]


def test_a_context_is_fed_again_only_after_another_one():
    model = tiny()
    requests = questions([CONTEXT, CONTEXT, OTHER, CONTEXT], [lane(all_kept()), lane(drawn(1), 10)])
    shapes = shapes_of_forwards(model)
    engine.run(model, requests, max_new_tokens=1)
    assert shapes == [(1, 32), (2, 2), (2, 5), (1, 32), (2, 8), (1, 32), (2, 11)]


def test_lanes_of_other_signals_feed_the_context_again():
    model = tiny()
    (first, second) = questions([CONTEXT] * 2, [lane(all_kept())])
    shapes = shapes_of_forwards(model)
    engine.run(model, [first, second._replace(lanes=(two_dozen_lanes()[10],))], max_new_tokens=1)
    assert shapes == [(1, 32), (1, 2), (1, 32), (1, 5)]


@dataclass(frozen=True)
class PromptLength:
    """How many tokens the prompt has, whatever was fed."""

    def reads(self, layer):
        return True

    def fold(self, fed: FedTokens, before):
        return torch.full(fed.keys.shape[:-3], fed.prompt, dtype=torch.float64)

    def result(self, state):
        return state


@dataclass(frozen=True)
class ByLength:
    """Keeps the last slots of a prompt of odd length, the first ones of an even one."""

    needs: frozenset = frozenset({PromptLength()})

    def score(self, view):
        (length, *_) = (int(value) for value in read_signal(view, PromptLength()))
        places = view.positions.double()
        return Scores(places if length % 2 else -places)


def test_a_signal_that_reads_the_length_of_the_prompt_reads_that_of_its_problem():
    model = tiny()
    requests = questions([CONTEXT] * 2, [lane(Policy(scoring=ByLength(), protect=Protect(1, 1)), 10)])
    assert [len(request.prompt.context + request.prompt.query) for request in requests] == [34, 37]
    together, alone = outcomes(model, requests), [outcomes(model, [request])[0] for request in requests]
    assert together == alone
    shapes = shapes_of_forwards(model)
    engine.run(model, requests, max_new_tokens=1)
    assert shapes == [(1, 32), (1, 2), (1, 32), (1, 5)]


@dataclass(frozen=True)
class Halves(Pressed):
    """Leaves every other slot, and notes the key of each of its runs; `draws`: as if it had drawn with it."""

    draws: bool = False
    keys: list[int] = dataclass_field(default_factory=list, compare=False)

    def prefill(self, network, context, budget, key):
        self.keys.append(key)
        cache = DynamicCache()
        with pressed.native_attention(network, "sdpa"):
            output = network(torch.tensor([context]), past_key_values=cache, logits_to_keep=1)
        keys, values = ([getattr(layer, name)[0][:, ::2] for layer in cache.layers] for name in ("keys", "values"))
        return LanePrefill(keys, values, [None] * len(keys), output.logits[0, -1], len(context), self.draws)


@pytest.mark.parametrize(("draws", "runs"), [(False, 2), (True, 4)])
def test_a_press_reads_a_context_once_unless_it_draws_for_each_problem(draws, runs):
    press = Halves(**PARTS, draws=draws)
    outcomes(tiny(), questions([CONTEXT, CONTEXT, OTHER, OTHER], [lane(press, 16)]))
    assert len(press.keys) == runs
    assert len(set(press.keys)) == runs
