"""After an event a lane sees its kept slots, at the positions they had, and nothing else."""

import pytest
import torch
from plain_forward import of_lane, plain_forward
from sampled import sampled
from tiny_networks import FAMILIES, Adaptive, Offsets, all_kept, answer, drawn, lane, outside, tiny

from policies import Cadence
from protocol import engine
from protocol.engine import Request
from protocol.engine.sampling import Draw


def every_event(*, slack=True, interval=4):
    return Cadence(interval=interval, slack=slack)


def assert_equals_plain_forward(model, request, given, outcome, logits_of):
    """Every choice of the lane was made from the logits of one forward with masks for what it has evicted."""
    prompt = request.prompt
    told = prompt.context + prompt.query
    fed = told + outcome.token_ids[:-1]
    plain = plain_forward(model.network, fed, of_lane(given.policy, len(fed)).allowed)
    for step in range(len(outcome.token_ids)):
        found = logits_of[Draw(request.problem, given.seed, step)]
        torch.testing.assert_close(found, plain.logits[len(told) - 1 + step], rtol=1e-9, atol=1e-9)


def assert_all_equal_plain_forwards(model, requests, logits_of, **settings):
    ran = engine.run(model, requests, **settings)
    for request, answers in zip(requests, ran.answers, strict=True):
        for given, outcome in zip(request.lanes, answers.outcomes, strict=True):
            assert_equals_plain_forward(model, request, given, outcome, logits_of)
    return ran


def numbered(*policies_and_budgets):
    """Lanes told apart by their seeds, which decide nothing else here."""
    return tuple(lane(*given, seed=seed) for seed, given in enumerate(policies_and_budgets))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("query", [0, 4])
def test_logits_after_the_event_are_those_of_attention_over_the_kept_slots(family, query, logits_of, device):
    lanes = numbered((drawn(1), 10), (all_kept(),), (drawn(2), 10), (drawn(3), 25))
    request = Request("p", outside(40, query), lanes)
    ran = assert_all_equal_plain_forwards(tiny(family, device=device), [request], logits_of, max_new_tokens=6)
    assert len({outcome.token_ids for outcome in ran.answers[0].outcomes}) > 1, "eviction changed nothing"


@pytest.mark.parametrize("query", [0, 4])
def test_heads_may_hold_different_numbers_of_slots_even_none(query, logits_of):
    lanes = numbered((drawn(1, Offsets()), 10), (drawn(2), 20), (drawn(4, Offsets()), 10), (drawn(5, Adaptive()), 12))
    request = Request("p", outside(40, query), lanes)
    assert_all_equal_plain_forwards(tiny(), [request], logits_of, max_new_tokens=6)
    assert (lanes[0].policy.notes[0][1].sum(-1) == torch.tensor([[3, 17], [20, 0], [10, 10]])).all()


@pytest.mark.parametrize(("family", "query", "slack"), sampled(FAMILIES, [0, 5], [True, False], of=3))
def test_logits_after_every_event_while_decoding_are_those_of_the_slots_left(family, query, slack, logits_of, device):
    cadence = every_event(slack=slack)
    lanes = numbered(
        (drawn(1, cadence=cadence), 10),
        (drawn(2, Offsets(), cadence), 10),
        (drawn(3, Adaptive(), cadence), 10),
        (drawn(4, Adaptive(), every_event(slack=slack, interval=1)), 7),
        (all_kept(),),
    )
    request = Request("p", outside(30, query), lanes)
    model = tiny(family, device=device)
    ran = assert_all_equal_plain_forwards(model, [request], logits_of, max_new_tokens=15)
    assert all(len(outcome.events) >= 4 for outcome in ran.answers[0].outcomes[:4])


def test_several_problems_and_layouts_in_one_batch_with_few_places_see_their_own_slots(logits_of):
    requests = [
        Request(
            f"p{number}",
            outside(20 + 9 * number, query=(0, 3, 1)[number], seed=number),
            numbered(
                (drawn(number, Adaptive(), every_event()), 8),
                (drawn(number + 5, cadence=every_event(interval=3)), 11 - number),
                (drawn(number + 9, Offsets()), 10),
                (all_kept(),),
            ),
        )
        for number in range(3)
    ]
    for max_concurrent in (12, 5):
        for request in requests:
            for given in request.lanes:
                given.policy.notes.clear()
        assert_all_equal_plain_forwards(
            tiny(), requests, logits_of, max_new_tokens=11, max_concurrent=max_concurrent, prefill_chunk=7
        )


def test_the_oracle_notices_one_slot_in_one_head(logits_of):
    given = drawn(1)
    request = Request("p", outside(40, 4), numbered((given, 30)))
    model = tiny()
    (answers,) = engine.run(model, [request], max_new_tokens=6).answers
    kept = given.notes[0][1]
    gone = (~kept[2, 1]).nonzero()[0]
    kept[2, 1, gone] = True
    with pytest.raises(AssertionError):
        assert_equals_plain_forward(model, request, request.lanes[0], answers.outcomes[0], logits_of)


def positions_of_forwards(model):
    noted = []
    model.network.register_forward_pre_hook(
        lambda module, given, named: noted.append(named["position_ids"].tolist()), with_kwargs=True
    )
    return noted


def test_new_tokens_stand_at_the_number_of_tokens_seen_not_of_slots_held():
    model = tiny()
    positions = positions_of_forwards(model)
    answer(model, outside(40, 3), [lane(drawn(), 5)], max_new_tokens=3)
    assert positions == [[list(range(40))], [[40, 41, 42]], [[43]], [[44]]]


def test_positions_stay_absolute_after_events_while_decoding_and_in_chunks():
    model = tiny()
    positions = positions_of_forwards(model)
    policy = drawn(cadence=every_event(slack=False, interval=2))
    settings = {"max_new_tokens": 6, "prefill_chunk": 4, "first_event": 0}
    (outcome,) = answer(model, outside(10, 3), [lane(policy, 5)], **settings)
    assert [step for step, _, _ in outcome.events] == [0, 0, 2, 4]
    chunks = [[[0, 1, 2, 3]], [[4, 5, 6, 7]], [[8, 9]]]
    assert positions == [*chunks, [[10, 11, 12]], [[13]], [[14]], [[15]], [[16]], [[17]]]


def test_lanes_of_different_problems_stand_at_positions_of_their_own():
    model = tiny()
    positions = positions_of_forwards(model)
    requests = [Request(f"p{n}", outside(n), (lane(drawn(), 4),)) for n in (8, 12)]
    engine.run(model, requests, max_new_tokens=3, max_concurrent=2)
    assert positions[2:] == [[[8], [12]], [[9], [13]]]
