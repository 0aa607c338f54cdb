import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from analysis.stats import multiplicity

FAMILY = [0.001, 0.008, 0.012, 0.02, 0.04, 0.2]


def passed(adjusted: tuple[float, ...]) -> int:
    return sum(p <= 0.05 for p in adjusted)


def test_bonferroni_rejects_two_and_holm_three_of_the_hand_counted_family():
    # 0.05 / 6 = 0.00833: 0.001 and 0.008. Holm: 0.012 <= 0.05 / 4 = 0.0125 but 0.02 > 0.05 / 3 = 0.0167.
    adjusted = multiplicity.adjust(FAMILY)
    assert passed(adjusted.bonferroni) == 2
    assert passed(adjusted.holm) == 3


def test_adjusted_values_are_the_products_of_the_hand_count():
    adjusted = multiplicity.adjust(FAMILY)
    assert adjusted.bonferroni == pytest.approx([0.006, 0.048, 0.072, 0.12, 0.24, 1.0])
    assert adjusted.holm == pytest.approx([0.006, 0.04, 0.048, 0.06, 0.08, 0.2])


def test_the_order_given_is_kept():
    shuffled = [FAMILY[i] for i in (3, 0, 5, 1, 4, 2)]
    assert multiplicity.adjust(shuffled).holm == pytest.approx([0.06, 0.006, 0.2, 0.04, 0.08, 0.048])


def test_random_families_are_adjusted_as_plain_loops_do():
    rng = np.random.default_rng(0)
    for size in range(1, 30):
        p = np.round(rng.random(size) ** 3, 2).tolist()  # with ties, zeros and ones
        order, holm, down = sorted(range(size), key=p.__getitem__), {}, 0.0
        for rank, place in enumerate(order):
            holm[place] = down = max(down, min(1.0, (size - rank) * p[place]))
        adjusted = multiplicity.adjust(p)
        assert adjusted.bonferroni == pytest.approx([min(1.0, size * one) for one in p])
        assert adjusted.holm == pytest.approx([holm[place] for place in range(size)])


def test_an_adjusted_family_is_that_of_statsmodels():
    p = [0.0, 1.0, 0.02, 0.02, 0.013, 0.4]
    for method, adjusted in zip(("bonferroni", "holm"), multiplicity.adjust(p), strict=True):
        assert adjusted == pytest.approx(multipletests(p, method=method)[1].tolist(), abs=1e-15)


def test_the_corrected_level_rejects_what_bonferroni_rejects():
    level = multiplicity.corrected_alpha(0.05, len(FAMILY))
    assert [p <= level for p in FAMILY] == [True, True, False, False, False, False]


@pytest.mark.parametrize("family", [[], [0.2, 1.1], [-0.1], [float("nan"), 0.1]])
def test_a_family_of_no_probabilities_is_refused(family):
    with pytest.raises(ValueError, match="family of probabilities"):
        multiplicity.adjust(family)


def test_an_empty_family_has_no_level():
    with pytest.raises(ValueError, match="0 contrasts"):
        multiplicity.corrected_alpha(0.05, 0)
