"""The score of `1d` against numbers worked out by hand, and what its gates change of it."""

import math
from dataclasses import replace

import pytest
import torch
from policy_prompts import a_prompt, a_view, random_statistics

import policies
from policies import Calibrated, Statistics, View
from policies.signals import MeanValues
from policies.triattention import OFFSETS, QueryStatistics, ValuePrior, expected_logits, max_standard_scores

# One head of two pairs, at t = 6; three keys, not yet rotated, at positions 0, 1 and 5.
STATISTICS = Statistics(
    query_mean=torch.tensor([[[1, 1j]]], dtype=torch.complex64),
    query_magnitude=torch.tensor([[[1.5, 1.0]]]),
    value_direction=torch.tensor([1.0, 0, 0, 0]),
    frequencies=torch.tensor([1, 0.01], dtype=torch.float64),
    scaling=1.0,
)
KEYS = torch.tensor([[1, 0], [0, 1], [1 + 1j, 1 + 1j]], dtype=torch.complex128)
POSITIONS = torch.tensor([0, 1, 5], dtype=torch.float64)


def rotated(keys, positions, frequencies):
    """Pairs [n, d/2] turned by their positions, in half layout [n, d]."""
    turned = keys * torch.exp(1j * positions[:, None] * frequencies)
    return torch.cat([turned.real, turned.imag], -1)


STORED = rotated(KEYS, POSITIONS, STATISTICS.frequencies)[None, None]


def test_the_score_of_three_keys_is_the_one_worked_out_by_hand():
    norm = torch.tensor([0.5, 0, 0.707107], dtype=torch.float64)
    rows = [
        [0.753902, -0.145500, -0.839072],
        [-0.059964, -0.069943, -0.089879],
        [1.472952, 0.120682, 0.273509],
    ]
    for offset, row in zip((1, 2, 4), torch.tensor(rows, dtype=torch.float64).T, strict=True):
        found = expected_logits(STORED, STATISTICS, 6, (offset,))[0, 0]
        torch.testing.assert_close(found, row + norm, atol=1e-6, rtol=0)
    found = expected_logits(STORED, STATISTICS, 6, (1, 2, 4))[0, 0]
    expected = torch.tensor([0.423110, -0.073262, 1.329488], dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert max_standard_scores(found[None]).topk(2).indices.sort().values.tolist() == [0, 2]


def test_scaling_multiplies_every_logit():
    twice = STATISTICS._replace(scaling=2.0)
    once = expected_logits(STORED, STATISTICS, 6, (1, 2))
    torch.testing.assert_close(expected_logits(STORED, twice, 6, (1, 2)), 2 * once)


def test_the_score_of_a_token_is_the_largest_standard_score_of_any_head():
    raw = torch.tensor([[12.0, 0, 1, 3, 5], [1, 2, 0, 4, 3], [0, 1, 2, 5, 4], [2, 0, 1, 4, 6]], dtype=torch.float64)
    expected = torch.tensor([1.830361, 0, -0.215666, 1.414214, 1.578410], dtype=torch.float64)
    found = max_standard_scores(raw)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert found.topk(2).indices.sort().values.tolist() == [0, 4]


def test_the_best_of_the_union_of_every_head_s_best_are_the_best():
    """What the official code selects from; so the union can be left out."""
    random = torch.Generator().manual_seed(1)
    for _ in range(50):
        scores = torch.randn(6, 40, generator=random)
        standard = (scores - scores.mean(-1, keepdim=True)) / scores.std(-1, correction=0, keepdim=True)
        union = sorted(set(standard.topk(9).indices.flatten().tolist()))
        combined = max_standard_scores(scores)
        of_union = sorted(union, key=lambda slot: -combined[slot])[:9]
        assert sorted(of_union) == combined.topk(9).indices.sort().values.tolist()


def test_a_head_that_is_indifferent_scores_every_token_zero():
    assert max_standard_scores(torch.full((1, 7), 3.0)).tolist() == [0.0] * 7
    assert max_standard_scores(torch.tensor([[5.0]])).tolist() == [0.0]


def in_loops(prompt, statistics, positions, t):
    """[layer, q_head, n] of keys before RoPE, straight from the definition, one key after the other."""
    layers, q_heads, _, dim = prompt.queries.shape
    group = q_heads // prompt.keys.shape[1]
    found = torch.zeros(layers, q_heads, len(positions), dtype=torch.float64)
    for layer in range(layers):
        for head in range(q_heads):
            for slot, position in enumerate(positions):
                key = prompt.keys[layer, head // group, slot]
                total = 0.0
                for pair in range(dim // 2):
                    k = complex(key[pair], key[pair + dim // 2])
                    q = complex(statistics.query_mean[layer, head, pair])
                    omega = float(statistics.frequencies[pair])
                    facing = q * k.conjugate()
                    angle = math.atan2(facing.imag, facing.real)
                    waves = [math.cos((t - position + ahead) * omega + angle) for ahead in OFFSETS]
                    magnitude = float(statistics.query_magnitude[layer, head, pair])
                    total += abs(facing) * sum(waves) / len(waves) + (magnitude - abs(q)) * abs(k)
                found[layer, head, slot] = total
    return found


def test_vectorised_scores_equal_plain_loops_over_layers_heads_slots_and_offsets():
    prompt = a_prompt(12, layers=2, q_heads=4, kv_heads=2, dim=6, dtype=torch.float64)
    statistics = random_statistics(prompt)
    positions = [0, 1, 4, 7, 8, 20, 21, 22, 30, 31, 32, 40]
    expected = in_loops(prompt, statistics, positions, t=41)
    pairs = torch.complex(*prompt.keys.chunk(2, -1)).flatten(0, 1)
    turned = [rotated(head, torch.tensor(positions, dtype=torch.float64), statistics.frequencies) for head in pairs]
    stored = torch.stack(turned).view_as(prompt.keys)
    found = expected_logits(stored, statistics, 41, OFFSETS)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    view = View(
        token_ids=torch.zeros(41, dtype=torch.int64),
        layers=2,
        kv_heads=2,
        sentence_ends=frozenset(),
        seed=0,
        signals={**a_view(prompt, [policies.get("1d")]).signals, Calibrated("text"): statistics},
        stored=torch.tensor(positions).view(1, 1, -1),
    )
    keys = next(signal for signal in view.signals if not isinstance(signal, Calibrated))
    view = view._replace(signals={**view.signals, keys: tuple(stored)})
    rows = expected.flatten(0, 1)
    standard = (rows - rows.mean(-1, keepdim=True)) / rows.std(-1, correction=0, keepdim=True)
    score = policies.get("1d").scoring.score(view).slots
    assert score.shape == (1, 1, 12)
    torch.testing.assert_close(score[0, 0], standard.amax(0), atol=1e-5, rtol=1e-5)
    kept = policies.get("1d").keep(view, 5)
    assert kept[1, 1].nonzero().flatten().tolist() == standard.amax(0).topk(5).indices.sort().values.tolist()


def test_angles_stay_exact_tens_of_thousands_of_tokens_on():
    """In float32 the angle at 70,000 tokens is off by thousandths."""
    key = rotated(KEYS[:1], torch.zeros(1), STATISTICS.frequencies)[None, None].float()
    statistics = STATISTICS._replace(frequencies=torch.tensor([0.123456789, 0.01], dtype=torch.float64))
    (found,) = expected_logits(key, statistics, 70_001, (65_536,)).flatten().tolist()
    assert found == pytest.approx(math.cos((70_001 + 65_536) * 0.123456789) + 0.5, abs=2e-7)


@pytest.mark.parametrize(
    ("name", "component"),
    [
        ("1d_div", "selection"),
        ("1d_div-1.0", "selection"),
        ("1d_div-1.5", "selection"),
        ("variant_b", "scoring"),
        ("q_stats", "scoring"),
        ("schedule-front", "cadence"),
        ("schedule-back", "cadence"),
        ("schedule-inverted", "cadence"),
        ("snapkv_with_window", "scoring"),
    ],
)
def test_every_gate_is_one_component_away_from_1d(name, component):
    assert set(policies.diff(policies.get("1d"), policies.get(name))) == {component}


def test_the_three_weights_of_the_sweep():
    names = ("1d_div", "1d_div-1.0", "1d_div-1.5")
    assert [policies.get(name).selection.weight for name in names] == [0.5, 1.0, 1.5]


def test_q_stats_is_1d_with_the_statistics_of_traces():
    prompt = a_prompt(80)
    view = a_view(prompt, [policies.get("1d"), policies.get("q_stats")])
    swapped = {**view.signals, Calibrated("text"): view.signals[Calibrated("traces")]}
    expected = policies.get("1d").keep(view._replace(signals=swapped), 30)
    assert torch.equal(policies.get("q_stats").keep(view, 30), expected)
    assert not torch.equal(policies.get("1d").keep(view, 30), expected)


def test_the_prior_adds_the_cosine_of_a_value_to_the_mean_direction():
    """Scores 1, 0.9, 0.8; values across, along and against the direction."""

    class Given(QueryStatistics):
        def score(self, view):
            return policies.Scores(torch.tensor([1.0, 0.9, 0.8]).view(1, 1, 3))

    values = torch.tensor([[0, 2.0], [3, 0], [-1, 0]])
    statistics = STATISTICS._replace(value_direction=torch.tensor([1.0, 0]))
    signals = {MeanValues(): (values,), Calibrated("traces"): statistics}
    view = View(torch.arange(3), 1, 1, frozenset(), 0, signals)
    found = ValuePrior(Given(), weight=0.5).score(view).slots[0, 0]
    torch.testing.assert_close(found, torch.tensor([1.0, 1.4, 0.3]))
    assert ValuePrior(Given(), weight=0.0).score(view).slots.argmax() == 0
    assert found.argmax() == 1


def test_a_prior_of_no_weight_is_1d():
    prompt = a_prompt(80)
    policy = policies.get("variant_b", scoring=ValuePrior(QueryStatistics(), weight=0.0))
    view = a_view(prompt, [policy, policies.get("variant_b")])
    assert torch.equal(policy.keep(view, 30), policies.get("1d").keep(view, 30))
    assert not torch.equal(policies.get("variant_b").keep(view, 30), policies.get("1d").keep(view, 30))


def test_offsets_without_a_meaning_are_refused():
    for offsets in ((), (0, 1)):
        with pytest.raises(ValueError, match="offsets must be one or more tokens ahead"):
            replace(QueryStatistics(), offsets=offsets)
