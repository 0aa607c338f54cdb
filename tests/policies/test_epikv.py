"""EpiKV's formulas: by hand, by plain loops in float64, and in the limit."""

import math

import pytest
import torch
from looped import looped

from policies import View
from policies.epikv import (
    BandDifference,
    changes,
    channel_variance,
    lag_relative,
    rolling_mean,
    rolling_z,
    standardise,
)
from policies.signals import HiddenChange, Trace

# Changes in two layers, a window of 4; every number below is from a sheet of paper.
G_10 = torch.tensor([1.0, 1.2, 0.9, 3.0, 1.1, 1.0], dtype=torch.float64)
G_21 = torch.tensor([2.0, 2.1, 1.9, 2.0, 4.0, 2.2], dtype=torch.float64)


def best(scores, count):
    return sorted(scores.argsort(stable=True, descending=True)[:count].tolist())


def plain_window(values, t, window):
    return values[max(0, t - window + 1) : t + 1]


def plain_mean(values, window):
    own = [plain_window(values, t, window) for t in range(len(values))]
    return [math.fsum(each) / len(each) for each in own]


def plain_z(values, window):
    found = []
    for t, mean in enumerate(plain_mean(values, window)):
        own = plain_window(values, t, window)
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in own) / len(own))
        found.append((values[t] - mean) / (deviation + 1e-6))
    return found


def test_hs_variance_by_hand():
    score = rolling_mean(G_10, 4) - rolling_mean(G_21, 4)
    assert score.tolist() == pytest.approx([-1, -0.95, -29 / 30, -0.475, -0.95, -1.025])
    assert best(score, 2) == [1, 3]


def test_epikv_by_hand():
    high, low = rolling_z(G_10, 4), rolling_z(G_21, 4)
    assert high.tolist() == pytest.approx([0, 0.99999, -1.069036, 1.718283, -0.533113, -0.575435], abs=1e-6)
    assert low.tolist() == pytest.approx([0, 0.99998, -1.22473, 0, 1.726304, -0.378605], abs=1e-6)
    score = high - low
    assert score.tolist() == pytest.approx([0, 0, 0.155693, 1.718283, -2.259417, -0.19683], abs=1e-5)
    assert best(score, 2) == [2, 3]


def test_changes_by_hand():
    hidden = torch.tensor([[0.0, 0], [3, 4], [3, 4], [3, 5]])
    assert changes(hidden).tolist() == [0, 5, 0, 1]
    assert changes(hidden[:1]).tolist() == [0]
    assert changes(hidden.bfloat16()).dtype == torch.float32


@pytest.mark.parametrize("band", [(), (3,), (-1,)])
def test_a_band_without_layers_or_of_layers_that_are_not_there_is_refused(band):
    with pytest.raises(ValueError, match=r"layers must be one or more numbers|reads the output of layer 3"):
        HiddenChange(band, None).layers_in(3)


class AsGiven(BandDifference):
    """Bands of values that are no changes but what is to be averaged."""

    def token_scores(self, changes):
        return changes


def test_bands_of_two_layers_by_hand():
    """0, 1.5, -0.5 in the mean, less 0, 0, 0.5."""
    policy, last = AsGiven((0, 1), (2, 3), depth=None), torch.zeros(1)
    rows = [Trace(torch.tensor(row), last) for row in ([0.0, 1, -1], [0.0, 2, 0], [0.0, -1, 1], [0.0, 1, 0])]
    signals = {policy.high: (*rows[:2], None, None), policy.low: (None, None, *rows[2:])}
    score = policy.score(View(torch.arange(3), 4, 1, frozenset(), 0, signals)).slots[0, 0]
    assert score.tolist() == [0, 1.5, -1]
    assert best(score, 1) == [1]


@looped("window", [1, 2, 7, 64, 1000])
@looped("t", [1, 63, 64, 65, 200])
def test_rolling_statistics_are_those_of_a_plain_loop(window, t):
    values = torch.randn(t, generator=torch.Generator().manual_seed(t)).abs() * 1e3
    assert rolling_mean(values, window).tolist() == pytest.approx(plain_mean(values.tolist(), window))
    assert rolling_z(values, window).tolist() == pytest.approx(plain_z(values.tolist(), window), abs=1e-9)


def test_what_comes_later_changes_no_score_to_the_last_bit():
    hidden = torch.randn(2, 150, 5, generator=torch.Generator().manual_seed(2))
    whole = rolling_z(changes(hidden), 64)
    for t in (1, 64, 65, 149):
        assert torch.equal(rolling_z(changes(hidden[:, :t]), 64), whole[:, :t])


def test_a_trend_that_the_mean_follows_leaves_z():
    """Section 3.2: the raw score drifts with the position, z does not."""
    ramp = torch.arange(400, dtype=torch.float64)
    assert rolling_mean(ramp, 64)[-1] - rolling_mean(ramp, 64)[63] == 400 - 64
    z = rolling_z(ramp, 64)[63:]
    torch.testing.assert_close(z, z[:1].expand_as(z))


def test_kv_variance_by_hand():
    spread = channel_variance(torch.tensor([[1.0, 1, 1, 1], [1, -1, 1, -1], [2, 0, 0, 0]]))
    assert spread.tolist() == [0, 1, 0.75]
    assert rolling_mean(spread, 2).tolist() == [0, 0.5, 0.875]
    assert best(rolling_mean(spread, 2), 2) == [1, 2]


def test_lag_relative_by_hand():
    past = torch.tensor([[0.0, 0], [2, 4]])
    now = torch.tensor([[1.0, 1], [2, 0], [4, 8]])
    # Normalised: (.5, .25), (1, 0), (2, 2).
    score = lag_relative(now, past.amin(0), past.amax(0))
    assert score.tolist() == [0.015625, 0.25, 0]
    assert best(score, 2) == [0, 1]
    # A channel that did not move is one of range EPSILON.
    assert lag_relative(now[:1], past[0], past[0]).tolist() == [0]
    assert lag_relative(now[1:2], past[0], past[0]).tolist() == pytest.approx([1e12])


def test_attention_and_hidden_state_by_hand():
    received, turned = torch.tensor([4.0, 1, 1, 2]), torch.tensor([-1.0, 2, 0, 0.5])
    score = standardise(received) + turned
    assert score.tolist() == pytest.approx([0.632993, 1.183503, -0.816497, 0.5], abs=2e-6)
    assert best(score, 2) == best(received + turned, 2) == [0, 1]
