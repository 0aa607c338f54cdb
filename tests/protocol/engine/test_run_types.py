"""Lanes share one prefill and one batch, and nothing else."""

import pytest
import torch
from many_lanes import two_dozen_lanes
from sampled import sampled
from tiny_networks import (
    FAMILIES,
    LAYERS,
    Adaptive,
    Earliest,
    Faulty,
    Refusing,
    all_kept,
    answer,
    drawn,
    lane,
    noted,
    outside,
    tiny,
)

from policies import Blockwise, Cadence, Policy
from policies.scissorhands import scissorhands
from policies.signals import HiddenChange
from protocol import engine
from protocol.engine import Lane, LaneFailure, Prompt, Request
from protocol.formats.refusals import BadInput


def told(outcome):
    """What must not depend on the company: all but the memory of the pool, the clock and who was there."""
    return (outcome.token_ids, outcome.stop, outcome.slots, outcome.events, outcome.state_bytes)


def shapes_of_forwards(model):
    """The [lane, tokens] shape of every forward from now on."""
    shapes = []
    model.network.register_forward_pre_hook(
        lambda module, given, named: shapes.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )
    return shapes


@pytest.mark.parametrize(("family", "temperature"), sampled(FAMILIES, [0.0, 0.8], of=2))
def test_a_lane_alone_and_in_a_batch_of_24_says_and_holds_the_same(family, temperature, device):
    model, lanes = tiny(family, device=device), two_dozen_lanes()
    settings = {"max_new_tokens": 8, "temperature": temperature}
    together = answer(model, outside(32, 2), lanes, **settings)
    alone = [answer(model, outside(32, 2), [one], **settings)[0] for one in lanes]
    assert list(map(told, together)) == list(map(told, alone))
    assert len({outcome.token_ids for outcome in alone}) > 12
    assert sum(len(outcome.events) > 2 for outcome in alone) >= 9


def test_the_context_is_fed_once_and_then_all_lanes_go_as_one_batch():
    model = tiny()
    shapes = shapes_of_forwards(model)
    lanes = [lane(all_kept()), lane(drawn(1), 10), lane(drawn(2, Adaptive()), 20)]
    answer(model, outside(40, 4), lanes, max_new_tokens=3)
    assert shapes == [(1, 40), (3, 4), (3, 1), (3, 1)]


def test_a_view_tells_the_prompt_and_a_stream_shared_by_all_arms_of_a_seed():
    watchers = [noted(Earliest()) for _ in range(3)]
    lanes = [lane(watcher, 5, seed) for watcher, seed in zip(watchers, (0, 0, 1), strict=True)]
    prompt = outside(40)
    answer(tiny(), prompt, lanes, problem="p", max_new_tokens=1)
    answer(tiny(), prompt, lanes[:1], problem="q", max_new_tokens=1)
    view = watchers[0].notes[0][0]
    assert (tuple(view.token_ids.tolist()), view.token_ids.dtype) == (prompt.context, torch.int64)
    assert (view.layers, view.kv_heads, view.sentence_ends) == (3, 2, frozenset({7}))
    p0, p0_again, p1, q0 = (w.notes[i][0].seed for w, i in zip([*watchers, watchers[0]], (0, 0, 0, 1), strict=True))
    assert p0 == p0_again
    assert len({p0, p1, q0}) == 3
    assert all(0 <= seed < 2**64 for seed in (p0, p1, q0))


def test_every_event_has_a_stream_of_its_own_shared_by_all_arms_of_a_seed():
    watchers = [noted(Earliest(), cadence=Cadence(interval=2, slack=False)) for _ in range(2)]
    answer(tiny(), outside(20), [lane(watcher, 5) for watcher in watchers], max_new_tokens=7)
    streams = [[view.seed for view, _ in watcher.notes] for watcher in watchers]
    assert streams[0] == streams[1]
    assert len(set(streams[0])) == 4


def test_a_view_holds_what_its_own_policy_declared_whoever_else_is_in_the_batch():
    watchers = [noted(Earliest()), noted(Earliest(frozenset({HiddenChange((1,), None)})))]
    answer(tiny(), outside(40), [lane(watcher, 5) for watcher in watchers], max_new_tokens=1)
    assert [set(watcher.notes[0][0].signals) for watcher in watchers] == [set(), {HiddenChange((1,), None)}]


def test_a_policy_that_refuses_fails_its_own_lane_only():
    model, prompt = tiny(), outside(40)
    lanes = [lane(drawn(1), 10), lane(noted(Refusing()), 9), lane(all_kept())]
    first, failed, last = answer(model, prompt, lanes, max_new_tokens=4)
    assert failed == LaneFailure("scores: a prompt of 40 tokens is too short; lengthen it")
    without = answer(model, prompt, [lanes[0], lanes[2]], max_new_tokens=4)
    assert [told(first), told(last)] == list(map(told, without))


def test_when_every_policy_refuses_nothing_is_decoded():
    model = tiny()
    shapes = shapes_of_forwards(model)
    outcomes = answer(model, outside(40), [lane(noted(Refusing()), 9)] * 2, max_new_tokens=4)
    assert [type(outcome) for outcome in outcomes] == [LaneFailure] * 2
    assert shapes == [(1, 40)]


def test_a_problem_whose_lanes_all_fail_leaves_the_other_problems_as_they_are():
    model = tiny()
    broken = Request("p0", outside(20), (lane(noted(Refusing()), 9),))
    sound = Request("p1", outside(20, seed=1), (lane(drawn(), 9), lane(all_kept())))
    for requests in ([broken, sound], [sound, broken], [broken, broken._replace(problem="p2"), sound]):
        answers = engine.run(model, requests, max_new_tokens=3, max_concurrent=1).answers
        kinds = [[type(outcome) for outcome in one.outcomes] for one in answers]
        assert kinds == [
            [LaneFailure if request is not sound else engine.Outcome for _ in request.lanes] for request in requests
        ]


def test_a_fault_of_a_policy_fails_its_own_lane_and_is_not_hidden():
    faulty, sound = answer(tiny(), outside(40), [lane(noted(Faulty()), 9), lane(drawn(), 9)], max_new_tokens=4)
    assert faulty == LaneFailure("KeyError: 'a signal it never declared'")
    assert len(sound.token_ids) == 4


def test_a_request_that_is_given_twice_is_answered_twice():
    request = Request("p", outside(20), (lane(drawn(), 6),))
    first, second = engine.run(tiny(), [request, request], max_new_tokens=3).answers
    assert list(map(told, first.outcomes)) == list(map(told, second.outcomes))
    assert len(first.outcomes) == 1


REFUSED = {
    "requests: is empty": {"requests": []},
    "prompt.context of p: is empty": {"prompt": Prompt((), (1,))},
    "lanes of p: is empty": {"lanes": ()},
    "max_new_tokens: 0 given": {"max_new_tokens": 0},
    "temperature: -1.0 given": {"temperature": -1.0},
    "temperature: nan given": {"temperature": float("nan")},
    "top_p: 0.0 given": {"top_p": 0.0},
    "top_p: 1.5 given": {"top_p": 1.5},
    "top_p: nan given": {"top_p": float("nan")},
    "max_concurrent: 0 given; at least 1": {"max_concurrent": 0},
    "prefill_chunk: 0 given; at least 1": {"prefill_chunk": 0},
    "first_event: -1 given; use 1 .after the first token., or 0": {"first_event": -1},
    "budget of lane x/0.5: None given; give a number": {"lanes": (Lane("x/0.5", drawn(), None, 0),)},
    "budget of lane full: 12 given; None is only for a policy that never": {
        "lanes": (Lane("full", all_kept(), 12, 0),)
    },
    "interval of lane c/0.5: NeglectCounts cannot be measured while decoding; leave the interval out": {
        "lanes": (Lane("c/0.5", Policy(scissorhands().scoring, cadence=Cadence(interval=4)), 9, 0),)
    },
    "blocks of lane b/9: NeglectCounts cannot be measured block by block; choose a cadence without": {
        "lanes": (Lane("b/9", Policy(scissorhands().scoring, cadence=Blockwise()), 9, 0),)
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_run_is_refused_by_name_before_anything_is_fed(message):
    changes = dict(REFUSED[message])
    request = Request("p", changes.pop("prompt", outside(40)), changes.pop("lanes", (lane(all_kept()),)))
    sound = Request("q", outside(20), (lane(all_kept()),))
    model = tiny()
    shapes = shapes_of_forwards(model)
    with pytest.raises(BadInput, match=message):
        engine.run(model, **({"requests": [sound, request], "max_new_tokens": 2} | changes))
    assert shapes == []


def test_a_layer_that_the_model_does_not_have_is_refused_by_name():
    watcher = noted(Earliest(frozenset({HiddenChange((LAYERS,), None)})))
    with pytest.raises(BadInput, match="the policy reads the output of layer 3, but the model has 3 layers"):
        answer(tiny(), outside(40), [lane(watcher, 9)], max_new_tokens=2)
