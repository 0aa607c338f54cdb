"""The bootstrap of a family at once and the endless one, against scipy and plain loops."""

import itertools

import numpy as np
import pytest
from scipy import stats

from analysis.stats import bootstrap, exact_resampling, power
from analysis.stats.interval import DegenerateDifference


def study(problems: int, seeds: int, seed: int, lost: float = 0.2) -> np.ndarray:
    draw = np.random.default_rng(seed)
    values = draw.choice([-1.0, 0.0, 1.0], (problems, seeds), p=[lost, 0.5, 0.5 - lost])
    values[0], values[1] = 1.0, 0.0
    return values


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("level", [0.95, 1 - 0.05 / 4])
@pytest.mark.parametrize(("problems", "seeds", "lost"), [(15, 1, 0.2), (40, 3, 0.1), (201, 2, 0.22)])
def test_bca_is_scipys(problems, seeds, lost, level):
    difference = study(problems, seeds, 4, lost)
    ours = bootstrap.paired(difference, reps=4_000, level=level, rng=rng(5), kind="bca")
    theirs = stats.bootstrap(
        (difference.mean(axis=1).round(12),),
        lambda x, axis: np.round(x.mean(axis=axis), 12),
        n_resamples=4_000,
        confidence_level=level,
        method="BCa",
        rng=rng(5),
    ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


@pytest.mark.parametrize("kind", bootstrap.KINDS)
def test_the_exact_interval_is_that_of_every_resample_written_out(kind):
    difference = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    means = difference.mean(axis=1)
    every = np.sort([np.mean(each) for each in itertools.product(means, repeat=6)]).round(12)
    low, high = 0.025, 0.975
    if kind == "bca":  # Efron & Tibshirani, equations 14.10 to 14.15
        observed = means.mean().round(12)
        shift = stats.norm.ppf(((every < observed).mean() + (every <= observed).mean()) / 2)
        apart = [means.mean() - np.delete(means, i).mean() for i in range(6)]
        bend = np.sum(np.power(apart, 3)) / (6 * np.sum(np.square(apart)) ** 1.5)
        z = [shift + stats.norm.ppf(share) for share in (low, high)]
        low, high = (stats.norm.cdf(shift + each / (1 - bend * each)) for each in z)
    found = bootstrap.exact(difference, kind=kind)
    assert found.low == pytest.approx(every[np.ceil(low * 6**6 - 1e-6).astype(int) - 1])
    assert found.high == pytest.approx(every[np.ceil(high * 6**6 - 1e-6).astype(int) - 1])
    if kind == "percentile":
        assert found.p == pytest.approx(2 * (every <= 0).mean())


@pytest.mark.parametrize("kind", bootstrap.KINDS)
@pytest.mark.parametrize(("problems", "seeds"), [(12, 1), (60, 3)])
def test_draws_and_the_family_tend_to_the_exact_bootstrap(problems, seeds, kind):
    difference = study(problems, seeds, problems)
    exact = bootstrap.exact(difference, kind=kind)
    drawn = bootstrap.paired(difference, reps=60_000, rng=rng(), kind=kind)
    together = bootstrap.family([difference, -difference], reps=60_000, rng=rng(1), kind=kind)
    step = 1 / (problems * seeds)
    for found in (drawn, together[0]):
        assert found.mean == pytest.approx(exact.mean)
        assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=1.01 * step)
        assert found.p == pytest.approx(exact.p, abs=0.01)
    mirrored = together[1]  # on the same draws
    assert (-mirrored.high, -mirrored.low) == pytest.approx((together[0].low, together[0].high), abs=1e-9)


def test_one_draw_counts_for_all_contrasts_of_a_family():
    one, other = study(30, 2, 1), study(30, 2, 2)
    both = (one + other) / 2  # its resampled mean is half of the sum of theirs, draw by draw
    resampled = bootstrap._resampled_family(
        np.stack([each.mean(axis=1) for each in (one, other, both)], axis=1), 500, rng()
    )
    assert resampled[:, 2] == pytest.approx(resampled[:, :2].mean(axis=1))
    assert len(np.unique(resampled[:, 0])) > 20


def test_blocks_of_a_family_are_one_sample(monkeypatch):
    differences = [study(30, 2, 1), study(30, 2, 2)]
    whole = bootstrap.family(differences, reps=20_000, rng=rng())
    monkeypatch.setattr("analysis.stats.bootstrap.FAMILY_BLOCK", 30 * 7)
    small = bootstrap.family(differences, reps=20_000, rng=rng())
    for one, other in zip(whole, small, strict=True):
        assert one == pytest.approx(other, abs=0.02)


def test_many_studies_at_once_are_answered_one_by_one():
    counts = rng(2).multinomial(30, [0.1, 0.1, 0.5, 0.2, 0.1], 50)
    for kind in bootstrap.KINDS:
        found = bootstrap.exact_limits(counts, level=0.9, kind=kind)
        for row, low, high, p in zip(counts, *found, strict=True):
            sums = np.repeat([-2, -1, 0, 1, 2], row)
            lanes = np.stack([np.sign(sums), np.where(np.abs(sums) == 2, np.sign(sums), 0)], axis=1)
            assert bootstrap.exact(lanes, level=0.9, kind=kind)[1:] == pytest.approx((low, high, p))


@pytest.mark.parametrize("kind", bootstrap.KINDS)
def test_an_exact_interval_excludes_zero_at_the_level_of_its_own_p(kind):
    seen = 0
    for seed in range(30):
        difference = study(25, 2, seed, 0.2)
        p = bootstrap.exact(difference, kind=kind).p
        if not 1e-6 < p < 0.9:
            continue
        rejected, kept = (
            bootstrap.exact(difference, level=1 - p * near, kind=kind) for near in (1 + 1e-6, 1 - 1e-6)
        )
        assert not rejected.low <= 0 <= rejected.high
        assert kept.low <= 0 <= kept.high
        seen += 1
    assert seen > 15


def test_the_exact_p_is_the_share_that_planning_uses():
    counts = rng(3).multinomial(60, [0.05, 0.1, 0.1, 0.5, 0.1, 0.1, 0.05], 40)
    planned = power.p_values("bootstrap", counts, 10**9, rng())
    assert bootstrap.exact_limits(counts).p == pytest.approx(planned, abs=1e-3)


def test_endless_draws_leave_no_p_below_the_sign_tests():
    all_won = np.array([[1.0, 1.0]] * 8 + [[1.0, 0.0]])
    assert bootstrap.exact(all_won).p == 2.0**-8
    assert bootstrap.exact(all_won, kind="bca").p >= 2.0**-8


def test_the_chances_of_sums_are_those_of_a_plain_convolution():
    counts = np.array([[1, 2, 3], [0, 5, 1]])
    for row, found in zip(counts, exact_resampling.resampled(counts), strict=True):
        expected = np.array([1.0])
        for _ in range(6):
            expected = np.convolve(expected, row / 6)
        assert found == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("kind", bootstrap.KINDS)
def test_no_spread_is_answered_as_by_the_other_methods(kind):
    for found in (
        bootstrap.exact(np.zeros((50, 2)), kind=kind),
        bootstrap.family([np.zeros((50, 2)), study(50, 2, 1)], rng=rng(), kind=kind)[0],
        bootstrap.paired(np.zeros((50, 2)), rng=rng(), kind=kind),
    ):
        assert (found.mean, found.p) == (0.0, 1.0)
        assert found.high == pytest.approx(1 - 0.05 ** (1 / 50))


def test_what_is_no_family_is_refused_by_name():
    with pytest.raises(DegenerateDifference, match="on the same problems"):
        bootstrap.family([study(10, 1, 0), study(11, 1, 0)], rng=rng())
    with pytest.raises(DegenerateDifference, match="at least one"):
        bootstrap.family([], rng=rng())
    with pytest.raises(DegenerateDifference, match="resample it with draws"):
        bootstrap.exact([[0.5], [0.25]])
    with pytest.raises(DegenerateDifference, match="not finite"):
        bootstrap.exact([[np.nan], [0.0]])
    for act in (bootstrap.exact, lambda difference, kind: bootstrap.paired(difference, rng=rng(), kind=kind)):
        with pytest.raises(ValueError, match="'basic' is unknown; name percentile or bca"):
            act(study(10, 1, 0), kind="basic")
