"""CR2 against its matrices written out in full, and its level where Student's t of cluster values errs."""

import numpy as np
import pytest
from scipy import linalg, stats

from analysis.stats import cluster_robust
from analysis.stats.resampled_units import compare_at_levels, tost

UNEVEN = [9, 4, 2, 2, 1, 6]


def by_matrices(values, labels, is_alike):
    """Variance and degrees of freedom of the mean by (I - H_cc)^(-1/2), Pustejovsky & Tipton 2018, eq. 5 and 11."""
    count, names = len(values), sorted(set(labels))
    hat = np.full((count, count), 1 / count)
    residuals = (np.eye(count) - hat) @ values
    working = np.array(
        [[1.0 if a == b and (is_alike or i == j) else 0.0 for j, b in enumerate(labels)] for i, a in enumerate(labels)]
    )
    variance, vectors = 0.0, []
    for name in names:
        inside = np.array([label == name for label in labels])
        block = np.eye(inside.sum()) - hat[np.ix_(inside, inside)]
        adjustment = linalg.inv(linalg.sqrtm(block))
        ones = np.ones(inside.sum())
        variance += float(ones @ adjustment @ residuals[inside]) ** 2 / count**2
        vectors.append((np.eye(count) - hat)[:, inside] @ adjustment @ ones / count)
    gram = np.array([[a @ working @ b for b in vectors] for a in vectors])
    return variance, np.trace(gram) ** 2 / (gram**2).sum()


def problems(sizes, seed=0):
    labels = [str(index) for index, size in enumerate(sizes) for _ in range(size)]
    return np.random.default_rng(seed).uniform(-0.6, 0.9, len(labels)).round(6), labels


@pytest.mark.parametrize("sizes", [UNEVEN, [3] * 5, [1, 1, 1, 12]])
def test_error_and_degrees_of_freedom_are_those_of_the_matrices(sizes):
    values, labels = problems(sizes)
    means = np.array([values[[label == name for label in labels]].mean() for name in map(str, range(len(sizes)))])
    found = cluster_robust.robust_mean(means, np.array(sizes, float))
    (variance, independent), (_, alike) = (by_matrices(values, labels, alike) for alike in (False, True))
    assert found.mean == pytest.approx(values.mean())
    assert found.error == pytest.approx(np.sqrt(variance))
    assert found.freedom == pytest.approx(min(independent, alike))


def test_clusters_of_one_size_have_student_of_their_means_and_clusters_of_one_problem_that_of_problems():
    values, labels = problems([4] * 7)
    (found,) = compare_at_levels("cr2", values[:, None], labels, [0.9], draws=1, rng=np.random.default_rng, null=0.05)
    means = values.reshape(7, 4).mean(axis=1)
    expected = stats.ttest_1samp(means, 0.05)
    assert found.p == pytest.approx(expected.pvalue)
    assert found[1:3] == pytest.approx(tuple(expected.confidence_interval(0.9)))
    for clusters in (None, [str(index) for index in range(28)]):
        (own,) = compare_at_levels("cr2", values[:, None], clusters, [0.9], draws=1, rng=np.random.default_rng)
        assert own.p == pytest.approx(stats.ttest_1samp(values, 0).pvalue)


def test_margins_are_one_sided_tests_with_the_same_error():
    values, labels = problems(UNEVEN)
    (found,) = compare_at_levels("cr2", values[:, None], labels, [0.9], draws=1, rng=np.random.default_rng)
    margins = tost(values[:, None], labels, 0.2, 0.0, alpha=0.05, method="cr2")
    assert margins[1:3] == pytest.approx(found[1:3])
    (at_margin,) = compare_at_levels(
        "cr2", values[:, None], labels, [0.9], draws=1, rng=np.random.default_rng, null=-0.2
    )
    assert margins.p_worse == pytest.approx(at_margin.p / 2 if found.mean > -0.2 else 1 - at_margin.p / 2)


def test_clusters_that_all_agree_bound_others_by_what_they_weigh():
    labels = ["a"] * 30 + [*"bcdefghij"]
    (found,) = compare_at_levels("cr2", np.zeros((39, 1)), labels, [0.95], draws=1, rng=np.random.default_rng)
    # They weigh as 39^2 / (30^2 + 9) = 1.67 of one size; two at least.
    assert found.high == pytest.approx(1 - 0.05 ** (1 / 2))
    assert found.p == 1


@pytest.mark.parametrize(
    "sizes", [[50, 30, 20, 20, 10, 5, 5, 5], [60, 40, 30, 20, 12, 8, 5, 3, 2, 1], [50] * 3 + [10] * 7 + [2] * 10]
)
def test_it_holds_its_level_for_few_uneven_clusters_where_student_of_cluster_values_does_not(sizes):
    """Effects that are constant within a cluster, mean zero: 2,000 studies, standard error 0.5 %."""
    sizes, rng = np.array(sizes, float), np.random.default_rng(5)
    effects, weights = rng.standard_normal((2_000, len(sizes))) / 10, sizes / sizes.sum()
    mean, error, freedom = np.transpose([cluster_robust.robust_mean(row, sizes) for row in effects])
    robust = (2 * stats.t.sf(np.abs(mean) / error, freedom) <= 0.05).mean()
    values = mean[:, None] + len(sizes) * weights * (effects - mean[:, None])
    plain = (stats.ttest_1samp(values, 0, axis=1).pvalue <= 0.05).mean()
    assert robust <= 0.05
    assert plain > 0.08


@pytest.mark.parametrize(("topics", "least", "most"), [(3, 0.1, 0.2), (200, 0.0, 0.03)])
def test_an_effect_that_varies_between_topics_is_called_a_win_unless_topics_are_the_units(topics, least, most):
    """Of 200 problems 30 % differ; the effect is zero on average and varies by 10 points (4,000 studies).

    Three topics make 14 % of the studies false wins where problems count as independent, and 2.5 % by topic; 200 topics
    make 2.5 %, since a topic is a problem.
    """
    rng, topic = np.random.default_rng(11), np.arange(200) % topics
    effect, drawn = 0.1 * rng.standard_normal((4_000, topics))[:, topic], rng.random((4_000, 200))
    values = np.where(drawn < np.clip(0.15 + effect / 2, 0, 0.3), 1.0, np.where(drawn < 0.3, -1.0, 0.0))
    by_problem = stats.ttest_1samp(values, 0, axis=1, alternative="greater").pvalue <= 0.025
    assert least <= by_problem.mean() <= most
    sizes = np.bincount(topic).astype(float)
    means = np.stack([values[:, topic == each].mean(axis=1) for each in range(topics)], axis=1)
    found = [cluster_robust.compare(row, sizes) for row in means[:1_000]]
    assert np.mean([one.mean > 0 and one.p <= 0.05 for one in found]) <= 0.035
