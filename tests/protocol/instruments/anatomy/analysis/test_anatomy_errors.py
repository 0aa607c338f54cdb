"""With nothing planted it errs at the nominal rate, and it finds what is planted as often as promised."""

import numpy as np
import pytest
from anatomy_studies import StudySize, simulate_study
from simulated_traces import TraceSettings, simulate_trace, window_spans

from analysis.stats.interval import clopper_pearson
from protocol.instruments.anatomy.analysis.power import choice_probability, needed_traces, power_of_test

PLAIN = TraceSettings(tokens=96, window=16, stride=8)
SMALL = StudySize(traces=8, signals=6, draws=199)


def rates(nature: TraceSettings, size: StudySize, studies: int) -> dict[str, int]:
    found = [simulate_study(nature, size, np.random.default_rng([5, at])) for at in range(studies)]
    return {name: sum(bool(getattr(one, name)) for one in found) for name in found[0]._fields[:5]}


def test_nothing_planted_is_seldom_found_and_something_planted_nearly_always():
    # Of 16 studies at 5 % more than 5 are found with a probability of 0.0001; `make soak` makes a thousand.
    null = rates(PLAIN, SMALL, 16)
    assert max(null.values()) <= 5
    known = rates(PLAIN._replace(strength=2.0), SMALL._replace(pairs=1), 4)
    assert known["right"] == known["beyond"] == 4


def test_labels_with_a_trend_agree_with_signals_that_have_one_but_less_beyond_position():
    """They do correlate: that is no error of the test, and what `beyond_position` is for."""
    found = rates(PLAIN._replace(late=1.0, trend=4.0), SMALL._replace(traces=16), 8)
    assert found["agrees"] >= 4
    assert found["beyond"] < found["agrees"]


@pytest.mark.soak
@pytest.mark.parametrize("nature", [PLAIN, PLAIN._replace(trend=4.0, autocorrelation=0.99)])
def test_the_family_wise_error_of_a_thousand_studies_is_at_most_nominal(nature):
    found = rates(nature, SMALL._replace(traces=16), 1000)
    for name in ("agrees", "survives", "partial_survives"):
        low, _ = clopper_pearson(found[name], 1000)
        assert low <= 0.05, (name, found)


@pytest.mark.soak
def test_a_planted_correlation_is_found_as_often_as_the_table_promises():
    nature, size = PLAIN._replace(strength=0.5, varied=0.3), StudySize(traces=20, signals=8, pairs=1, draws=1)
    found = [simulate_study(nature, size, np.random.default_rng([6, at])) for at in range(600)]
    mean, sd = (float(np.mean([getattr(one, name) for one in found])) for name in ("mean", "sd"))
    promised = power_of_test(20, mean, sd, 0.05) * choice_probability(20, mean, sd, 8)
    assert sum(one.right for one in found) / 600 == pytest.approx(promised, abs=0.06)


def test_power_is_that_of_drawn_means_and_choices():
    draw = np.random.default_rng(2)
    means = draw.normal(0, 0.3 / np.sqrt(20), (20_000, 10))
    means[:, 0] += 0.15
    first = (np.abs(means).argmax(axis=1) == 0) & (means[:, 0] > 0)
    assert choice_probability(20, 0.15, 0.3, 10) == pytest.approx(first.mean(), abs=0.01)
    values = draw.normal(0.15, 0.3, (20_000, 20))
    t = values.mean(axis=1) / (values.std(axis=1, ddof=1) / np.sqrt(20))
    assert power_of_test(20, 0.15, 0.3, 0.05) == pytest.approx((t >= 1.729133).mean(), abs=0.01)
    assert choice_probability(20, 0.15, 0.3, 1) == pytest.approx((means[:, 0] > 0).mean(), abs=0.01)


def test_the_table_promises_the_fewest_traces_that_reach_its_power():
    rows = needed_traces(0.4, 0.0125, 50)
    assert list(rows) == ["0.1", "0.2", "0.3"]
    for rho, row in rows.items():
        assert 8 <= row["testing"] <= row["each_half"]
        if row["testing"] > 8:
            assert power_of_test(row["testing"], float(rho), 0.4, 0.0125) >= 0.8
            assert power_of_test(row["testing"] - 1, float(rho), 0.4, 0.0125) < 0.8
    assert [row["fisher"] for row in rows.values()] == [783, 194, 85]
    assert needed_traces(0.0, 0.05, 10)["0.1"]["each_half"] == 8
    assert needed_traces(float("nan"), 0.05, 10)["0.1"]["testing"] is None


def test_made_up_labels_are_those_of_windows_over_needed_tokens():
    assert window_spans(100, 32, 16) == [(0, 32), (16, 48), (32, 64), (48, 80), (64, 96), (68, 100)]
    made = simulate_trace(PLAIN, np.zeros(2), np.zeros(2, dtype=bool), np.random.default_rng(0))
    for at, label in enumerate(made.label):
        assert label == any(changed for start, stop, changed in made.windows if start <= at < stop)
