"""Noise is a function of problem, seed and step."""

import hashlib
import math

import numpy as np
import torch
import transformers
from looped import looped
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
    np.testing.assert_allclose(noise(Draw("p", 3, 5), 4), expected, rtol=1e-14)


def noise(draw, size):
    """Of one draw, as its definition has it."""
    digest = hashlib.sha256(repr(("gumbel", *draw)).encode()).digest()
    return sampling.gumbel(np.random.Philox(key=int.from_bytes(digest[:16])).random_raw(size))


@looped("size", [1, 3, 4, 189])  # a Philox makes four numbers at a time
def test_each_of_many_draws_has_the_stream_of_a_generator_of_its_own(size):
    made = [Draw(f"p{number % 7}", number % 3, number) for number in range(1000)]
    for draw, raw in zip(made, sampling.stream(made, size), strict=True):
        assert np.array_equal(sampling.gumbel(raw), noise(draw, size))


def test_noise_is_finite_at_both_ends_of_the_stream_and_rises_with_it():
    ends = np.array([0, 2**63, 2**64 - 1], dtype=np.uint64)
    assert np.isfinite(sampling.gumbel(ends)).all()
    assert (np.diff(sampling.gumbel(ends)) > 0).all()


@looped("temperature", [1e-9, 0.6, 1.0, 1e6])
@looped("spread", [0.0, 1.0, 30.0])
def test_the_token_is_the_one_that_noise_for_every_token_gives(temperature, spread):
    """Noise is formed for the tokens alone that it can lift to the top."""
    logits = spread * torch.randn(50, 70, generator=torch.Generator().manual_seed(3)).round(decimals=1)
    logits[::2, 5:9] = -torch.inf
    made = [Draw("p", lane % 5, lane // 5) for lane in range(50)]
    whole = logits.double() / temperature + torch.tensor(np.stack([noise(draw, 70) for draw in made]))
    assert sampling.choose(logits, made, temperature) == whole.argmax(-1).tolist()


def test_draws_follow_the_softmax_at_the_given_temperature():
    logits = torch.tensor([[1.0, 0.0, -1.0, 2.0]])
    for temperature in (0.5, 2.0):
        drawn = [sampling.choose(logits, draws(step=step), temperature)[0] for step in range(4000)]
        share = np.bincount(drawn, minlength=4) / len(drawn)
        weights = np.exp(np.array([1.0, 0.0, -1.0, 2.0]) / temperature)
        np.testing.assert_allclose(share, weights / weights.sum(), atol=4 * 0.5 / math.sqrt(4000))


def by_hand(shares, top_p):
    """Tokens of the nucleus: the likeliest first, until what is there is at least top_p."""
    kept, total = set(), 0.0
    for token in sorted(range(len(shares)), key=lambda token: (-shares[token], token)):
        kept.add(token)
        total += shares[token]
        if total >= top_p:
            return kept
    return kept


SHARES = [0.125, 0.5, 0.0625, 0.125, 0.125, 0.0625]  # exact in binary, as are their sums


@looped(
    ("top_p", "kept"),
    [
        (1e-9, {1}),
        (0.5, {1}),
        (0.5001, {1, 0}),  # of three that are equally likely, the lowest id
        (0.625, {1, 0}),
        (0.75, {1, 0, 3}),
        (0.76, {1, 0, 3, 4}),
        (0.9, {1, 0, 3, 4, 2}),
        (0.99, {1, 0, 3, 4, 2, 5}),
    ],
)
def test_the_nucleus_is_the_smallest_set_that_reaches_top_p(top_p, kept):
    logits = torch.tensor([SHARES]).double().log() * 0.7
    found = sampling.nucleus(logits, 0.7, top_p)[0].nonzero().flatten().tolist()
    assert set(found) == by_hand(SHARES, top_p) == kept


def test_of_many_tokens_that_are_equally_likely_the_lower_ids_are_in_the_nucleus():
    found = sampling.nucleus(torch.zeros(1, 4096), 1.0, 0.25)[0].nonzero().flatten()
    assert found.tolist() == list(range(1024))


@looped("top_p", [0.05, 0.5, 0.9, 0.999])
@looped("temperature", [0.6, 1.0, 2.5])
def test_the_nucleus_is_that_of_transformers(top_p, temperature):
    logits = 3 * torch.randn(40, 300, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    logits[:20, 100:] = -torch.inf
    warped = transformers.TopPLogitsWarper(top_p)(None, logits / temperature)
    kept = sampling.nucleus(logits, temperature, top_p)
    shares = (logits / temperature).softmax(-1)
    assert torch.equal(kept & (shares > 0), warped.isfinite())


def test_draws_follow_the_softmax_of_the_nucleus():
    shares = np.array([0.3, 0.08, 0.4, 0.02, 0.2])  # 0.4 + 0.3 + 0.2 reach 0.85; 0.4 + 0.3 do not
    logits = torch.from_numpy(np.log(shares))[None] * 0.8
    drawn = [sampling.choose(logits, draws(step=step), 0.8, 0.85)[0] for step in range(4000)]
    share = np.bincount(drawn, minlength=5) / len(drawn)
    assert share[1] == share[3] == 0
    wanted = np.array([0.3, 0, 0.4, 0, 0.2]) / 0.9
    np.testing.assert_allclose(share, wanted, atol=4 * 0.5 / math.sqrt(4000))


def test_a_draw_inside_the_nucleus_is_the_one_without_it():
    """The noise is the same, so that arms and settings of top_p share what they draw."""
    logits = torch.randn(200, VOCABULARY, generator=torch.Generator().manual_seed(2))
    same = draws(range(200))
    plain, cut = (sampling.choose(logits, same, 1.3, top_p) for top_p in (1.0, 0.6))
    inside = sampling.nucleus(logits, 1.3, 0.6)[torch.arange(200), torch.tensor(plain)].tolist()
    assert 20 < sum(inside) < 180
    for drawn_from_all, drawn_from_some, kept in zip(plain, cut, inside, strict=True):
        assert (drawn_from_all == drawn_from_some) == kept


def test_a_top_p_of_one_is_the_path_of_before(monkeypatch):
    def refused(*arguments):
        raise AssertionError("no nucleus was asked for")

    monkeypatch.setattr(sampling, "nucleus", refused)
    logits = torch.randn(5, VOCABULARY, generator=torch.Generator().manual_seed(0))
    assert sampling.choose(logits, draws(range(5)), 0.9, 1.0) == sampling.choose(logits, draws(range(5)), 0.9)
    assert sampling.choose(logits, draws(range(5)), 0.0, 0.5) == logits.argmax(-1).tolist()


def test_lanes_are_drawn_from_their_nucleus(logits_of):
    lanes = [lane(all_kept(), seed=0), lane(drawn(), 40, seed=0), lane(all_kept(), seed=1)]
    settings = {"max_new_tokens": 10, "temperature": 1.5}
    outcomes = answer(tiny(), outside(40), lanes, top_p=0.5, **settings)
    assert outcomes[0].token_ids == outcomes[1].token_ids != outcomes[2].token_ids
    for step, token in enumerate(outcomes[0].token_ids):
        logits = logits_of[Draw("p", 0, step)]
        assert token in by_hand((logits / 1.5).softmax(-1).tolist(), 0.5)
    assert answer(tiny(), outside(40), lanes[:1], **settings)[0].token_ids != outcomes[0].token_ids


def test_problem_seed_and_step_each_change_the_noise():
    streams = [("p", 0, 0), ("q", 0, 0), ("p", 1, 0), ("p", 0, 1)]
    made = sampling.stream([Draw(*stream) for stream in streams], 8)
    assert len({tuple(draw) for draw in made.tolist()}) == 4


def test_lanes_of_one_batch_at_different_steps_and_problems_each_get_their_own_noise():
    logits = torch.zeros(4, VOCABULARY)
    mixed = [Draw("p", 0, 0), Draw("p", 0, 7), Draw("q", 0, 0), Draw("p", 0, 0)]
    expected = [int(noise(draw, VOCABULARY).argmax()) for draw in mixed]
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
