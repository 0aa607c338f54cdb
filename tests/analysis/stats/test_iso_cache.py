import numpy as np
import pytest
from looped import looped

from analysis.stats.interval import DegenerateDifference
from analysis.stats.memory_matching import (
    Reference,
    bootstrap_interpolated,
    interpolate_difference,
    match_memory,
    match_per_problem,
)


def test_the_ratio_is_that_of_the_mean_slots_by_hand():
    # Problem means 110 and 90 against 100 and 100: equal on the whole, 10 % apart on the worst problem.
    found = match_memory([[100, 120], [90, 90]], [[100, 100], [90, 110]], tolerance=0.1)
    assert found.ratio == pytest.approx(1.0)
    assert found.worst == pytest.approx(0.9)  # log(0.9) is further from 0 than log(1.1)
    assert found.distance == pytest.approx(0.1)  # 10 and 10 of 100 and 100
    assert found.is_matched is True


@looped(("subject", "fair"), [(102.0, True), (102.1, False), (100 / 1.02, True), (97.9, False), (100.0, True)])
def test_neither_arm_may_hold_more_than_the_tolerance_above_the_other(subject, fair):
    assert match_memory([[subject]] * 3, [[100.0]] * 3, tolerance=0.02).is_matched is fair


def test_a_wider_tolerance_is_wider():
    slots = [[110.0]], [[100.0]]
    assert [match_memory(*slots, tolerance=tolerance).is_matched for tolerance in (0.05, 0.1)] == [False, True]


def test_one_problem_far_away_does_not_decide_but_is_reported():
    subject = np.full((100, 1), 200.0)
    subject[7] = 100.0
    found = match_memory(subject, np.full((100, 1), 200.0), tolerance=0.02)
    assert found.worst == 0.5
    assert found.ratio == pytest.approx(0.995)
    assert found.is_matched


def test_a_long_problem_weighs_by_its_slots():
    # 30 + 300 over 10 + 300: the ratio of the means, not the mean 2 of the ratios 3 and 1.
    assert match_memory([[30.0], [300.0]], [[10.0], [300.0]], tolerance=0.1).ratio == pytest.approx(330 / 310)


@looped(
    ("subject", "comparator", "says"),
    [
        ([[1.0], [2.0]], [[1.0]], r"the shapes are \(2, 1\) and \(1, 1\)"),
        ([1.0], [1.0], r"the shapes are \(1,\) and \(1,\)"),
        (np.empty((0, 1)), np.empty((0, 1)), "same .problem, seed."),
        ([[0.0]], [[1.0]], "not positive and finite"),
        ([[1.0]], [[-1.0]], "not positive and finite"),
        ([[np.nan]], [[1.0]], "not positive and finite"),
        ([[1.0]], [[np.inf]], "not positive and finite"),
    ],
)
def test_slots_that_were_not_measured_are_refused(subject, comparator, says):
    with pytest.raises(ValueError, match=says):
        match_memory(subject, comparator, tolerance=0.02)


# ---------------------------------------------------------------- problem by problem


def test_the_share_of_matched_problems_by_hand():
    # 110 / 100, 90 / 100 and 101 / 100: the last alone is within 2 %.
    found = match_per_problem([[100, 120], [90, 90], [101, 101]], [[100, 100]] * 3, tolerance=0.02)
    assert found.ratio == pytest.approx((1.1 + 0.9 + 1.01) / 3)
    assert found.within == pytest.approx(1 / 3)


def test_equal_on_the_whole_and_apart_on_every_problem_is_not_matched():
    slots = [[110.0], [90.0]], [[100.0], [100.0]]
    found = match_memory(*slots, tolerance=0.02)
    assert (found.ratio, found.is_matched) == (1.0, False)
    assert found.distance == pytest.approx(0.1)
    assert match_per_problem(*slots, tolerance=0.02).within == 0


def test_half_of_the_problems_at_nearly_twice_the_memory_and_half_at_nearly_none_do_not_match():
    # (1.9 + 0.1) / 2 = 1: the mean sees nothing.
    found = match_memory([[190.0], [10.0]] * 50, [[100.0]] * 100, tolerance=0.02)
    assert (found.ratio, found.distance, found.is_matched) == (1.0, 0.9, False)


def test_problems_that_are_apart_by_the_tolerance_on_average_match():
    slots = [[102.0], [98.0]], [[100.0], [100.0]]
    assert match_memory(*slots, tolerance=0.02).is_matched
    assert not match_memory(*slots, tolerance=0.019).is_matched


# ---------------------------------------------------------------- interpolation


def reference(correct, slots):
    correct = np.array(correct, dtype=float)
    return Reference(correct, np.full(correct.shape, float(slots)))


LOW = reference([[0, 0], [0, 1], [0, 0]], 60)
HIGH = reference([[1, 1], [0, 1], [0, 1]], 120)


@looped(
    ("slots", "weight", "expected"),
    [
        (60, 0.0, [0, 0.5, 0]),  # the lower reference itself
        (120, 1.0, [1, 0.5, 0.5]),
        (75, 0.25, [0.25, 0.5, 0.125]),
        (90, 0.5, [0.5, 0.5, 0.25]),
    ],
)
def test_the_comparator_is_interpolated_linearly_by_hand(slots, weight, expected):
    subject = np.array([[1, 1], [1, 0], [0, 0]], dtype=float)
    found = interpolate_difference(subject, np.full((3, 2), float(slots)), [HIGH, LOW])  # in any order
    assert found.difference == pytest.approx(np.array([1, 0.5, 0]) - expected)
    assert found.weight == pytest.approx(weight)
    assert (found.below, found.above) == (1, 0)


def test_the_weight_is_that_of_the_mean_slots_and_not_of_a_problem():
    # 30 + 90 + 105 over three problems is 75 on average, as above.
    found = interpolate_difference(np.zeros((3, 1)), [[30.0], [90.0], [105.0]], [LOW, HIGH])
    assert found.weight == pytest.approx(0.25)
    assert found.difference == pytest.approx([-0.25, -0.5, -0.125])


def test_the_neighbouring_references_are_used():
    far = reference([[0, 0]] * 3, 10)
    found = interpolate_difference(np.zeros((3, 1)), [[90.0]] * 3, [far, HIGH, LOW])
    assert (found.below, found.above) == (2, 1)


@pytest.mark.parametrize("slots", [59.0, 121.0])
def test_outside_the_references_nothing_is_estimated(slots):
    assert interpolate_difference(np.zeros((3, 1)), [[slots]] * 3, [LOW, HIGH]) is None


def test_one_reference_or_two_alike_bracket_nothing():
    subject = np.zeros((3, 1)), [[60.0]] * 3
    assert interpolate_difference(*subject, [LOW]) is None
    assert interpolate_difference(*subject, [LOW, LOW]) is None


# ---------------------------------------------------------------- its interval


def mixed(seed, problems=40):
    """A subject between two references, all of mixed outcomes and slots."""
    rng = np.random.default_rng(seed)
    correct = rng.integers(0, 2, (3, problems, 2)).astype(float)
    slots = rng.uniform(0.8, 1.2, (3, problems, 2)) * np.array([90, 60, 120])[:, None, None]
    own, low, high = (Reference(*table) for table in zip(correct, slots, strict=True))
    return own, [low, high]


def by_a_loop(own, references, reps, rng):
    """Every draw from whole problems, through `interpolated`'s own arithmetic written out."""
    low, high = references
    means = []
    for _ in range(reps):
        chosen = rng.integers(0, len(own.correct), len(own.correct))
        held = [arm.slots[chosen].mean() for arm in (own, low, high)]
        weight = (held[0] - held[1]) / (held[2] - held[1])
        right = [arm.correct[chosen].mean() for arm in (own, low, high)]
        means.append(right[0] - ((1 - weight) * right[1] + weight * right[2]))
    return np.array(means)


def test_the_weight_is_measured_anew_in_every_draw():
    own, references = mixed(3)
    found = interpolate_difference(own.correct, own.slots, references)
    interval = bootstrap_interpolated(
        own.correct, own.slots, references, found, reps=2_000, level=0.9, rng=np.random.default_rng(5)
    )
    drawn = by_a_loop(own, references, 2_000, np.random.default_rng(5))  # the same stream
    assert interval.mean == pytest.approx(found.difference.mean())
    assert (interval.low, interval.high) == pytest.approx(tuple(np.quantile(drawn, [0.05, 0.95])))
    assert interval.p == pytest.approx(2 * (min((drawn <= 0).sum(), (drawn >= 0).sum()) + 1) / 2_001)


def test_the_interval_of_an_uncertain_weight_is_wider_than_that_of_a_known_one():
    rng = np.random.default_rng(0)
    own = reference(rng.integers(0, 2, (50, 1)), 90)
    low, high = reference(np.zeros((50, 1)), 60), reference(np.ones((50, 1)), 120)
    sure = interpolate_difference(own.correct, own.slots, [low, high])
    unsure = np.where(np.arange(50)[:, None] % 2 == 0, 60.0, 120.0)
    arguments = {"reps": 4_000, "rng": np.random.default_rng(1)}
    narrow = bootstrap_interpolated(own.correct, own.slots, [low, high], sure, **arguments)
    wide = bootstrap_interpolated(own.correct, unsure, [low, high], sure, **arguments)
    assert wide.high - wide.low > 1.1 * (narrow.high - narrow.low)


def test_a_draw_beyond_a_reference_is_cut_at_it():
    low, high = reference(np.zeros((2, 1)), 60), reference(np.ones((2, 1)), 100)
    slots = np.array([[50.0], [80.0]])  # draws hold 50, 65 or 80
    found = interpolate_difference(np.ones((2, 1)), slots, [low, high])
    interval = bootstrap_interpolated(
        np.ones((2, 1)), slots, [low, high], found, reps=1_000, level=0.999, rng=np.random.default_rng(0)
    )
    assert (interval.low, interval.high) == pytest.approx((0.5, 1.0))


def test_problems_that_all_agree_are_answered_by_the_rule_of_three():
    ones = np.ones((100, 1))
    references = [reference(ones, 60), reference(ones, 120)]
    found = interpolate_difference(ones, 90 * ones, references)
    interval = bootstrap_interpolated(ones, 90 * ones, references, found, rng=np.random.default_rng(0))
    assert interval == pytest.approx((0.0, -(1 - 0.05**0.01), 1 - 0.05**0.01, 1.0))


def test_one_problem_has_no_interval():
    one = np.ones((1, 1))
    references = [reference(0 * one, 60), reference(one, 120)]
    found = interpolate_difference(one, 90 * one, references)
    with pytest.raises(DegenerateDifference, match="1 problem"):
        bootstrap_interpolated(one, 90 * one, references, found, rng=np.random.default_rng(0))
