"""Noise is a function of problem, seed and step."""

import hashlib
import math

import numpy as np
import torch
from tiny_networks import VOCABULARY, Drawn, Full, lane, outside, tiny

from protocol import engine
from protocol.engine import sampling


def test_the_likeliest_token_is_taken_at_temperature_zero_and_a_tie_goes_to_the_lowest_id():
    logits = torch.tensor([[0.0, 3.0, 3.0, 3.0], [5.0, 1.0, 5.0, 0.0]])
    assert sampling.choose(logits, "p", [0, 1], 0, 0.0) == [1, 0]


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
        draws = [sampling.choose(logits, "p", [0], step, temperature)[0] for step in range(4000)]
        share = np.bincount(draws, minlength=4) / len(draws)
        weights = np.exp(np.array([1.0, 0.0, -1.0, 2.0]) / temperature)
        np.testing.assert_allclose(share, weights / weights.sum(), atol=4 * 0.5 / math.sqrt(4000))


def test_problem_seed_and_step_each_change_the_noise():
    streams = [("p", 0, 0), ("q", 0, 0), ("p", 1, 0), ("p", 0, 1)]
    draws = [sampling.gumbel(*stream, 8).tolist() for stream in streams]
    assert len({tuple(draw) for draw in draws}) == 4


def test_a_temperature_near_zero_takes_the_likeliest_token():
    logits = torch.randn(5, VOCABULARY, generator=torch.Generator().manual_seed(0))
    assert sampling.choose(logits, "p", [0, 1, 2, 3, 4], 2, 1e-9) == logits.argmax(-1).tolist()


def test_arms_that_see_the_same_draw_the_same_and_seeds_differ():
    lanes = [lane(Full(), seed=0), lane(Drawn(), 40, seed=0), lane(Full(), seed=1)]
    ran = engine.run(tiny(), outside(40), lanes, problem="p", max_new_tokens=10, temperature=1.5)
    full, everything_kept, other_seed = (outcome.token_ids for outcome in ran.outcomes)
    assert full == everything_kept
    assert full != other_seed
    again = engine.run(tiny(), outside(40), lanes[:1], problem="another", max_new_tokens=10, temperature=1.5)
    assert again.outcomes[0].token_ids != full


def test_sampling_leaves_the_global_generators_alone():
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    engine.run(tiny(), outside(40), [lane(Full())], problem="p", max_new_tokens=3, temperature=1.0)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()
