"""Noise is a function of problem, seed and step."""

import hashlib
import math

import numpy as np
import torch
from tiny_networks import VOCABULARY, all_kept, answer, drawn, lane, outside, tiny

from protocol.engine import sampling
from protocol.engine.sampling import Draw


def draws(seeds=(0,), step=0, problem="p"):
    return [Draw(problem, seed, step) for seed in seeds]


def test_the_likeliest_token_is_taken_at_temperature_zero_and_a_tie_goes_to_the_lowest_id():
    logits = torch.tensor([[0.0, 3.0, 3.0, 3.0], [5.0, 1.0, 5.0, 0.0]])
    assert sampling.choose(logits, draws((0, 1)), 0.0) == [1, 0]


def test_noise_is_gumbel_made_from_the_documented_stream():
    digest = hashlib.sha256(b"('gumbel', 'p', 3, 5)").digest()
    raw = np.random.Philox(key=int.from_bytes(digest[:16])).random_raw(4)
    expected = [-math.log(-math.log(((int(value) >> 12) + 0.5) / 2**52)) for value in raw]
    np.testing.assert_allclose(sampling.gumbel("p", 3, 5, 4), expected, rtol=1e-14)


def test_noise_is_finite_at_both_ends_of_the_stream(monkeypatch):
    class Ends:
        def __init__(self, key): ...

        def random_raw(self, size):
            return np.array([0, 2**64 - 1], dtype=np.uint64)

    monkeypatch.setattr(np.random, "Philox", Ends)
    assert np.isfinite(sampling.gumbel("p", 0, 0, 2)).all()


def test_draws_follow_the_softmax_at_the_given_temperature():
    logits = torch.tensor([[1.0, 0.0, -1.0, 2.0]])
    for temperature in (0.5, 2.0):
        drawn = [sampling.choose(logits, draws(step=step), temperature)[0] for step in range(4000)]
        share = np.bincount(drawn, minlength=4) / len(drawn)
        weights = np.exp(np.array([1.0, 0.0, -1.0, 2.0]) / temperature)
        np.testing.assert_allclose(share, weights / weights.sum(), atol=4 * 0.5 / math.sqrt(4000))


def test_problem_seed_and_step_each_change_the_noise():
    streams = [("p", 0, 0), ("q", 0, 0), ("p", 1, 0), ("p", 0, 1)]
    noise = [sampling.gumbel(*stream, 8).tolist() for stream in streams]
    assert len({tuple(draw) for draw in noise}) == 4


def test_lanes_of_one_batch_at_different_steps_and_problems_each_get_their_own_noise():
    logits = torch.zeros(4, VOCABULARY)
    mixed = [Draw("p", 0, 0), Draw("p", 0, 7), Draw("q", 0, 0), Draw("p", 0, 0)]
    expected = [int(sampling.gumbel(*draw, VOCABULARY).argmax()) for draw in mixed]
    assert sampling.choose(logits, mixed, 1.0) == expected
    assert len(set(expected)) == 3


def test_a_temperature_near_zero_takes_the_likeliest_token():
    logits = torch.randn(5, VOCABULARY, generator=torch.Generator().manual_seed(0))
    assert sampling.choose(logits, draws(range(5), step=2), 1e-9) == logits.argmax(-1).tolist()


def test_arms_that_see_the_same_draw_the_same_and_seeds_differ():
    lanes = [lane(all_kept(), seed=0), lane(drawn(), 40, seed=0), lane(all_kept(), seed=1)]
    outcomes = answer(tiny(), outside(40), lanes, max_new_tokens=10, temperature=1.5)
    full, everything_kept, other_seed = (outcome.token_ids for outcome in outcomes)
    assert full == everything_kept
    assert full != other_seed
    settings = {"max_new_tokens": 10, "temperature": 1.5, "problem": "another"}
    assert answer(tiny(), outside(40), lanes[:1], **settings)[0].token_ids != full


def test_sampling_leaves_the_global_generators_alone():
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    answer(tiny(), outside(40), [lane(all_kept())], max_new_tokens=3, temperature=1.0)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()
