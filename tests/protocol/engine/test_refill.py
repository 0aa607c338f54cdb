"""Lanes of several problems take places as they become free, and never touch each other."""

from collections import deque

import pytest
from many_lanes import two_dozen_lanes
from sampled import sampled
from test_run_types import shapes_of_forwards, told
from tiny_networks import Refusing, all_kept, answer, drawn, lane, noted, outside, tiny

from policies import Cadence
from protocol import engine
from protocol.engine import Request


def problems(count=3, each=6):
    """Problems of different lengths, with a query or without, whose lanes are two dozen lanes in turn."""
    lanes = two_dozen_lanes()
    return [
        Request(
            f"p{number}",
            outside(32 + 3 * number, query=(2, 0, 5, 1)[number % 4], seed=number),
            tuple(lanes[(number * each + i) % len(lanes)] for i in range(each)),
        )
        for number in range(count)
    ]


def stopping_anywhere(model, requests, new):
    """The model with stop tokens at which lanes stop after none, few and many tokens."""
    said = [o.token_ids for a in engine.run(model, requests, max_new_tokens=new).answers for o in a.outcomes]
    return model._replace(stop_ids=frozenset({said[0][0], said[1][4], said[2][2], said[-1][5]}))


def company(requests, answers, max_concurrent):
    """Who decodes when, by hand: the [lane, tokens] shape of every forward, and when each lane joined.

    Steps that a lane takes are read off what it noted: an entry after the event, one after the query, and
    one a step.
    """
    queue = deque(
        (number, index, len(outcome.slots) - 1 - bool(request.prompt.query))
        for number, (request, answer) in enumerate(zip(requests, answers, strict=True))
        for index, outcome in enumerate(answer.outcomes)
    )
    shapes, joined, batch, fed, forwards = [], {}, [], set(), 0
    while queue or batch:
        while queue and len(batch) < max_concurrent:
            number, (context, query, _) = queue[0][0], requests[queue[0][0]].prompt
            if number not in fed:
                shapes.append((1, len(context)))
                fed.add(number)
            arrived = []
            while queue and queue[0][0] == number and len(batch) + len(arrived) < max_concurrent:
                arrived.append(queue.popleft())
            joined |= {(number, index): forwards for number, index, _ in arrived}
            if query:
                shapes.append((len(arrived), len(query)))
                forwards += 1
            batch += [steps for _, _, steps in arrived if steps]
        if batch:
            shapes.append((len(batch), 1))
            forwards += 1
            batch = [steps - 1 for steps in batch if steps > 1]
    return shapes, joined, forwards


@pytest.mark.parametrize("max_concurrent", sampled([3, 1, 24, 5], of=2))
def test_refill_mixes_no_lanes_and_leaves_no_place_free(max_concurrent):
    requests = problems()
    model = stopping_anywhere(tiny(), requests, 8)
    alone = [
        [answer(model, r.prompt, [one], problem=r.problem, max_new_tokens=8)[0] for one in r.lanes] for r in requests
    ]
    shapes = shapes_of_forwards(model)
    ran = engine.run(model, requests, max_new_tokens=8, max_concurrent=max_concurrent)
    outcomes = [list(answers.outcomes) for answers in ran.answers]
    assert [list(map(told, own)) for own in outcomes] == [list(map(told, own)) for own in alone]
    lengths = {len(outcome.token_ids) for own in outcomes for outcome in own}
    assert {0, 8} < lengths, "the lanes were to stop at different times"

    expected, joined, forwards = company(requests, ran.answers, max_concurrent)
    assert shapes == expected
    assert {(n, i): o.joined for n, own in enumerate(outcomes) for i, o in enumerate(own)} == joined
    assert (ran.max_concurrent, ran.forwards) == (max_concurrent, forwards)


@pytest.mark.parametrize(("temperature", "chunk"), [(0.8, 7), pytest.param(0.0, None, marks=pytest.mark.soak)])
def test_three_problems_of_two_dozen_lanes_in_any_number_of_places_say_the_same(temperature, chunk):
    model, requests = tiny(), problems(3, 24)
    settings = {"max_new_tokens": 6, "temperature": temperature, "prefill_chunk": chunk}
    runs = [engine.run(model, requests, max_concurrent=n, **settings).answers for n in (5, 24, 72)]
    first, second, third = ([list(map(told, own.outcomes)) for own in answers] for answers in runs)
    assert first == second == third


def test_the_same_run_twice_gives_the_same_company_and_memory():
    model, requests = tiny(), problems()
    first, second = (engine.run(model, requests, max_new_tokens=6, max_concurrent=4) for _ in range(2))
    for one, other in zip(first.answers, second.answers, strict=True):
        untimed = [[outcome._replace(seconds=0) for outcome in each.outcomes] for each in (one, other)]
        assert untimed[0] == untimed[1]
    assert first.peak_bytes == second.peak_bytes


def test_a_lane_that_fails_at_its_first_event_takes_no_place():
    model = tiny()
    shapes = shapes_of_forwards(model)
    failing = lane(noted(Refusing()), 9)
    request = Request("p", outside(20), (failing, lane(drawn(), 6), failing, lane(all_kept()), failing))
    engine.run(model, [request], max_new_tokens=3, max_concurrent=2)
    assert shapes == [(1, 20), (2, 1), (2, 1)]


def test_a_prompt_is_fed_when_its_first_lane_has_a_place_and_not_before():
    model = tiny()
    shapes = shapes_of_forwards(model)
    requests = [Request(f"p{n}", outside(n), (lane(drawn(), 4), lane(all_kept()))) for n in (10, 11, 12)]
    engine.run(model, requests, max_new_tokens=2, max_concurrent=2)
    assert shapes == [(1, 10), (2, 1), (1, 11), (2, 1), (1, 12), (2, 1)]


def test_lanes_whose_last_token_comes_with_the_prompt_never_decode():
    model = tiny()
    shapes = shapes_of_forwards(model)
    lanes = tuple(lane(drawn(n, cadence=Cadence(interval=2)), 4) for n in range(5))
    ran = engine.run(model, [Request("p", outside(10, 2), lanes)], max_new_tokens=1, max_concurrent=2)
    assert shapes == [(1, 10), (2, 2), (2, 2), (1, 2)]
    assert [outcome.stop for outcome in ran.answers[0].outcomes] == ["length"] * 5
