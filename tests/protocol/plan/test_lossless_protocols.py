"""What may be registered about the full cache, and what is said of the rest."""

import pytest
from studies import PROTOCOL, parse

from analysis.rules.rule import arm_pairs
from analysis.simulation.simulated_studies import StudyPlan, planned_contrasts
from protocol.formats.refusals import BadInput
from protocol.plan import grid

PLAIN = (
    PROTOCOL.format(model="/nowhere")
    .replace("at_least = 1", "margin = 0.03")
    .replace('method = "sign-flip"', 'method = "t"')
    .replace('rule = "superior"', 'rule = "non_inferior"')
    .replace('against = ["random", "streaming"]', 'against = ["full"]')
)
SMALLEST = PLAIN.replace('"non_inferior"', '"smallest_lossless"').replace("budgets = [0.8]", "budgets = [96, 160]")
SHARED = SMALLEST + 'others = ["random", "streaming"]\n'


@pytest.mark.parametrize("rule", ["non_inferior", "equivalent"])
def test_a_lossless_rule_is_registered_against_the_full_cache(rule):
    design = parse(PLAIN.replace('"non_inferior"', f'"{rule}"'))
    assert design.decision.against == ("full",)
    assert len(design.contrast_models()) == 2  # tasks


def test_others_are_left_out_or_counted_in_the_family():
    alone, shared = parse(SMALLEST), parse(SHARED)
    assert "others" not in alone.content()["decision"]
    assert shared.content()["decision"]["others"] == ["random", "streaming"]
    assert len(alone.contrast_models()) == 2 * 2  # tasks, budgets
    assert len(shared.contrast_models()) == 2 * 2 * 3
    assert arm_pairs(shared.content()["decision"]) == [("crystal", "full"), ("random", "full"), ("streaming", "full")]
    items = {task.name: {"confirm": ["p"] * 7} for task in shared.tasks}
    planned = planned_contrasts(StudyPlan(shared.content(), [list(cell) for cell in grid.cells(shared)], items))
    assert [one.model for one in planned] == shared.contrast_models()


@pytest.mark.parametrize("text", [PLAIN, SMALLEST], ids=["non_inferior", "smallest_lossless"])
def test_a_thousandth_of_the_memory_is_not_saved(text):
    assert "cache_tolerance = 0.02\n" in text
    parse(text.replace("cache_tolerance = 0.02\n", "cache_tolerance = 0.01\n"))
    with pytest.raises(BadInput, match="could be called lossless"):
        parse(text.replace("cache_tolerance = 0.02\n", "cache_tolerance = 0.001\n"))


CLAIMED = PROTOCOL.format(model="/nowhere") + "\n[claims]\n"


@pytest.mark.parametrize(
    "claim",
    [
        '{ arm = "random", parent = "full", says = "worse" }',
        '{ arm = "crystal", parent = "full", says = "same", margin = 0.03 }',
        '{ arm = "streaming", parent = "full", says = "better" }',
    ],
)
def test_a_claim_may_compare_an_arm_with_the_full_cache_beside_a_rule_that_may_not(claim):
    (read_back,) = parse(f"{CLAIMED}lossy = {claim}\n").claims
    assert read_back.parent == "full"


def test_a_claim_about_a_thousandth_of_the_memory_is_refused():
    claimed = f'{CLAIMED}lossy = {{ arm = "random", parent = "full", says = "worse" }}\n'
    assert "cache_tolerance = 0.02\n" in claimed
    parse(claimed.replace("cache_tolerance = 0.02\n", "cache_tolerance = 0.01\n"))
    small = claimed.replace("cache_tolerance = 0.02\n", "cache_tolerance = 0.001\n")
    with pytest.raises(BadInput, match=r"claims\.lossy would compare the full cache with an arm that holds 99\.90 %"):
        parse(small)
    parse(small.replace('parent = "full"', 'parent = "crystal"'))
